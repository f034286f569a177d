#include "worker/core/strategy/relay_sum.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf::worker {

void RelaySum::OnGraph(const Topology& topology) {
  lr_target_ = 1;
  if (config().mixing.lr_scale) {
    // Both trees of a pair are mirror images: their mean delays are equal.
    lr_target_ = 1 + MeanRelayDelay(topology.graphs[0]);
  }
  // The scale moves to its target while the tree fills, in as many steps as it has hops.
  const double steps = std::max<double>(1, Diameter(topology.graphs[0]));
  lr_step_ = (lr_target_ - lr_scale_) / steps;
}

void RelaySum::Average(StrategyActions& out) {
  const auto& links = edges().links();
  MixTag last = kFirstEdgeTag;
  for (const EdgeLink& link : links) last = std::max(last, link.tag);
  for (MixTag tag = kFirstEdgeTag; tag <= last; ++tag) {
    ForEachRun(tag, [&](const Extent& range, uint32_t chunk) {
      // x = (y + (n - C) x + sum of the edges) / n
      std::vector<Region> regions{inbox(), Region::kOutbox, inbox()};
      std::vector<double> scalars{1, 0};
      uint32_t counted = 1;
      for (size_t i = 0; i < links.size(); ++i) {
        const uint32_t count = links[i].tag == tag ? edges().CountAt(i, chunk) : 0;
        if (count == 0) continue;
        counted += count;
        regions.push_back(links[i].region);
        scalars.push_back(1);
      }
      // Counts of edges heard at different times can overlap for a moment; never over n.
      scalars[1] = counted < members() ? members() - counted : 0;
      scalars.push_back(1.0 / std::max(members(), counted));
      out.push_back(RunKernel{MixKernel::kAverage, range, std::move(regions), std::move(scalars)});
    });
  }
}

void RelaySum::OnAveraged(StrategyActions& out) {
  if (lr_scale_ == lr_target_) return;
  lr_scale_ += lr_step_;
  // Sums of steps are rounded: the last one ends on the target.
  if (std::abs(lr_target_ - lr_scale_) < std::abs(lr_step_) / 2) lr_scale_ = lr_target_;
  out.push_back(SetLrScale{lr_scale_});
}

}  // namespace crowdsurf::worker
