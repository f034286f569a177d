#include "worker/core/strategy/pair_strategy.h"

#include <algorithm>

namespace crowdsurf::worker {
namespace {

// Exchanges rarer than one in so many steps begin with a snapshot, unless the last is so few steps
// old. Halved, the usual exchange a step waits for its trainer; doubled, one in seven steps works
// with what is seven steps old.
constexpr double kRareSteps = 4;
constexpr double kFreshSteps = 2;
// Latencies follow within some eight exchanges.
constexpr double kLatencyGain = 0.125;

}  // namespace

void PairStrategy::OnView(Time, const View& view, const PeerId& self, StrategyActions& out) {
  config_ = view.config;
  const Topology topology = TopologyOf(view, self, config_.mixing.graph, GraphUse::kGraph);
  neighbours_.clear();
  for (const uint32_t node : topology.Neighbours(0)) neighbours_.push_back(topology.nodes[node]);
  down_.clear();
  begun_ = asked_ = delivers_ = false;
  latency_ = lateness_ = 0;
  next_ = Time::Infinite();
  OnGraph(topology);
  // One exchange each way at a time carries one a step with messages of some .2 steps, and two do
  // four a step.
  const size_t slots = exchanges_a_step() > 1 ? 2 : 1;
  UsePairs use{.model = kModel, .own = {}, .served = {}, .neighbours = neighbours_};
  for (size_t i = 0; i < slots; ++i) {
    use.own.push_back(ExtraRegion(models() + i));
    use.served.push_back(ExtraRegion(models() + slots + i));
  }
  out.push_back(ReserveRegions{std::vector<Extent>(models() + 2 * slots, Extent{0, elements_})});
  out.push_back(std::move(use));
}

void PairStrategy::DrawNext(Time now, StrategyActions& out) {
  if (!begun_ || !pace_) return;
  const auto wanted = MeanInterval(*pace_);
  if (!wanted) return;
  lateness_ = latency_ / *wanted;
  const double slower = std::max(1.0, lateness_);
  out.push_back(TellPairRate{1 / slower, restraint()});
  // An exchange has two ends, so each begins half as often.
  next_ = now + Seconds(rng_.Exponential(2 * *wanted * slower));
  out.push_back(SetStrategyTimer{next_});
}

void PairStrategy::OnTick(Time now, StrategyActions& out) {
  // Woken before its time.
  if (now < next_) return out.push_back(SetStrategyTimer{next_});
  const PeerId& partner = neighbours_[rng_.Uniform(neighbours_.size())];
  // A dead partner costs the tick: the next draw may be another.
  if (!down_.contains(partner)) {
    out.push_back(PushPair{partner});
    WhenFresh(now, out);
  }
  DrawNext(now, out);
}

// What waits is exchanged, at once or with the next snapshot.
void PairStrategy::WhenFresh(Time now, StrategyActions& out) {
  const double step = pace_ ? pace_->step_seconds : 0;
  const auto mean = pace_ ? MeanInterval(*pace_) : std::nullopt;
  const bool rare = mean && *mean > kRareSteps * step;
  if (rare && now - fresh_at_ > Seconds(kFreshSteps * step)) return Ask(out);
  MoveTo(now, out);
  out.push_back(ExchangePairs{});
}

void PairStrategy::Ask(StrategyActions& out) {
  // What a snapshot's own delivery will have.
  if (delivers_) return;
  if (!std::exchange(asked_, true)) out.push_back(AskSnapshot{});
}

void PairStrategy::OnSnapshot(Time now, StrategyActions& out) {
  asked_ = false;
  delivers_ = true;
  const bool begins = !std::exchange(begun_, true);
  for (size_t i = 0; i < models(); ++i) {
    const Region model = ExtraRegion(i);
    // The view began at consensus, so all models begin as one.
    if (begins)
      Run(MixKernel::kCopy, {model, Region::kOutbox}, {}, out);
    else
      Run(MixKernel::kAddChange, {model, Region::kOutbox, inbox_}, {}, out);
  }
  fresh_at_ = now;
  if (begins) {
    out.push_back(OpenPairs{});
    DrawNext(now, out);
  }
  MoveTo(now, out);
  out.push_back(ExchangePairs{});
  Run(MixKernel::kCopy, {inbox_, kModel}, {}, out);
  out.push_back(DeliverMixed{inbox_});
}

void PairStrategy::Exchange(Time now, const Difference& difference, StrategyActions& out) {
  MoveTo(now, out);
  Run(MixKernel::kMoveTowards, {kModel, difference.region}, {0.5 * difference.sign}, out);
  Ask(out);
}

void PairStrategy::OnReplied(Time now, const PairReplied& replied, StrategyActions& out) {
  // The difference is the other end's move; ours is the opposite.
  Exchange(now, {replied.region, -1, replied.restraint}, out);
  if (replied.took <= Duration()) return;
  const double one_way = replied.took.seconds() / 2;
  latency_ = latency_ == 0 ? one_way : latency_ + kLatencyGain * (one_way - latency_);
}

void PairStrategy::OnEvent(Time now, const Event& event, StrategyActions& out) {
  // PairArrived comes while ExchangePairs of the event before is carried out.
  if (!std::holds_alternative<PairArrived>(event)) delivers_ = false;
  if (const auto* started = std::get_if<MixingStarted>(&event)) {
    inbox_ = started->inbox;
    if (!neighbours_.empty()) Ask(out);
  } else if (const auto* pace = std::get_if<PaceTold>(&event)) {
    pace_ = *pace;
    // The first report of the trainer's pace starts the clock.
    if (next_.infinite()) DrawNext(now, out);
  } else if (std::holds_alternative<StrategyTimer>(event)) {
    if (!next_.infinite()) OnTick(now, out);
  } else if (std::holds_alternative<SnapshotTaken>(event)) {
    OnSnapshot(now, out);
  } else if (std::holds_alternative<SnapshotRefused>(event)) {
    // A trainer with a NaN: what x had is exchanged without it, and it is asked again.
    asked_ = false;
    if (begun_)
      out.push_back(ExchangePairs{});
    else
      Ask(out);
  } else if (std::holds_alternative<PairWaits>(event)) {
    WhenFresh(now, out);
  } else if (const auto* arrived = std::get_if<PairArrived>(&event)) {
    MoveTo(now, out);
    Run(MixKernel::kDifference, {arrived->region, kModel},
        {static_cast<double>(config_.compression)}, out);
    Exchange(now, {arrived->region, 1, arrived->restraint}, out);
  } else if (const auto* replied = std::get_if<PairReplied>(&event)) {
    OnReplied(now, *replied, out);
  } else if (const auto* down = std::get_if<PeerDown>(&event)) {
    down_.insert(down->peer);
  }
}

}  // namespace crowdsurf::worker
