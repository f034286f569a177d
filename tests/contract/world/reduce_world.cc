#include "tests/contract/world/reduce_world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "tests/contract/world/allocation_watch.h"
#include "worker/core/averaging/mixing.h"
#include "worker/core/port/messages.h"
#include "worker/core/strategy/ist.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

// The reducer's work is watched, and how much it holds: `max_held` is raised to that.
class WatchedReducer : public simulator::ChunkHost<double> {
 public:
  explicit WatchedReducer(size_t& max_held) : max_held_(max_held) {}

  void KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned,
                 const simulator::Parcel& parcel) override {
    ChunkHost::KeepInput(round, rank, chunk, assigned, parcel);
    max_held_ = std::max(max_held_, held_bytes());
  }
  simulator::Parcel Input(RoundHandle round, ChunkIndex chunk) const override {
    const AllocationWatch watch;
    return ChunkHost::Input(round, chunk);
  }
  uint64_t Fold(RoundHandle round, const FoldChunk& fold) override {
    const AllocationWatch watch;
    return ChunkHost::Fold(round, fold);
  }

 private:
  size_t& max_held_;
};

}  // namespace

// ---- a member ----------------------------------------------------------------------------------

class ReduceWorld::Node : public simulator::ActionHost<double> {
 public:
  // Pre: `core` is the one in `setup`.
  Node(int member, Setup setup, ReduceCore& core, ReduceWorld& world)
      : ActionHost(member, std::move(setup), world),
        parameters(At(Region::kOutbox).values),
        core_(core),
        world_(world) {}

  void EnterView(const Seating& seating) {
    Take([this, seating](Actions& out) { core_.EnterView(now(), seating, out); });
  }
  // Gives the parameters to an averaging, if it lives.
  void Publish(AveragingId averaging, double weight);
  const ReduceCore& core() const { return core_; }

  std::vector<double> parameters;
  TellTrainerUnits units;             // that its trainer was told last
  bool over = true, applied = false;  // the last averaging
  double weight = 0;                  // in its result

 private:
  Progress Totals() const override { return {}; }
  void RequestSnapshot(AveragingId) override {}  // the world says when
  void Wake(const WakeAt&) override {}
  void StartTrainer() override {}
  void AdoptState(Region) override {}
  void GiveResult(AveragingId, Region region) override;
  void ReleaseSnapshot(AveragingId) override { over = true; }
  void TrainUnits(const TellTrainerUnits& told) override { units = told; }
  void Execute(const Action& action) override;

  ReduceCore& core_;
  ReduceWorld& world_;
};

void ReduceWorld::Node::Publish(AveragingId averaging, double own) {
  if (!alive()) return;
  over = applied = false;
  At(Region::kOutbox).values = parameters;
  Local(Published{averaging, own, averaging.value(), units.by});
}

void ReduceWorld::Node::GiveResult(AveragingId, Region region) {
  over = applied = true;
  parameters = At(region).values;
  world_.Note(
      {reinterpret_cast<const uint8_t*>(parameters.data()), parameters.size() * sizeof(double)});
}

void ReduceWorld::Node::Execute(const Action& action) {
  if (const auto* result = std::get_if<Deliver>(&action)) weight = result->samples;
  ActionHost::Execute(action);
}

// ---- the world ---------------------------------------------------------------------------------

ReduceWorld::ReduceWorld(ReduceWorldOptions options, const MaskedAllReduce::MaskOf& mask)
    : ReduceWorld(std::move(options), StrategyKind::kAllReduce,
                  [&mask] { return std::make_unique<MaskedAllReduce>(mask); }, {}) {}

ReduceWorld::ReduceWorld(ReduceWorldOptions options, const UnitSchema& units)
    : ReduceWorld(
          std::move(options), StrategyKind::kIst, [] { return std::make_unique<Ist>(); }, units) {}

ReduceWorld::ReduceWorld(ReduceWorldOptions options, StrategyKind kind, const StrategyMaker& make,
                         const UnitSchema& units)
    : options_(std::move(options)), rng_(options_.seed) {
  std::vector<Member> members;
  for (int i = 0; i < options_.members; ++i) {
    AddMember(i, make(), units);
    members.push_back({.id = At(i).id(), .joined_unix_ms = i});
  }
  AveragingConfig averaging;
  averaging.strategy = kind;
  averaging.compression = options_.wire;
  const ViewFacts facts{.config = averaging, .seed = rng_.Next()};
  View view = FirstView(members.front(), facts);
  if (members.size() > 1)
    view = NextView(Seating(view, HashOf(view, "contract")), {},
                    {members.begin() + 1, members.end()}, facts);
  seating_ = Seating(view, HashOf(view, "contract"));
  for (const auto& node : nodes_) {
    CHECK(seating_.CellOf(node->id()) == static_cast<CellIndex>(node->index()));
    node->EnterView(seating_);
  }
}
ReduceWorld::~ReduceWorld() = default;

