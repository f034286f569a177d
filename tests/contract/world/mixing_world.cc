#include "tests/contract/world/mixing_world.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/digest.h"
#include "simulator/host/regions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/strategy/strategy_factory.h"

namespace crowdsurf::worker {

struct MixingWorld::Node {
  Node(PeerConfig c, uint64_t elements, Rng rng)
      : config(std::move(c)),
        metrics(registry),
        mixing(config, metrics, Logger(), rng),
        regions(elements) {}

  PeerConfig config;
  MetricRegistry registry;
  PeerMetrics metrics;
  Mixing mixing;
  std::unique_ptr<Strategy> rounds;  // of a strategy that is not on a graph
  bool alive = true;
  double target = 0;
  double curvature = 1;
  uint64_t step = 0;
  std::vector<double> parameters;
  simulator::Regions<double> regions;
  PowerEdges<double> power;
  std::optional<AveragingId> wanted;  // snapshot asked of the trainer
  std::optional<Region> result;       // to be added at the next boundary
  bool waiting = false;               // for the result of its snapshot; no step meanwhile
  double lr_scale = 1;
  Time armed = Time::Infinite();

  std::vector<double>& At(Region region) { return regions.At(region).values; }
};

TensorViews ViewsOfContract(uint64_t elements) {
  const auto rows = static_cast<uint32_t>(std::sqrt(static_cast<double>(elements)));
  return {{0, {rows, rows - rows / 4}}};
}

MixingWorld::MixingWorld(MixingWorldOptions options)
    : options_(std::move(options)), rng_(options_.seed) {}
MixingWorld::~MixingWorld() = default;

void MixingWorld::Note(uint64_t value) { trace_ = (trace_ ^ value) * 1099511628211ULL; }

int MixingWorld::Add(double value, double curvature) {
  const int index = static_cast<int>(nodes_.size());
  PeerConfig config;
  config.job = "contract";
  config.id = *PeerId::From(Sha256(AsBytes("node" + std::to_string(index))).view());
  config.chunk_elements = options_.chunk_elements;
  nodes_.push_back(
      std::make_unique<Node>(config, options_.elements, rng_.Fork("node" + std::to_string(index))));
  Node& node = *nodes_.back();
  index_[config.id] = index;
  node.target = value;
  node.curvature = curvature;
  node.parameters.assign(options_.elements, value);
  for (const Region region : {Region::kOutbox, Region::kInboxA, Region::kInboxB})
    node.At(region) = node.parameters;
  node.mixing.SetVector(options_.elements, ViewsOfContract(options_.elements));
  queue_.After(options_.step, [this, &node] { Boundary(node); });
  return index;
}

void MixingWorld::Kill(int index) {
  Node& dead = *nodes_[static_cast<size_t>(index)];
  dead.alive = false;
  for (const int other : Living()) {
    Node& node = *nodes_[static_cast<size_t>(other)];
    queue_.After(options_.delay, [this, &node, id = dead.config.id] {
      if (node.alive) Input(node, [&](Actions& out) { node.mixing.OnPeerDown(now(), id, out); });
    });
  }
}

std::vector<int> MixingWorld::Living() const {
  std::vector<int> living;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i]->alive) living.push_back(static_cast<int>(i));
  return living;
}

void MixingWorld::MakeView() {
  ViewFacts facts{.config = options_.config, .seed = rng_.Next()};
  std::optional<View> view;
  std::vector<Member> members;
  for (const int i : Living())
    members.push_back({.id = nodes_[static_cast<size_t>(i)]->config.id, .joined_unix_ms = i});
  const View first = FirstView(members.front(), facts);
  view = NextView(Seating(first, HashOf(first, "contract")), {}, members, facts);
  view->epoch = view_ ? view_->epoch + 1 : 2;
  view_ = view;
  const ViewHash hash = HashOf(*view_, "contract");
  for (const int i : Living()) {
    Node& node = *nodes_[static_cast<size_t>(i)];
    Input(node, [&](Actions& out) { node.mixing.OnView(now(), *view_, hash, out); });
    node.wanted.reset();  // the agent's gate: a request of the old view is answered and dropped
    node.result.reset();
    node.mixing.SetVector(options_.elements, ViewsOfContract(options_.elements));
    node.rounds = MakeStrategy(options_.config.strategy, Rng(1));
    StrategyActions ignored;
    node.rounds->OnView(now(), *view_, node.config.id, ignored);
  }
  AverageByRounds();
  for (const int i : Living()) {
    Node& node = *nodes_[static_cast<size_t>(i)];
    Input(node, [&](Actions& out) { node.mixing.Start(now(), Region::kInboxB, out); });
  }
}

