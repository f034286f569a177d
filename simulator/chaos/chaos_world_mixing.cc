// What a world does for jobs whose members' values differ, and sees of them for their checkers:
// strategies on graphs, and `rounds: One` (chaos_world.h).
#include <algorithm>

#include "simulator/chaos/chaos_world.h"

namespace crowdsurf::simulator {
namespace {

// Places of a worker in pairs for its neighbours' exchanges, or edges of a step: ends that the
// other side may not have heard of when the run is over.
constexpr uint64_t kPlaces = 2;

}  // namespace

// A worker that starts then has the configuration of its time.
void ChaosWorld::SetStrategy(Duration start, worker::AveragingConfig& config) const {
  const GraphJob& graph = *scenario_.graph;
  const auto switched =
      static_cast<uint64_t>(std::count_if(graph.switches.begin(), graph.switches.end(),
                                          [&](const Duration at) { return at <= start; }));
  config.mixing = graph.config.mixing;
  config.generation = switched;
  if (graph.begins == (switched % 2 == 0)) config.strategy = graph.config.strategy;
}

void ChaosWorld::ScheduleSwitches() {
  if (!scenario_.graph) return;
  for (const Duration at : scenario_.graph->switches)
    queue_.After(at, [this, at] {
      for (PeerNode* node : Living()) {
        worker::AveragingConfig config = node->config().averaging;
        config.strategy = worker::StrategyKind::kMoshpit;
        SetStrategy(at, config);
        node->Local(worker::ConfigChanged{config});
      }
    });
}

void ChaosWorld::OnCounted(int node, const worker::JobCounted& counted, OriginId behind) {
  if (scenario_.graph) {
    peer_checkers_.OnCounted(node, counted, behind);
    mixing_checkers_.OnCounted();
  } else {
    // A newcomer gives up what it trained before it took the others' state. A member that a round
    // has lost may have to give up what it cannot ask for, and one whose snapshot was refused may
    // count late.
    const bool whole = scenario_.mild && scenario_.deaths.empty() && scenario_.leaves.empty() &&
                       scenario_.joins.empty() && scenario_.trainer.refuse == 0;
    turn_checkers_.OnCounted(node, counted.job_samples, Made(), whole);
  }
  trace_.Add(counted.averaging.value());
  trace_.Add(static_cast<uint64_t>(counted.job_samples));
  if (!healed_) return;
  if (const auto summary = At(node).Summarize(); summary.view)
    counted_after_heal_[{summary.view->hash, counted.averaging}][node] = counted.job_samples;
}

void ChaosWorld::OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own) {
  peer_checkers_.OnGroupMean(node, mean);
  turn_checkers_.OnGroupMean(node, mean, own);
  SeeMixed(node);
}

// By all trainers, those of dead nodes up to their death.
double ChaosWorld::Made() {
  double made = 0;
  for (const auto& node : nodes_) {
    const auto dead = made_at_death_.find(node->index());
    made += dead == made_at_death_.end() ? node->Made() : dead->second;
  }
  return made;
}

void ChaosWorld::OnMixed(int node, const std::vector<float>& result) {
  mixing_checkers_.OnResult(node, result);
  SeeMixed(node);
}

void ChaosWorld::SeeMixed(int node) {
  if (!healed_) return;
  if (const auto summary = At(node).Summarize(); summary.view)
    mixed_after_heal_[summary.view->hash].insert(node);
}

void ChaosWorld::CheckMixing() {
  for (const PeerNode* node : Living()) {
    const MetricRegistry& metrics = node->metrics();
    const double one_sided =
        metrics.Value("crowdsurf_mix_exchanges_total", {{"outcome", "one_sided"}}) +
        metrics.Value("crowdsurf_mix_one_sided_total");
    mixing_checkers_.CheckEnd(node->index(), static_cast<uint64_t>(one_sided), kPlaces);
  }
  report_.mixing = mixing_checkers_.totals();
}

}  // namespace crowdsurf::simulator