void ReduceWorld::AddMember(int member, std::unique_ptr<Strategy> strategy,
                            const UnitSchema& units) {
  PeerConfig config;
  config.job = "contract";
  config.id = *PeerId::From(Sha256(AsBytes("member" + std::to_string(member))).view());
  config.chunk_elements = options_.chunk_elements;
  index_[config.id] = member;
  auto core = std::make_unique<ReduceCore>(config, std::move(strategy), options_.elements, units);
  ReduceCore& hosted = *core;
  Node::Setup setup{.config = config,
                    .rng = Rng(0),
                    .elements = options_.elements,
                    .times = {.fold = Microseconds(20)},
                    .chunks = std::make_unique<WatchedReducer>(max_held_),
                    .core = std::move(core)};
  nodes_.push_back(std::make_unique<Node>(member, std::move(setup), hosted, *this));
  nodes_.back()->Start();
}

void ReduceWorld::Note(ByteView bytes) {
  trace_ = (trace_ ^ ContentHash(bytes, trace_)) * 1099511628211ULL;
}

void ReduceWorld::OnDeath(int member) {
  for (const auto& node : nodes_)
    queue_.After(Milliseconds(1), [&node = *node, id = At(member).id()] {
      node.OnDown(id, DownEvidence::kRefused);
    });
}

void ReduceWorld::Average() {
  ++averaging_;
  for (const auto& [member, after] : std::exchange(deaths_, {}))
    queue_.After(after, [&dead = At(member)] { dead.Kill(); });
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const double weight = options_.weights.empty() ? 1 : options_.weights[i];
    queue_.After(options_.delay * rng_.UniformDouble(),
                 [this, &node = *nodes_[i], weight] { node.Publish(averaging_, weight); });
  }
  const Time end = now() + Seconds(60);
  const Time opened = now() + options_.delay;
  while ((now() <= opened || !AllOver()) && queue_.RunOne(end)) {
  }
  CHECK(AllOver());
}

bool ReduceWorld::AllOver() const {
  return std::none_of(nodes_.begin(), nodes_.end(),
                      [](const auto& node) { return node->alive() && !node->over; });
}

// ---- the network -------------------------------------------------------------------------------

void ReduceWorld::Carry(const std::function<void()>& run) {
  const int copies = rng_.Bernoulli(options_.loss) ? 0 : rng_.Bernoulli(options_.repeat) ? 2 : 1;
  for (int k = 0; k < copies; ++k) queue_.After(options_.delay * rng_.UniformDouble(), run);
}

void ReduceWorld::SendBody(int from, const PeerId& to, const Bytes& body) {
  Note(body);
  Carry([this, &target = Of(to), from = At(from).id(), body] {
    target.OnBody(from, std::make_shared<const Bytes>(body));
    if (!foreign_) return;
    auto message = DecodeMessage(body);
    auto* frame = std::get_if<message::RoundFrame>(&*message);
    if (frame == nullptr || frame->view != seating_.hash()) return;  // an answer to such a one
    frame->view = HashOf(seating_.view(), "another job");
    frame->frame[0] ^= 1;  // and so its instance is another
    target.OnBody(from, std::make_shared<const Bytes>(EncodeMessage(*message)));
  });
}

void ReduceWorld::SendTensor(int from, const PeerId& to, const simulator::TensorFrame& frame) {
  simulator::TensorFrame sent = frame;
  Bytes& bytes = sent.parcel.wire;
  if (std::get<ChunkArrived>(sent.header).kind == ChunkArrived::Kind::kInput) {
    const auto spoiled = spoiled_.find(from);
    if (spoiled != spoiled_.end()) spoiled->second(bytes);
    input_bytes_ += bytes.size();
  }
  Note(bytes);
  Carry([this, &target = Of(to), sent] {
    target.OnTensor(sent);
    if (!foreign_) return;
    simulator::TensorFrame other = sent;
    std::get<ChunkArrived>(other.header).instance = MixInstanceOf(seating_.hash());
    target.OnTensor(other);
  });
}

// ---- what tests see ----------------------------------------------------------------------------

std::vector<int> ReduceWorld::Living() const {
  std::vector<int> living;
  for (const auto& node : nodes_)
    if (node->alive()) living.push_back(node->index());
  return living;
}
std::vector<double>& ReduceWorld::parameters(int member) { return At(member).parameters; }
bool ReduceWorld::applied(int member) const { return At(member).applied; }
double ReduceWorld::weight(int member) const { return At(member).weight; }
const TellTrainerUnits& ReduceWorld::units(int member) const { return At(member).units; }
double ReduceWorld::Refused(const std::string& reason) const {
  double sum = 0;
  for (const auto& node : nodes_)
    sum +=
        node->core().metrics().Value("crowdsurf_round_frames_refused_total", {{"reason", reason}});
  return sum;
}
uint64_t ReduceWorld::bad_inputs() const {
  uint64_t sum = 0;
  for (const auto& node : nodes_) sum += node->core().bad_inputs();
  return sum;
}

}  // namespace crowdsurf::worker
