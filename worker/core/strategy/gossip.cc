#include "worker/core/strategy/gossip.h"

#include <algorithm>

namespace crowdsurf::worker {

// ---- pairs -------------------------------------------------------------------------------------

std::optional<double> GossipPairs::MeanInterval(const PaceTold& pace) const {
  const double interval = config().interval;
  switch (config().interval_unit) {
    case IntervalUnit::kSeconds:
      return interval;
    case IntervalUnit::kSteps:
      if (pace.step_seconds > 0) return interval * pace.step_seconds;
      break;
    case IntervalUnit::kSamples:
      if (pace.sample_seconds > 0) return interval * pace.sample_seconds;
      break;
  }
  return std::nullopt;
}

double GossipPairs::exchanges_a_step() const {
  return config().interval_unit == IntervalUnit::kSteps ? 1 / config().interval : 1;
}

// ---- neighbours --------------------------------------------------------------------------------

void GossipNeighbours::OnGraph(const Topology& topology) {
  const auto neighbours = topology.graphs[0].Neighbours();
  weights_.clear();
  for (const uint32_t node : neighbours[topology.self]) {
    // Metropolis: W_ij = 1 / (1 + the larger degree), equal at both ends.
    const size_t degree = std::max(neighbours[topology.self].size(), neighbours[node].size());
    weights_.push_back(1.0 / (1.0 + static_cast<double>(degree)));
  }
}

void GossipNeighbours::Average(StrategyActions& out) {
  ForEachRun(kFirstEdgeTag, [&](const Extent& range, uint32_t chunk) {
    std::vector<Region> regions{inbox(), Region::kOutbox};
    std::vector<double> scalars{1.0};
    for (size_t i = 0; i < edges().links().size(); ++i) {
      // An edge that has brought nothing yet leaves its weight with the own model.
      if (edges().CountAt(i, chunk) == 0) continue;
      scalars[0] -= weights_[i];
      regions.push_back(edges().links()[i].region);
      scalars.push_back(weights_[i]);
    }
    scalars.push_back(1.0);
    out.push_back(RunKernel{MixKernel::kAverage, range, std::move(regions), std::move(scalars)});
  });
}

}  // namespace crowdsurf::worker
