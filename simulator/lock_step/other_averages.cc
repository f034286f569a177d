#include "simulator/lock_step/other_averages.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace crowdsurf::simulator {
namespace {

// All of these become their mean.
void Average(std::vector<double>& values, const std::vector<size_t>& peers, size_t begin,
             size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[peers[i]];
  for (size_t i = begin; i < end; ++i) values[peers[i]] = sum / static_cast<double>(end - begin);
}

void MixRing(std::vector<double>& values, const std::vector<bool>& absent) {
  const std::vector<double> before = values;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t next = (i + 1) % values.size();
    if (absent[i] || absent[next]) continue;
    // Both ends of an edge take the same, so the mean stays.
    const double third = (before[next] - before[i]) / 3;
    values[i] += third;
    values[next] -= third;
  }
}

double VarianceOf(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return sum / n;
}

}  // namespace

size_t RoundsOf(OtherAverage kind, const AveragingOptions& options, uint64_t seed) {
  CHECK_GE(options.peers, 3U);
  Rng rng(seed);
  std::vector<double> values(options.peers);
  for (double& v : values) v = rng.Normal();
  for (size_t round = 1; round <= options.max_rounds; ++round) {
    std::vector<bool> absent(options.peers);
    std::vector<size_t> present;
    for (size_t i = 0; i < options.peers; ++i) {
      absent[i] = rng.Bernoulli(options.failure_rate);
      if (!absent[i]) present.push_back(i);
    }
    switch (kind) {
      case OtherAverage::kAllReduce:
        if (present.size() == options.peers) Average(values, present, 0, present.size());
        break;
      case OtherAverage::kRing:
        MixRing(values, absent);
        break;
      case OtherAverage::kRandomGroups:
        rng.Shuffle(present);
        for (size_t at = 0; at < present.size(); at += options.group_size)
          Average(values, present, at, std::min(at + options.group_size, present.size()));
        break;
    }
    if (VarianceOf(values) < options.target) return round;
  }
  return options.max_rounds;
}

}  // namespace crowdsurf::simulator
