// Mix kernels: the arithmetic of the strategies on graphs, over spans.
//
// Templates on the scalar: float in production, double in paper tests. The host runs them when the
// core says so (mix.h), on any thread that owns the regions. O(elements), nothing is allocated.
// Source: a2cid2.h and relay_sum.h, whose functions they call.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "worker/core/strategy/a2cid2.h"
#include "worker/core/vector/change.h"
#include "worker/core/vector/mix.h"
#include "worker/core/vector/outer_step.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

// theirs[i] = theirs[i] - mine[i], with mine as it would travel, and then as the difference
// travels. So equal models have none in any format, and both ends go by the same rounded values.
template <class Scalar>
void DifferenceAsSent(WireFormat format, std::span<const Scalar> mine, std::span<Scalar> theirs) {
  std::array<Scalar, kWireBlock> rounded;
  for (size_t at = 0; at < mine.size(); at += kWireBlock) {
    const size_t count = std::min(kWireBlock, mine.size() - at);
    const std::span<Scalar> difference = theirs.subspan(at, count);
    RoundAsWire(format, mine.subspan(at, count), std::span(rounded).first(count));
    for (size_t i = 0; i < count; ++i) difference[i] -= rounded[i];
    RoundAsWire(format, std::span<const Scalar>(difference), difference);
  }
}

// out[i] = scale * sum of weights[k] * inputs[k][i], added in order. `out` may be an input.
template <class Scalar>
void WeightedSum(std::span<const std::span<const Scalar>> inputs, std::span<const double> weights,
                 double scale, std::span<Scalar> out) {
  CHECK_EQ(inputs.size(), weights.size());
  for (size_t i = 0; i < out.size(); ++i) {
    Scalar sum = 0;
    for (size_t k = 0; k < inputs.size(); ++k) {
      sum += static_cast<Scalar>(weights[k]) * inputs[k][i];
    }
    out[i] = sum * static_cast<Scalar>(scale);
  }
}

// Regions of a kernel: at most what comes out, the snapshot, the average before, and each edge's.
inline constexpr size_t kMaxKernelRegions = kMaxExtraRegions + 3;

// Pre: `regions` are equally long spans of one range, at most kMaxKernelRegions; `scalars` as
// MixKernel says.
template <class Scalar>
void RunMixKernel(MixKernel kernel, std::span<const std::span<Scalar>> regions,
                  std::span<const double> scalars) {
  switch (kernel) {
    case MixKernel::kCopy:
      CHECK_EQ(regions.size(), 2u);
      std::copy(regions[1].begin(), regions[1].end(), regions[0].begin());
      return;
    case MixKernel::kAddChange:
      CHECK_EQ(regions.size(), 3u);
      for (size_t i = 0; i < regions[0].size(); ++i) regions[0][i] += regions[1][i] - regions[2][i];
      return;
    case MixKernel::kMomentum:
      CHECK_EQ(regions.size(), 2u);
      AcidMix(AcidMixing{1 - scalars[0], scalars[0]}, regions[0], regions[1]);
      return;
    case MixKernel::kDifference:
      CHECK_EQ(regions.size(), 2u);
      DifferenceAsSent(static_cast<WireFormat>(static_cast<int>(scalars[0])),
                       std::span<const Scalar>(regions[1]), regions[0]);
      return;
    case MixKernel::kMoveTowards: {
      CHECK_EQ(regions.size(), 2u);
      const Scalar weight = static_cast<Scalar>(scalars[0]);
      for (size_t i = 0; i < regions[0].size(); ++i) regions[0][i] += weight * regions[1][i];
      return;
    }
    case MixKernel::kAverage: {
      CHECK_GE(regions.size(), 2u);
      CHECK_EQ(scalars.size(), regions.size());
      std::array<std::span<const Scalar>, kMaxKernelRegions - 1> inputs;
      const size_t count = regions.size() - 1;
      CHECK_LE(count, inputs.size());
      for (size_t k = 0; k < count; ++k) inputs[k] = regions[k + 1];
      WeightedSum<Scalar>(std::span(inputs).first(count), scalars.first(count), scalars[count],
                          regions[0]);
      return;
    }
    case MixKernel::kOuterStep:
    case MixKernel::kOuterBegin: {
      CHECK(regions.size() == 2 || regions.size() == 3);
      const auto velocity = regions.size() == 3 ? regions[2] : std::span<Scalar>();
      const std::span<const Scalar> mean = regions[1];
      if (kernel == MixKernel::kOuterBegin) return BeginOuter(mean, regions[0], velocity);
      return StepOuter(OuterRule::FromScalars(scalars), mean, regions[0], velocity);
    }
    case MixKernel::kMoveBase:
      CHECK_EQ(regions.size(), 3u);
      return MoveBase<Scalar>(regions[1], regions[0], regions[2]);
    case MixKernel::kOuterChange: {
      CHECK(regions.size() == 2 || regions.size() == 3);
      const auto velocity = regions.size() == 3 ? regions[2] : std::span<Scalar>();
      if (!scalars.empty())
        return StepOuterBy<Scalar>(OuterRule::FromScalars(scalars), regions[1], regions[0],
                                   velocity);
      for (size_t i = 0; i < regions[0].size(); ++i) regions[0][i] += regions[1][i];
      std::fill(velocity.begin(), velocity.end(), Scalar{0});
      return;
    }
    case MixKernel::kKeepRest:
      CHECK_EQ(regions.size(), 3u);
      return KeepRest<Scalar>(scalars[0] != 0 ? RestBefore::kKept : RestBefore::kVoid, regions[1],
                              regions[2], regions[0]);
  }
}

}  // namespace crowdsurf::worker
