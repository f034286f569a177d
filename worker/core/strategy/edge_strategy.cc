#include "worker/core/strategy/edge_strategy.h"

#include <utility>

namespace crowdsurf::worker {
namespace {

// Two times the roster's time to live in a small job: by then a dead neighbour has left the view.
constexpr Duration kLagPatience = Seconds(6);

}  // namespace

Extent EdgeStrategy::PartOf(MixTag tag) const {
  // Two trees carry half of the vector each: the first half, and the rest.
  const uint64_t half = elements_ / 2;
  if (parts_ == 1) return {0, elements_};
  return tag == kFirstEdgeTag ? Extent{0, half} : Extent{half, elements_ - half};
}

void EdgeStrategy::OnView(Time, const View& view, const PeerId& self, StrategyActions& out) {
  config_ = view.config;
  interval_.SetLength(view.config);
  const Topology topology = TopologyOf(view, self, config_.mixing.graph, graph_use());
  members_ = static_cast<uint32_t>(topology.nodes.size());
  parts_ = topology.graphs.size();
  down_.clear();
  started_ = fresh_ = false;
  stage_ = Stage::kWaiting;
  sequence_ = 0;
  ReserveRegions regions;
  UseEdges use{.links = {}, .wire = wire(), .order = EdgeOrder::kLatestWins};
  for (size_t tree = 0; tree < topology.graphs.size(); ++tree) {
    const auto tag = static_cast<MixTag>(kFirstEdgeTag + tree);
    for (const uint32_t node : topology.Neighbours(tree)) {
      if (use.links.size() == kMaxExtraRegions) break;  // MaxMembersOf: not in a sound view
      use.links.push_back({.peer = topology.nodes[node],
                           .tag = tag,
                           .region = ExtraRegion(regions.extents.size()),
                           .extent = PartOf(tag)});
      regions.extents.push_back(PartOf(tag));
    }
  }
  out.push_back(std::move(regions));
  out.push_back(std::move(use));
  OnGraph(topology);
}

bool EdgeStrategy::SameCounts(MixTag tag, uint32_t a, uint32_t b) const {
  for (size_t i = 0; i < edges_->links().size(); ++i) {
    if (edges_->links()[i].tag == tag && edges_->CountAt(i, a) != edges_->CountAt(i, b))
      return false;
  }
  return true;
}

void EdgeStrategy::AskWhenDue(Time now, StrategyActions& out) {
  if (!started_ || stage_ != Stage::kWaiting || members_ < 2) return;
  if (!interval_.IsOver(now)) return out.push_back(interval_.Wake());
  stage_ = Stage::kAsked;
  out.push_back(AskSnapshot{});
}

bool EdgeStrategy::Lags() const {
  for (size_t i = 0; i < edges_->links().size(); ++i) {
    if (down_.contains(edges_->links()[i].peer)) continue;
    if (edges_->Newest(i) + config_.mixing.max_lag < sequence_) return true;
  }
  return false;
}

void EdgeStrategy::OnSnapshot(Time now, const SnapshotTaken& snapshot, StrategyActions& out) {
  if (stage_ != Stage::kAsked) return out.push_back(ReleaseSnapshot{});
  interval_.BeginAt(now, snapshot.step, snapshot.samples);
  // The first step of a view has no previous average: y stands for it.
  if (std::exchange(fresh_, false))
    out.push_back(RunKernel{MixKernel::kCopy, {0, elements_}, {inbox_, Region::kOutbox}, {}});
  // The outbox is the trainer's again before the messages have left.
  out.push_back(RunKernel{MixKernel::kCopy, {0, elements_}, {Region::kSpare, Region::kOutbox}, {}});
  ++sequence_;
  for (const EdgeLink& link : edges_->links()) {
    if (down_.contains(link.peer) || link.extent.count == 0) continue;
    out.push_back(SendEdge{link.peer, link.tag, Region::kSpare, edge_sum(), sequence_});
  }
  if (!Lags()) return Finish(now, out);
  stage_ = Stage::kLagging;
  patient_until_ = now + kLagPatience;
  out.push_back(SetStrategyTimer{patient_until_});
}

void EdgeStrategy::Finish(Time now, StrategyActions& out) {
  Average(out);
  out.push_back(DeliverMixed{inbox_});
  OnAveraged(out);
  stage_ = Stage::kWaiting;
  AskWhenDue(now, out);
}

void EdgeStrategy::OnEvent(Time now, const Event& event, StrategyActions& out) {
  if (const auto* started = std::get_if<MixingStarted>(&event)) {
    started_ = fresh_ = true;
    inbox_ = started->inbox;
    interval_.Begin(now);
    AskWhenDue(now, out);
  } else if (const auto* pace = std::get_if<PaceTold>(&event)) {
    interval_.OnPace(pace->step, pace->samples);
    AskWhenDue(now, out);
  } else if (const auto* snapshot = std::get_if<SnapshotTaken>(&event)) {
    OnSnapshot(now, *snapshot, out);
  } else if (std::holds_alternative<SnapshotRefused>(event)) {
    stage_ = Stage::kWaiting;
    interval_.Begin(now);
    AskWhenDue(now, out);
  } else if (const auto* counted = std::get_if<AgesCounted>(&event)) {
    OnCounted(*counted, out);
  } else if (const auto* down = std::get_if<PeerDown>(&event)) {
    // Dead: it takes no messages, and is not waited for.
    down_.insert(down->peer);
    if (stage_ == Stage::kLagging && !Lags()) return Finish(now, out);
    AskWhenDue(now, out);
  } else if (std::holds_alternative<EdgeArrived>(event)) {
    if (stage_ == Stage::kLagging && !Lags()) Finish(now, out);
  } else if (std::holds_alternative<StrategyTimer>(event)) {
    if (stage_ == Stage::kLagging && now >= patient_until_) return Finish(now, out);
    AskWhenDue(now, out);
  }
}

}  // namespace crowdsurf::worker
