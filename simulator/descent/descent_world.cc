#include "simulator/descent/descent_world.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "simulator/engine/node_config.h"

namespace crowdsurf::simulator {
namespace {

constexpr Duration kStartSpread = Milliseconds(50);  // the workers of the beginning
constexpr Duration kDetection = Milliseconds(5);     // until a reset connection is seen
constexpr Duration kTellAgain = Milliseconds(400);   // a transport does not repeat itself sooner
constexpr Duration kFresh = Seconds(1);              // a survivor's last result is not older

}  // namespace

DescentWorld::DescentWorld(const DescentOptions& options)
    : options_(options),
      rng_(options.seed),
      network_(queue_, rng_.Fork("network"), options.links),
      board_(queue_, network_, rng_.Fork("board"), 0,
             [this](int node, const std::vector<worker::PeerRecord>& records) {
               At(node).OnRecords(records);
             }),
      victims_(rng_.Fork("victims")) {
  // One after the other: node 0 is the oldest, and so the first steward.
  const double gap = kStartSpread.seconds() / options_.members;
  for (int node = 0; node < options_.members; ++node) AddNode(Seconds(gap * node));
  for (const Duration join : options_.joins) AddNode(join);
  if (options_.on_look) queue_.After(options_.look_every, [this] { Look(); });
  for (size_t turn = 0; turn < options_.deaths.size(); ++turn)
    queue_.After(options_.deaths[turn], [this, turn] { KillOne(turn); });
  for (const DescentSwitch& change : options_.switches)
    queue_.After(change.at, [this, change] {
      for (DescentNode* node : Living()) node->Local(worker::ConfigChanged{change.averaging});
    });
  if (options_.plant_alone) queue_.After(Seconds(1), [this] { network_.Partition({1}); });
}

void DescentWorld::AddNode(Duration start) {
  const int node = static_cast<int>(nodes_.size());
  worker::PeerConfig config = NodeConfig("descent", node, options_.seed, start);
  config.averaging = options_.averaging;
  config.chunk_elements = options_.chunk_elements;
  const Rng own = rng_.Fork(config.worker);
  DescentWorker worker = options_.worker ? options_.worker(node) : QuadraticWorker(own);
  const size_t elements = worker.model->elements();
  DescentTrainer trainer(std::move(worker.model), worker::OverlapOf(options_.averaging),
                         worker::AveragesGradients(options_.averaging));
  if (options_.plant_second_step && node == 1) trainer.PlantSecondStep();
  index_[config.id] = node;
  DescentNode::Setup setup{.config = config,
                           .rng = own.Fork("peer"),
                           .elements = elements,
                           .tensors = options_.tensors,
                           .units = options_.units,
                           .times = {.fetch_tries = 1},  // the core asks again
                           .log = options_.log};
  nodes_.push_back(std::make_unique<DescentNode>(node, std::move(setup), std::move(trainer),
                                                 DescentPace{worker.step_time, options_.steps},
                                                 *this));
  queue_.After(start, [this, node] { At(node).Start(); });
}

DescentWorker DescentWorld::QuadraticWorker(const Rng& own) {
  Rng speed = own.Fork("speed");
  losses_.push_back(Quadratic::Draw(options_.dimensions, options_.heterogeneity, own.Fork("loss")));
  const double rate =
      options_.learning_rate * (1 + options_.rate_spread * own.Fork("rate").UniformDouble());
  return {std::make_unique<QuadraticModel>(losses_.back(), rate),
          options_.step_time * (1 + options_.speed_spread * speed.UniformDouble())};
}

void DescentWorld::Look() {
  DescentLook look;
  look.at = queue_.now() - kStartOfTime;
  look.tensor_bytes = tensor_bytes_;
  // A bounded run is over when all the living have made their steps.
  bool over = options_.steps > 0;
  for (const auto& node : nodes_) {
    const DescentTrainer& trainer = node->trainer();
    look.steps += trainer.steps();
    if (!node->alive() || !node->started()) continue;
    over = over && trainer.steps() >= options_.steps;
    look.living.push_back({node->index(), trainer.steps(), trainer.model(),
                           trainer.results() > 0 ? trainer.averaged() : trainer.model()});
    look.pair_ends += static_cast<uint64_t>(
        node->metrics().Value("crowdsurf_mix_exchanges_total", {{"outcome", "committed"}}));
  }
  options_.on_look(look);
  over_ = over;
  queue_.After(options_.look_every, [this] { Look(); });
}

std::vector<DescentNode*> DescentWorld::Living() {
  std::vector<DescentNode*> living;
  for (const auto& node : nodes_)
    if (node->alive() && node->started()) living.push_back(node.get());
  return living;
}

void DescentWorld::KillOne(size_t turn) {
  const std::vector<DescentNode*> living = Living();
  CHECK(!living.empty());
  // Drawn in any case, so that named victims do not shift the draws after them.
  const int drawn = living[victims_.Uniform(living.size())]->index();
  const int node = turn < options_.victims.size() ? options_.victims[turn] : drawn;
  At(node).Kill();
}

void DescentWorld::OnDeath(int node) {
  trace_.Add(static_cast<uint64_t>(node));
  board_.Gone(node);
  for (const DescentNode* other : Living())
    if (other->Knows(At(node).id())) TellDown(other->index(), node);
}

// A transport reports a dead peer once in a while, not for every frame.
void DescentWorld::TellDown(int to, int of) {
  Time& last = told_down_[{to, of}];
  if (!last.unset() && queue_.now() < last + kTellAgain) return;
  last = queue_.now();
  queue_.After(kDetection, [this, to, of] { At(to).OnDown(At(of).id(), DownEvidence::kRefused); });
}

// The node that a frame goes to; -1: it cannot be reached.
int DescentWorld::Reach(int from, const PeerId& to) {
  const auto at = index_.find(to);
  if (at == index_.end() || !At(from).Knows(to)) return -1;
  if (At(at->second).alive()) return at->second;
  TellDown(from, at->second);
  return -1;
}

void DescentWorld::SendBody(int from, const PeerId& to, const Bytes& body) {
  const int target = Reach(from, to);
  if (target < 0) return;
  const auto wire = std::make_shared<const Bytes>(body);
  network_.Send({from, target, Plane::kControl, body.size()}, [this, from, target, wire] {
    trace_.Add(*wire);
    At(target).OnBody(At(from).id(), wire);
  });
}

void DescentWorld::SendTensor(int from, const PeerId& to, const TensorFrame& frame) {
  const int target = Reach(from, to);
  if (target < 0) return;
  const size_t bytes = frame.parcel.wire.size();
  tensor_bytes_ += bytes;
  network_.Send({from, target, Plane::kTensor, bytes}, [this, target, frame] {
    trace_.Add(frame.parcel.wire);
    At(target).OnTensor(frame);
  });
}

void DescentWorld::Put(int from, const worker::PutRecord& record) {
  board_.Put(from, At(from).id(), record);
}

HeldValues<float> DescentWorld::FindState(int, const worker::FetchState& fetch) {
  for (const PeerId& donor : fetch.donors) {
    const auto at = index_.find(donor);
    if (at == index_.end()) continue;
    const auto held = At(at->second).Serves(fetch.averaging, fetch.root);
    if (held.average != nullptr) return held;
  }
  return {};
}

// Of the quadratics of the living; empty: the models are the caller's.
std::vector<double> DescentWorld::Optimum() {
  if (losses_.empty()) return {};
  std::vector<const Quadratic*> left;
  for (const DescentNode* node : Living())
    left.push_back(&losses_[static_cast<size_t>(node->index())]);
  return OptimumOf(left);
}

void DescentWorld::Judge(DescentResult& result) {
  const std::vector<DescentNode*> living = Living();
  const std::vector<double> optimum = Optimum();
  const auto distance = [&](const auto& model) {
    double sum = 0;
    for (size_t k = 0; k < optimum.size(); ++k)
      sum += std::pow(static_cast<double>(model[k]) - optimum[k], 2);
    return std::sqrt(sum);
  };
  // How far deaths and joins have moved the optimum.
  if (!losses_.empty()) {
    std::vector<const Quadratic*> everybody;
    for (const Quadratic& loss : losses_) everybody.push_back(&loss);
    result.shift = distance(OptimumOf(everybody));
  }
  result.distance = result.mean_square = 0;
  result.together = true;
  result.survivors = static_cast<int>(living.size());
  for (const auto& node : nodes_) {
    result.averages.push_back(node->averages());
    result.died.push_back(!node->alive());
  }
  result.losses = losses_;
  std::optional<worker::ViewHash> view;
  for (DescentNode* node : living) {
    const worker::PeerSummary summary = node->Summarize();
    // A stale result counts as infinitely far.
    const bool fresh = !node->last_result().unset() && queue_.now() - node->last_result() <= kFresh;
    const double own =
        fresh ? distance(node->trainer().averaged()) : std::numeric_limits<double>::infinity();
    result.distance = std::max(result.distance, own);
    result.mean_square += own * own / static_cast<double>(living.size());
    result.lr_scales.push_back(node->trainer().lr_scale());
    result.results += node->trainer().results();
    result.abandoned += summary.averagings_abandoned;
    const bool here = summary.view && !summary.cell.empty() &&
                      summary.members.size() == living.size() &&
                      (!view || *view == summary.view->hash);
    result.together = result.together && here;
    if (summary.view) view = summary.view->hash;
    absl::StrAppend(&result.words, " [", node->index(), ": ", worker::NameOf(summary.state),
                    " averaging ", summary.averaging.value(), " distance ", own);
    if (summary.view)
      absl::StrAppend(&result.words, " view ", summary.view->hash.brief(), " epoch ",
                      summary.view->epoch, ", ", summary.members.size(), " seated",
                      summary.cell.empty() ? ", no cell" : "");
    absl::StrAppend(&result.words, "]");
  }
}

DescentResult DescentWorld::Run() {
  const Time end = queue_.now() + options_.end;
  // max_events ends a run that goes round in circles.
  while (!over_ && queue_.done() < options_.max_events && queue_.RunOne(end)) {
  }
  DescentResult result;
  Judge(result);
  result.events = queue_.done();
  result.trace = trace_.hash();
  return result;
}

// One step an averaging, Blocking and Equal: the fixed point of descent.h needs all three.
worker::AveragingConfig DescentAveraging(worker::StrategyKind strategy, worker::GraphKind tree) {
  worker::AveragingConfig config;
  config.strategy = strategy;
  config.group_size = 4;
  config.interval_unit = worker::IntervalUnit::kSteps;
  config.interval = 1;
  config.compression = worker::WireFormat::kFloat32;
  config.overlap = worker::Overlap::kBlocking;
  config.weighting = worker::Weighting::kEqual;
  config.mixing.graph = tree;
  return config;
}

DescentOptions RelayDescent(uint64_t seed) {
  DescentOptions options;
  options.averaging.strategy = worker::StrategyKind::kRelaySum;
  options.averaging.mixing.graph = worker::GraphKind::kChain;
  options.averaging.interval = 1;
  options.members = 16;
  options.speed_spread = 0;
  options.deaths = {};
  options.joins = {};
  options.seed = seed;
  return options;
}

DescentResult RunDescent(const DescentOptions& options) { return DescentWorld(options).Run(); }

}  // namespace crowdsurf::simulator
