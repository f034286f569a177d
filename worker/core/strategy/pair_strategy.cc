#include "worker/core/strategy/pair_strategy.h"

#include <algorithm>

namespace crowdsurf::worker {

void PairStrategy::OnView(Time, const View& view, const PeerId& self, StrategyActions& out) {
  config_ = view.config;
  const Topology topology = TopologyOf(view, self, config_.mixing.graph, GraphUse::kGraph);
  neighbours_.clear();
  for (const uint32_t node : topology.Neighbours(0)) neighbours_.push_back(topology.nodes[node]);
  down_.clear();
  started_ = fresh_ = proposing_ = prepared_ = false;
  next_ = Time::Infinite();
  OnGraph(topology);
  out.push_back(
      ReserveRegions{std::vector<Extent>(static_cast<size_t>(needs().extra_regions), all())});
  out.push_back(UsePairs{receive()});
}

void PairStrategy::DrawNext(Time now, StrategyActions& out) {
  if (!started_ || !pace_ || neighbours_.empty()) return;
  const auto mean = MeanInterval(*pace_);
  if (!mean) return;
  // An exchange has two ends, so each proposes half as often.
  next_ = now + Seconds(rng_.Exponential(2 * *mean));
  out.push_back(SetStrategyTimer{next_});
}

void PairStrategy::OnTick(Time now, StrategyActions& out) {
  // Woken before its time.
  if (now < next_) return out.push_back(SetStrategyTimer{next_});
  if (!proposing_ && !prepared_) {
    const PeerId& partner = neighbours_[rng_.Uniform(neighbours_.size())];
    // A dead partner costs the tick: the next draw may be another.
    if (!down_.contains(partner)) {
      proposing_ = true;
      out.push_back(ProposePair{partner});
    }
  }
  DrawNext(now, out);
}

void PairStrategy::OnEvent(Time now, const Event& event, StrategyActions& out) {
  if (const auto* started = std::get_if<MixingStarted>(&event)) {
    started_ = fresh_ = true;
    inbox_ = started->inbox;
    DrawNext(now, out);
  } else if (const auto* pace = std::get_if<PaceTold>(&event)) {
    pace_ = *pace;
    // The first report of the trainer's pace starts the clock.
    if (next_.infinite()) DrawNext(now, out);
  } else if (std::holds_alternative<StrategyTimer>(event)) {
    if (!next_.infinite()) OnTick(now, out);
  } else if (std::holds_alternative<PairAgreed>(event)) {
    proposing_ = true;
    out.push_back(AskSnapshot{});
  } else if (std::holds_alternative<SnapshotTaken>(event)) {
    prepared_ = true;
    const Region mine = Prepare(now, out);
    out.push_back(ExchangePair{{}, mine});
  } else if (const auto* done = std::get_if<PairDone>(&event)) {
    proposing_ = false;
    // Without a snapshot there is nothing to commit or to give back.
    if (!std::exchange(prepared_, false)) return;
    done->committed ? Commit(now, out) : Abandon(now, out);
  } else if (const auto* down = std::get_if<PeerDown>(&event)) {
    down_.insert(down->peer);
  }
}

}  // namespace crowdsurf::worker
