#include "worker/core/strategy/power_gossip.h"

#include <algorithm>

#include "worker/core/power/power_frames.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

// The weight of an edge is Metropolis': both ends derive the same from the view.
UsePowerEdges PowerGossip::EdgesOf(const Topology& topology) const {
  UsePowerEdges use{
      .self = topology.nodes[topology.self], .ends = {}, .frames = frames_, .wire = wire_};
  const auto neighbours = topology.graphs[0].Neighbours();
  const size_t degree = neighbours[topology.self].size();
  for (const uint32_t node : neighbours[topology.self]) {
    if (use.ends.size() == kMaxExtraRegions) break;  // MaxMembersOf: not in a sound view
    const size_t most = std::max(degree, neighbours[node].size());
    use.ends.push_back({.peer = topology.nodes[node],
                        .region = ExtraRegion(use.ends.size()),
                        .weight = 1.0 / static_cast<double>(1 + most)});
  }
  return use;
}

void PowerGossip::OnView(Time, const View& view, const PeerId& self, StrategyActions& out) {
  const MixingConfig& mixing = view.config.mixing;
  iterations_ = mixing.iterations;
  interval_.SetLength(view.config);
  wire_ = view.config.compression;
  const auto layout = std::make_shared<const PowerLayout>(tensors_, elements_, mixing.rank);
  frames_ = std::make_shared<const PowerFrames>(layout, mixing.dense_every);
  UsePowerEdges use = EdgesOf(TopologyOf(view, self, mixing.graph, GraphUse::kGraph));
  alone_ = use.ends.empty();
  started_ = false;
  stage_ = Stage::kWaiting;
  step_ = 0;
  out.push_back(
      // An edge's region holds frames, no part of the vector.
      ReserveRegions{std::vector<Extent>(use.ends.size(), Extent{0, frames_->RegionSize()})});
  out.push_back(PowerAction{std::move(use)});
}

void PowerGossip::AskWhenDue(Time now, StrategyActions& out) {
  if (!started_ || alone_ || stage_ != Stage::kWaiting) return;
  if (!interval_.IsOver(now)) return out.push_back(interval_.Wake());
  stage_ = Stage::kAsked;
  out.push_back(AskSnapshot{});
}

void PowerGossip::OnSnapshot(Time now, const SnapshotTaken& snapshot, StrategyActions& out) {
  if (stage_ != Stage::kAsked) return out.push_back(ReleaseSnapshot{});
  interval_.BeginAt(now, snapshot.step, snapshot.samples);
  // The steps move a copy: the outbox stays as what the trainer's change is counted from.
  out.push_back(RunKernel{MixKernel::kCopy, {0, elements_}, {inbox_, Region::kOutbox}, {}});
  stage_ = Stage::kExchanging;
  iteration_ = 0;
  BeginStep(out);
}

void PowerGossip::BeginStep(StrategyActions& out) {
  ++step_;
  ++iteration_;
  out.push_back(PowerAction{ProjectPower{step_, inbox_}});
}

void PowerGossip::EndStep(Time now, const FramesHere& here, StrategyActions& out) {
  out.push_back(PowerAction{ApplyPower{step_, inbox_, here.peers}});
  if (iteration_ < iterations_ && !here.last) return BeginStep(out);
  out.push_back(DeliverMixed{inbox_});
  stage_ = Stage::kWaiting;
  if (here.last) return;
  AskWhenDue(now, out);
}

void PowerGossip::OnEvent(Time now, const Event& event, StrategyActions& out) {
  if (const auto* started = std::get_if<MixingStarted>(&event)) {
    started_ = true;
    inbox_ = started->inbox;
    interval_.Begin(now);
  } else if (const auto* pace = std::get_if<PaceTold>(&event)) {
    interval_.OnPace(pace->step, pace->samples);
  } else if (const auto* snapshot = std::get_if<SnapshotTaken>(&event)) {
    return OnSnapshot(now, *snapshot, out);
  } else if (std::holds_alternative<SnapshotRefused>(event)) {
    stage_ = Stage::kWaiting;
    interval_.Begin(now);
  } else if (const auto* here = std::get_if<FramesHere>(&event)) {
    return EndStep(now, *here, out);
  }
  AskWhenDue(now, out);
}

}  // namespace crowdsurf::worker
