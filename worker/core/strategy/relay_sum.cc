#include "worker/core/strategy/relay_sum.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf::worker {
namespace {

// A share follows its latest values over some ten steps.
constexpr double kAgeGain = 1.0 / 8;
// A measured factor this near to the agreed one, relative to that, changes nothing: each change
// reaches the members at different steps, and moves the models for a while.
constexpr double kNearFactor = 0.1;

}  // namespace

void RelaySum::OnGraph(const Topology& topology) {
  // Both trees of a pair are mirror images: their distances are equal.
  const double nodes = topology.graphs[0].nodes;
  max_scale_ = 1 + MeanRelayDelay(topology.graphs[0]) + (nodes - 1) / nodes;
  diameter_ = std::max<double>(1, Diameter(topology.graphs[0]));
}

void RelaySum::Average(StrategyActions& out) {
  const auto& links = edges().links();
  MixTag last = kFirstEdgeTag;
  for (const EdgeLink& link : links) last = std::max(last, link.tag);
  whole_ = true;
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
      whole_ = whole_ && counted == members();
      out.push_back(RunKernel{MixKernel::kAverage, range, std::move(regions), std::move(scalars)});
    });
  }
}

// Of the mean over all pairs of members, in the average that was just made: each chunk counts by
// its elements.
double RelaySum::ShareOfAge() const {
  double lag = 0;
  for (size_t i = 0; i < edges().links().size(); ++i) {
    const Extent& extent = edges().links()[i].extent;
    for (uint32_t chunk = 0; chunk < edges().ChunksOf(extent); ++chunk)
      lag += static_cast<double>(edges().LagAt(i, chunk, sequence())) *
             static_cast<double>(edges().RangeOf(extent, chunk).count);
  }
  const double n = members();
  return lag / (n * n * static_cast<double>(std::max<uint64_t>(1, elements())));
}

ModelAge RelaySum::age() const {
  if (!config().mixing.lr_scale) return {};
  ModelAge age{.agreed = agreed_};
  if (!age_) return age;
  age.steps = std::clamp(*age_, -kMaxModelAge / kMaxNodes, kMaxModelAge / kMaxNodes);
  age.members = 1;
  return age;
}

void RelaySum::OnCounted(const AgesCounted& counted, StrategyActions&) {
  double scale = counted.total.agreed.scale;
  if (counted.total.members == members()) {
    const double measured = 1 + counted.total.steps;
    if (scale == 0 || std::abs(measured - scale) > kNearFactor * scale) scale = measured;
  }
  if (scale != 0) scale = std::clamp(scale, 1.0, max_scale_);
  agreed_ = {.averaging = counted.averaging, .scale = scale};
  AimAt(scale == 0 ? 1 : scale);
}

void RelaySum::AimAt(double scale) {
  if (scale == lr_target_) return;
  lr_target_ = scale;
  // The scale moves to its target while the tree fills, in as many steps as it has hops.
  lr_step_ = (lr_target_ - lr_scale_) / diameter_;
}

void RelaySum::OnAveraged(StrategyActions& out) {
  if (whole_ && config().mixing.lr_scale) {
    const double share = ShareOfAge();
    age_ = age_ ? *age_ + kAgeGain * (share - *age_) : share;
  }
  if (lr_scale_ == lr_target_) return;
  lr_scale_ += lr_step_;
  // Sums of steps are rounded: the last one ends on the target.
  if (std::abs(lr_target_ - lr_scale_) < std::abs(lr_step_) / 2) lr_scale_ = lr_target_;
  out.push_back(SetLrScale{lr_scale_});
}

}  // namespace crowdsurf::worker