// One averaging by the strategy's own rounds, each group reduced exactly.
void MixingWorld::AverageByRounds() {
  std::map<int, StrategyActions> pending;
  for (const int i : Living()) {
    Node& node = *nodes_[static_cast<size_t>(i)];
    node.At(Region::kOutbox) = node.parameters;
    node.rounds->OnEvent(now(), PublishedEvent{AveragingId(1), 1.0}, pending[i]);
  }
  for (bool more = true; more;) {
    more = false;
    std::map<CellIndex, std::pair<std::vector<double>, double>> sums;  // by group
    const auto group = [&](int i, size_t axis) {
      const Member* member = view_->Find(nodes_[static_cast<size_t>(i)]->config.id);
      return GroupCells(view_->grid, member->cell, axis).front();
    };
    for (auto& [i, actions] : pending)
      for (const StrategyAction& action : actions)
        if (const auto* open = std::get_if<OpenRound>(&action)) {
          auto& [sum, weight] = sums[group(i, open->axis)];
          sum.resize(options_.elements);
          const auto& mine = nodes_[static_cast<size_t>(i)]->At(open->from);
          for (size_t e = 0; e < sum.size(); ++e) sum[e] += open->weight * mine[e];
          weight += open->weight;
        }
    std::map<int, StrategyActions> next;
    for (auto& [i, actions] : pending) {
      Node& node = *nodes_[static_cast<size_t>(i)];
      for (const StrategyAction& action : actions) {
        if (const auto* open = std::get_if<OpenRound>(&action)) {
          const auto& [sum, weight] = sums.at(group(i, open->axis));
          auto& to = node.At(open->to);
          for (size_t e = 0; e < sum.size(); ++e) to[e] = sum[e] / weight;
          node.rounds->OnEvent(now(), RoundDecided{AveragingId(1), open->axis, true, weight},
                               next[i]);
          more = true;
        } else if (const auto* deliver = std::get_if<DeliverResult>(&action)) {
          node.parameters = node.At(deliver->region);
        }
      }
    }
    pending = std::move(next);
  }
}

void MixingWorld::Apply(Node& node) {
  const auto& box = node.At(*std::exchange(node.result, std::nullopt));
  const auto& outbox = node.At(Region::kOutbox);
  for (size_t i = 0; i < box.size(); ++i) node.parameters[i] += box[i] - outbox[i];
  node.waiting = false;
}

void MixingWorld::Boundary(Node& node) {
  if (!node.alive) return;
  queue_.After(options_.step, [this, &node] { Boundary(node); });
  if (node.waiting) return;
  const double rate = options_.learning_rate * node.lr_scale * node.curvature;
  for (double& p : node.parameters) p -= rate * (p - node.target);
  ++node.step;
  if (node.result) Apply(node);
  const auto samples = static_cast<double>(node.step);
  if (node.wanted && !settling_ && node.mixing.delivered() < most_results_) {
    const AveragingId number = *std::exchange(node.wanted, std::nullopt);
    node.At(Region::kOutbox) = node.parameters;
    Input(node, [&](Actions& out) {
      const bool taken = node.mixing.OnSnapshot(now(), Published{number, samples, node.step}, out);
      node.waiting = taken && OverlapOf(options_.config) == Overlap::kBlocking;
    });
  }
  Input(node, [&](Actions& out) {
    node.mixing.OnProgress(now(), Progress{node.step, samples, {}, {}}, out);
  });
}

void MixingWorld::Input(Node& node, const std::function<void(Actions&)>& input) {
  Actions actions;
  actions.reserve(64);
  before_();
  input(actions);
  after_();
  for (const Action& action : actions) Execute(node, action);
  if (const auto wanted = node.mixing.wanted()) {
    node.mixing.OnAsked();
    node.wanted = *wanted;
  }
  ArmTimer(node);
}

void MixingWorld::ArmTimer(Node& node) {
  const Time deadline = node.mixing.NextDeadline();
  if (deadline >= node.armed) return;
  node.armed = deadline;
  queue_.At(deadline, [this, &node] {
    if (!node.alive || node.armed > now()) return;
    node.armed = Time::Infinite();
    Input(node, [&](Actions& out) {
      if (node.mixing.NextDeadline() <= now()) node.mixing.OnTimer(now(), out);
    });
  });
}

void MixingWorld::Execute(Node& node, const Action& action) {
  Note(action.index());
  if (const auto* send = std::get_if<Send>(&action)) {
    const Duration delay = options_.delay * rng_.UniformDouble();
    queue_.After(delay, [this, from = node.config.id, to = send->to, body = send->body] {
      Node& target = Of(to);
      if (!target.alive) return;
      const auto message = DecodeMessage(body);
      const ViewHash view = HashOf(*view_, "contract");
      if (const auto* pair = std::get_if<message::Pair>(&*message); pair && pair->view == view)
        Input(target, [&](Actions& out) { target.mixing.OnWord(now(), from, pair->word, out); });
      if (const auto* edge = std::get_if<message::Neighbour>(&*message); edge && edge->view == view)
        Input(target,
              [&](Actions& out) { target.mixing.OnEdgeWord(now(), from, edge->word, out); });
    });
  } else if (const auto* reserve = std::get_if<ReserveRegions>(&action)) {
    node.regions.Reserve(*reserve);
  } else if (const auto* kernel = std::get_if<RunKernel>(&action)) {
    before_();
    node.regions.Run(*kernel);
    after_();
  } else if (const auto* power = std::get_if<PowerAction>(&action)) {
    before_();
    node.power.Run(*power,
                   [&](Region region, const Extent& e) { return node.regions.Part(region, e); });
    after_();
  } else if (const auto* chunks = std::get_if<MixSend>(&action)) {
    SendChunks(node, *chunks);
  } else if (const auto* mixed = std::get_if<DeliverMix>(&action)) {
    node.result = mixed->region;
    const auto& box = node.At(mixed->region);
    Note(ContentHash({reinterpret_cast<const uint8_t*>(box.data()), box.size() * sizeof(double)},
                     0));
    if (node.waiting) Apply(node);
  } else if (std::holds_alternative<ReleaseOutbox>(action)) {
    node.waiting = false;
  } else if (const auto* scale = std::get_if<TellLrScale>(&action)) {
    node.lr_scale = scale->scale;
  }
}

