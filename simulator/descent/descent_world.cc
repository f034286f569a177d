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
  const double gap = kStartSpread.seconds() / options_.members;
  for (int node = 0; node < options_.members; ++node) AddNode(Seconds(gap * node));
  for (const Duration join : options_.joins) AddNode(join);
  for (size_t turn = 0; turn < options_.deaths.size(); ++turn)
    queue_.After(options_.deaths[turn], [this, turn] { KillOne(turn); });
  if (options_.plant_alone) queue_.After(Seconds(1), [this] { network_.Partition({1}); });
}

void DescentWorld::AddNode(Duration start) {
  const int node = static_cast<int>(nodes_.size());
  worker::PeerConfig config = NodeConfig("descent", node, options_.seed, start);
  config.averaging = options_.averaging;
  config.chunk_elements = 4;  // several chunks a vector
  const Rng own = rng_.Fork(config.worker);
  Rng speed = own.Fork("speed");
  DescentTrainer trainer(
      Quadratic::Draw(options_.dimensions, options_.heterogeneity, own.Fork("loss")),
      options_.learning_rate, worker::OverlapOf(options_.averaging));
  if (options_.plant_second_step && node == 1) trainer.PlantSecondStep();
  index_[config.id] = node;
  DescentNode::Setup setup{.config = config,
                           .rng = own.Fork("peer"),
                           .elements = options_.dimensions,
                           .tensors = options_.tensors,
                           .times = {.fetch_tries = 1},  // the core asks again
                           .log = options_.log};
  nodes_.push_back(std::make_unique<DescentNode>(
      node, std::move(setup), std::move(trainer),
      options_.step_time * (1 + options_.speed_spread * speed.UniformDouble()), *this));
  queue_.After(start, [this, node] { At(node).Start(); });
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
  network_.Send(from, target, Plane::kControl, [this, from, target, wire] {
    trace_.Add(*wire);
    At(target).OnBody(At(from).id(), wire);
  });
}

void DescentWorld::SendTensor(int from, const PeerId& to, const TensorFrame& frame) {
  const int target = Reach(from, to);
  if (target < 0) return;
  network_.Send(from, target, Plane::kTensor, [this, target, frame] {
    trace_.Add(frame.parcel.wire);
    At(target).OnTensor(frame);
  });
}

void DescentWorld::Put(int from, const worker::PutRecord& record) {
  board_.Put(from, At(from).id(), record);
}

const RegionBuffer* DescentWorld::FindState(int, const worker::FetchState& fetch) {
  for (const PeerId& donor : fetch.donors) {
    const auto at = index_.find(donor);
    if (at == index_.end()) continue;
    if (const auto* found = At(at->second).Serves(fetch.averaging, fetch.root)) return found;
  }
  return nullptr;
}

void DescentWorld::Judge(DescentResult& result) {
  const std::vector<DescentNode*> living = Living();
  std::vector<const Quadratic*> everybody, left;
  for (const auto& node : nodes_) everybody.push_back(&node->trainer().loss());
  for (const DescentNode* node : living) left.push_back(&node->trainer().loss());
  const std::vector<double> optimum = OptimumOf(left), before = OptimumOf(everybody);
  const auto distance = [&](const auto& model) {
    double sum = 0;
    for (size_t k = 0; k < optimum.size(); ++k)
      sum += std::pow(static_cast<double>(model[k]) - optimum[k], 2);
    return std::sqrt(sum);
  };
  result.shift = distance(before);
  result.distance = 0;
  result.together = true;
  result.survivors = static_cast<int>(living.size());
  std::optional<worker::ViewHash> view;
  for (DescentNode* node : living) {
    const worker::PeerSummary summary = node->Summarize();
    const bool fresh = !node->last_result().unset() && queue_.now() - node->last_result() <= kFresh;
    const double own =
        fresh ? distance(node->trainer().averaged()) : std::numeric_limits<double>::infinity();
    result.distance = std::max(result.distance, own);
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
  while (queue_.done() < kMaxEvents && queue_.RunOne(end)) {
  }
  DescentResult result;
  Judge(result);
  result.events = queue_.done();
  result.trace = trace_.hash();
  return result;
}

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

DescentResult RunDescent(const DescentOptions& options) { return DescentWorld(options).Run(); }

}  // namespace crowdsurf::simulator
