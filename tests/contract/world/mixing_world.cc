#include "tests/contract/world/mixing_world.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "tests/contract/world/allocation_watch.h"
#include "worker/core/link/chunk_turn.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/strategy/strategy_factory.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kNever = Seconds(3600 * 24);  // longer than any test
constexpr Duration kCountEvery = Seconds(1);
constexpr Region kLinkRegions[] = {Region::kOutbox, Region::kInboxA, Region::kInboxB};

}  // namespace

// ---- a worker ----------------------------------------------------------------------------------

class MixingWorld::Node : public simulator::ActionHost<double> {
 public:
  // Pre: `core` is the one in `setup`.
  Node(int index, Setup setup, MixingCore& core, MixingWorld& world)
      : ActionHost(index, std::move(setup), world), core_(core), world_(world) {}

  void Begin(double value, double curvature);
  void EnterView(const View& view, const ViewHash& hash);
  void StartMixing();
  void OnCounted(AveragingId averaging, const ModelAge& total);
  void Drain() { core_.Drain(); }
  std::vector<double>& Values(Region region) { return At(region).values; }
  const Mixing& mixing() const { return core_.mixing(); }

  std::vector<double> parameters;
  double lr_scale = 1;
  uint64_t reserved = 0;  // doubles in the extra regions

 private:
  Progress Totals() const override { return {step_, static_cast<double>(step_), {}, {}}; }
  void RequestSnapshot(AveragingId averaging) override { wanted_ = averaging; }
  void Wake(const WakeAt&) override {}  // it tells its totals at every step
  void StartTrainer() override {}
  void AdoptState(Region) override {}
  void GiveResult(AveragingId, Region region) override;
  void ReleaseSnapshot(AveragingId) override { waiting_ = false; }
  void SetLrScale(double scale) override { lr_scale = scale; }
  void Execute(const Action& action) override;

  void Train();  // to the next boundary
  void Apply();  // the result

  // The way out to a neighbour takes one chunk at a time.
  using Way = std::pair<PeerId, MixTag>;
  struct Leaving {
    MixSend message;
    ChunkTurn turn;
  };
  void SendInTurn(const MixSend& message);
  void SendNext(const Way& way);  // the chunk whose turn it is

  MixingCore& core_;
  MixingWorld& world_;
  double target_ = 0;
  double curvature_ = 1;
  uint64_t step_ = 0;
  std::optional<AveragingId> wanted_;  // snapshot asked of the trainer
  std::optional<Region> result_;       // to be added at the next boundary
  bool waiting_ = false;               // for the result of its snapshot; no step meanwhile
  std::map<Way, Leaving> leaving_;
};

void MixingWorld::Node::Begin(double value, double curvature) {
  target_ = value;
  curvature_ = curvature;
  parameters.assign(world_.options_.elements, value);
  for (const Region region : kLinkRegions) Values(region) = parameters;
  Start();
  queue().After(world_.options_.step + world_.options_.stagger * index(), [this] { Train(); });
}

void MixingWorld::Node::EnterView(const View& view, const ViewHash& hash) {
  Take([this, view, hash](Actions& out) { core_.EnterView(now(), view, hash, out); });
  wanted_.reset();       // the agent's gate: a request of the old view is answered and dropped
  if (result_) Apply();  // before the snapshot that the view begins with
}

void MixingWorld::Node::StartMixing() {
  Take([this](Actions& out) { core_.StartMixing(now(), Region::kInboxB, out); });
}

void MixingWorld::Node::OnCounted(AveragingId averaging, const ModelAge& total) {
  Take([this, averaging, total](Actions& out) { core_.OnCounted(now(), averaging, total, out); });
}

void MixingWorld::Node::Train() {
  if (!alive()) return;
  queue().After(world_.options_.step, [this] { Train(); });
  if (waiting_) return;
  const double rate = world_.options_.learning_rate * lr_scale * curvature_;
  for (double& p : parameters) p -= rate * (p - target_);
  ++step_;
  if (result_) Apply();
  if (wanted_ && !world_.settling_ && mixing().delivered() < world_.max_results_) {
    Values(Region::kOutbox) = parameters;
    waiting_ = OverlapOf(world_.options_.config) == Overlap::kBlocking;
    Local(Published{*std::exchange(wanted_, std::nullopt), Totals().samples, step_});
  }
  Local(Totals());
}

void MixingWorld::Node::Apply() {
  const auto& box = Values(*std::exchange(result_, std::nullopt));
  const auto& outbox = Values(Region::kOutbox);
  for (size_t i = 0; i < box.size(); ++i) parameters[i] += box[i] - outbox[i];
  waiting_ = false;
}

void MixingWorld::Node::GiveResult(AveragingId, Region region) {
  result_ = region;
  const auto& box = Values(region);
  world_.Note(
      ContentHash({reinterpret_cast<const uint8_t*>(box.data()), box.size() * sizeof(double)}, 0));
  if (waiting_) Apply();
}