void MixingWorld::SendChunks(Node& node, const MixSend& send) {
  for (uint32_t c = 0; c < send.chunks; ++c) {
    before_();
    const auto chunk = node.mixing.Describe(send.to, send.tag, send.sequence, c);
    after_();
    if (!chunk) continue;
    std::vector<double> values = node.regions.Sum(*chunk);
    const int from = index_.at(node.config.id);
    if (from == nan_from_) values[0] = std::nan(""), nan_from_ = -1;
    Bytes wire(values.size() * WireWidth<double>(chunk->wire));
    EncodeWire(chunk->wire, std::span<const double>(values), wire);
    MixArrived arrived{.from = node.config.id,
                       .instance = chunk->instance,
                       .tag = send.tag,
                       .sequence = chunk->sequence,
                       .count = chunk->count,
                       .chunk = c};
    const bool planted = from == foreign_from_ || !std::isfinite(values[0]);
    if (from == foreign_from_) arrived.instance = MixInstanceOf(ViewHash()), foreign_from_ = -1;
    int copies = rng_.Bernoulli(options_.loss) ? 0 : rng_.Bernoulli(options_.repeat) ? 2 : 1;
    if (planted) copies = 1;
    for (int k = 0; k < copies; ++k)
      queue_.After(options_.delay * rng_.UniformDouble(),
                   [this, to = send.to, arrived, wire] { Arrive(to, arrived, wire); });
  }
  queue_.After(Duration(), [this, &node, sent = MixSent{send.to, send.tag, send.sequence}] {
    if (node.alive) Input(node, [&](Actions& out) { node.mixing.OnSent(now(), sent, out); });
  });
}

void MixingWorld::Arrive(const PeerId& to, const MixArrived& chunk, const Bytes& wire) {
  Node& node = Of(to);
  if (!node.alive) return;
  before_();
  const auto place = node.mixing.Place(chunk);
  after_();
  MixArrived arrived = chunk;
  arrived.stored = place && node.regions.Store(*place, wire);
  Input(node, [&](Actions& out) { node.mixing.OnChunk(now(), arrived, out); });
}

void MixingWorld::RunFor(Duration time) {
  const Time until = now() + time;
  while (queue_.RunOne(until)) {
  }
}

void MixingWorld::Settle() {
  settling_ = true;
  RunFor(Seconds(3));  // longer than the patience of an exchange
  settling_ = false;
}

std::vector<double>& MixingWorld::parameters(int node) {
  return nodes_[static_cast<size_t>(node)]->parameters;
}
const std::vector<double>& MixingWorld::extra(int node, size_t region) const {
  return nodes_[static_cast<size_t>(node)]->At(ExtraRegion(region));
}
const Mixing& MixingWorld::mixing(int node) const {
  return nodes_[static_cast<size_t>(node)]->mixing;
}
const PeerId& MixingWorld::id(int node) const {
  return nodes_[static_cast<size_t>(node)]->config.id;
}
double MixingWorld::lr_scale(int node) const { return nodes_[static_cast<size_t>(node)]->lr_scale; }
uint64_t MixingWorld::reseeds(int node) const {
  return nodes_[static_cast<size_t>(node)]->power.reseeds();
}
uint64_t MixingWorld::reserved(int node) const {
  uint64_t sum = 0;
  for (const Extent& extent : nodes_[static_cast<size_t>(node)]->regions.reserved())
    sum += extent.count;
  return sum;
}
double MixingWorld::Mean() const {
  double sum = 0;
  const std::vector<int> living = Living();
  for (const int i : living) sum += nodes_[static_cast<size_t>(i)]->parameters[0];
  return sum / static_cast<double>(living.size());
}
double MixingWorld::Spread() const {
  double spread = 0;
  for (size_t e = 0; e < options_.elements; ++e) {
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (const int i : Living()) {
      const double value = nodes_[static_cast<size_t>(i)]->parameters[e];
      CHECK(std::isfinite(value));
      least = std::min(least, value);
      most = std::max(most, value);
    }
    spread = std::max(spread, most - least);
  }
  return spread;
}

void MixingWorld::Watch(std::function<void()> before, std::function<void()> after) {
  before_ = std::move(before);
  after_ = std::move(after);
}

}  // namespace crowdsurf::worker