void MixingWorld::Node::Execute(const Action& action) {
  world_.Note(action.index());
  if (const auto* reserve = std::get_if<ReserveRegions>(&action)) {
    reserved = 0;
    for (const Extent& extent : reserve->extents) reserved += extent.count;
  }
  const auto* message = std::get_if<MixSend>(&action);
  if (message != nullptr && world_.options_.chunk_time > Duration()) return SendInTurn(*message);
  std::optional<AllocationWatch> watch;
  if (std::holds_alternative<RunKernel>(action) || std::holds_alternative<PowerAction>(action))
    watch.emplace();
  ActionHost::Execute(action);
}

void MixingWorld::Node::SendInTurn(const MixSend& message) {
  const Way way{message.to, message.tag};
  const auto [it, idle] = leaving_.try_emplace(way, Leaving{message, ChunkTurn(message.chunks)});
  if (idle) return SendNext(way);
  it->second.message = message;
  it->second.turn.Renew(message.chunks);
}

void MixingWorld::Node::SendNext(const Way& way) {
  DoAfter(world_.options_.chunk_time, [this, way] {
    auto& [message, turn] = leaving_.at(way);
    SendMixChunk(message, turn.next());
    turn.Advance();
    if (!turn.done()) return SendNext(way);
    const MixSent sent{message.to, message.tag, message.sequence};
    leaving_.erase(way);
    Local(sent);
  });
}

// ---- the world ---------------------------------------------------------------------------------

MixingWorld::MixingWorld(MixingWorldOptions options)
    : options_(std::move(options)), rng_(options_.seed) {
  queue_.After(kCountEvery, [this] { Count(); });
}
MixingWorld::~MixingWorld() = default;

void MixingWorld::Note(uint64_t value) { trace_ = (trace_ ^ value) * 1099511628211ULL; }

int MixingWorld::Add(double value, double curvature) {
  const int index = static_cast<int>(nodes_.size());
  const std::string name = "node" + std::to_string(index);
  PeerConfig config;
  config.job = "contract";
  config.id = *PeerId::From(Sha256(AsBytes(name)).view());
  config.chunk_elements = options_.chunk_elements;
  index_[config.id] = index;
  auto core = std::make_unique<MixingCore>(config, options_.elements, rng_.Fork(name));
  MixingCore& mixing = *core;
  Node::Setup setup{.config = config,
                    .rng = Rng(0),
                    .elements = options_.elements,
                    .times = {.registers = kNever},  // the core has its vector
                    .core = std::move(core)};
  nodes_.push_back(std::make_unique<Node>(index, std::move(setup), mixing, *this));
  nodes_.back()->Begin(value, curvature);
  return index;
}

void MixingWorld::Kill(int node) { At(node).Kill(); }

void MixingWorld::OnDeath(int node) {
  for (const int other : Living())
    queue_.After(options_.delay, [&other = At(other), id = At(node).id()] {
      other.OnDown(id, DownEvidence::kRefused);
    });
}

std::vector<int> MixingWorld::Living() const {
  std::vector<int> living;
  for (const auto& node : nodes_)
    if (node->alive()) living.push_back(node->index());
  return living;
}

void MixingWorld::MakeView() {
  ViewFacts facts{.config = options_.config, .seed = rng_.Next()};
  std::vector<Member> members;
  for (const int i : Living()) members.push_back({.id = id(i), .joined_unix_ms = i});
  const View first = FirstView(members.front(), facts);
  View view = NextView(Seating(first, HashOf(first, "contract")), {}, members, facts);
  view.epoch = view_ ? view_->epoch + 1 : 2;
  view_ = view;
  const ViewHash hash = HashOf(view, "contract");
  for (const int i : Living()) At(i).EnterView(view, hash);
  AverageByRounds();
  for (const int i : Living()) At(i).StartMixing();
}

// One averaging by the strategy's own rounds, each group reduced exactly.
void MixingWorld::AverageByRounds() {
  std::map<int, std::unique_ptr<Strategy>> strategies;
  std::map<int, StrategyActions> pending;
  for (const int i : Living()) {
    strategies[i] = MakeStrategy(options_.config.strategy, Rng(1));
    StrategyActions ignored;
    strategies[i]->SetUnits(
        UnitSchema::Of({{.name = "model", .shape = {options_.elements}, .axes = {}}}).value(),
        options_.chunk_elements);
    strategies[i]->OnView(now(), *view_, id(i), ignored);
    At(i).Values(Region::kOutbox) = At(i).parameters;
    strategies[i]->OnEvent(now(), PublishedEvent{AveragingId(1), 1.0}, pending[i]);
  }
  const auto group = [&](int i, const OpenRound& open) {
    return GroupCells(view_->grid, view_->Find(id(i))->cell, open.axis).front();
  };
  for (bool more = true; more;) {
    more = false;
    std::map<CellIndex, std::pair<std::vector<double>, double>> sums;  // by group
    for (const auto& [i, actions] : pending)
      for (const StrategyAction& action : actions)
        if (const auto* open = std::get_if<OpenRound>(&action)) {
          auto& [sum, weight] = sums[group(i, *open)];
          sum.resize(options_.elements);
          const auto& mine = At(i).Values(open->from);
          for (size_t e = 0; e < sum.size(); ++e) sum[e] += open->weight * mine[e];
          weight += open->weight;
        }
    std::map<int, StrategyActions> next;
    for (const auto& [i, actions] : pending)
      for (const StrategyAction& action : actions) {
        if (const auto* open = std::get_if<OpenRound>(&action)) {
          const auto& [sum, weight] = sums.at(group(i, *open));
          auto& to = At(i).Values(open->to);
          for (size_t e = 0; e < sum.size(); ++e) to[e] = sum[e] / weight;
          strategies[i]->OnEvent(now(),
                                 RoundDecided{AveragingId(1), open->axis, true, weight,
                                              RankSet::FirstRanks(view_->members.size())},
                                 next[i]);
          more = true;
        } else if (const auto* deliver = std::get_if<DeliverResult>(&action)) {
          At(i).parameters = At(i).Values(deliver->region);
        }
      }
    pending = std::move(next);
  }
}

void MixingWorld::Count() {
  queue_.After(kCountEvery, [this] { Count(); });
  ++counts_;
  ModelAge total;
  for (const int i : Living()) worker::Add(mixing(i).age(), total);
  const int misses = std::exchange(misses_count_, -1);
  for (const int i : Living())
    if (i != misses) At(i).OnCounted(counts_, total);
}

// ---- the network -------------------------------------------------------------------------------

void MixingWorld::SendBody(int from, const PeerId& to, const Bytes& body) {
  const Duration delay = options_.delay * rng_.UniformDouble();
  queue_.After(delay, [&target = Of(to), from = id(from),
                       body = std::make_shared<const Bytes>(body)] { target.OnBody(from, body); });
}

void MixingWorld::SendTensor(int from, const PeerId& to, const simulator::TensorFrame& frame) {
  simulator::TensorFrame sent = frame;
  const bool planted = from == nan_from_ || from == foreign_from_;
  if (from == nan_from_) {
    Bytes& wire = sent.parcel.wire;  // all ones are a NaN in every format
    std::fill_n(wire.begin(), std::min(wire.size(), sizeof(double)), uint8_t{0xff});
    nan_from_ = -1;
  }
  if (from == foreign_from_) {
    std::get<MixArrived>(sent.header).instance = MixInstanceOf(ViewHash());
    foreign_from_ = -1;
  }
  int copies = rng_.Bernoulli(options_.loss) ? 0 : rng_.Bernoulli(options_.repeat) ? 2 : 1;
  if (planted) copies = 1;
  for (int k = 0; k < copies; ++k)
    queue_.After(options_.delay * rng_.UniformDouble(),
                 [&target = Of(to), sent] { target.OnTensor(sent); });
}

void MixingWorld::RunFor(Duration time) {
  const Time until = now() + time;
  while (queue_.RunOne(until)) {
  }
}

void MixingWorld::Settle() {
  settling_ = true;
  RunFor(Seconds(3));  // longer than what is under way takes
  settling_ = false;
}

void MixingWorld::Drain() {
  for (const int i : Living()) At(i).Drain();
  RunFor(Seconds(3));
}

std::vector<double>& MixingWorld::parameters(int node) { return At(node).parameters; }
const std::vector<double>& MixingWorld::extra(int node, size_t region) const {
  return At(node).Values(ExtraRegion(region));
}
const Mixing& MixingWorld::mixing(int node) const { return At(node).mixing(); }
const PeerId& MixingWorld::id(int node) const { return At(node).id(); }
double MixingWorld::lr_scale(int node) const { return At(node).lr_scale; }
uint64_t MixingWorld::reserved(int node) const { return At(node).reserved; }
double MixingWorld::Mean() const {
  double sum = 0;
  const std::vector<int> living = Living();
  for (const int i : living) sum += At(i).parameters[0];
  return sum / static_cast<double>(living.size());
}
double MixingWorld::Spread() const {
  double spread = 0;
  for (size_t e = 0; e < options_.elements; ++e) {
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (const int i : Living()) {
      const double value = At(i).parameters[e];
      CHECK(std::isfinite(value));
      least = std::min(least, value);
      most = std::max(most, value);
    }
    spread = std::max(spread, most - least);
  }
  return spread;
}

}  // namespace crowdsurf::worker
