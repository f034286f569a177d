#include "worker/core/round/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// Bisection halves the bracket each step; 200 steps exhaust a double from any start.
constexpr int kBisectionSteps = 200;

// Unknown bandwidths become the mean of the known ones (1 when nobody is known).
StatusOr<std::vector<double>> Resolved(const std::vector<std::optional<double>>& bandwidths) {
  double sum = 0;
  size_t known = 0;
  for (size_t i = 0; i < bandwidths.size(); ++i) {
    if (!bandwidths[i]) continue;
    if (!std::isfinite(*bandwidths[i]) || *bandwidths[i] < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("bandwidth of member ", i, " is not a finite number >= 0"));
    // Zero means "contributes only"; it says nothing about how fast an unknown member is.
    if (*bandwidths[i] == 0) continue;
    sum += *bandwidths[i];
    ++known;
  }
  const double mean = known == 0 ? 1.0 : sum / static_cast<double>(known);
  std::vector<double> resolved;
  resolved.reserve(bandwidths.size());
  for (const auto& bandwidth : bandwidths) resolved.push_back(bandwidth.value_or(mean));
  return resolved;
}

// Fractions that minimise max_i (1 + (n-2) w_i) / b_i over members with b_i > 0: everybody's cost
// is lifted to one level xi, and who would need a negative share gets none.
std::vector<double> Fractions(const std::vector<double>& bandwidths, const std::vector<bool>& in) {
  const size_t n = bandwidths.size();
  std::vector<double> shares(n, 0.0);
  const auto fill = [&](double level) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      shares[i] = 0;
      if (!in[i]) continue;
      // At this share the cost (1 + (n-2) w) / b equals `level`.
      shares[i] = std::clamp((level * bandwidths[i] - 1) / static_cast<double>(n - 2), 0.0, 1.0);
      sum += shares[i];
    }
    return sum;
  };
  const double total = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
  if (n <= 2) {  // any split costs the same: in proportion to bandwidth (lexicographic min-max)
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += in[i] ? bandwidths[i] : 0;
    for (size_t i = 0; i < n; ++i) shares[i] = in[i] ? bandwidths[i] / sum : 0;
    return shares;
  }
  // The sum of shares grows with the level: double it until the sum reaches 1, then bisect.
  double low = 0, high = 1;
  while (fill(high) < 1 && high < 1e300 / std::max(total, 1.0)) high *= 2;
  for (int step = 0; step < kBisectionSteps; ++step) {
    const double middle = low + (high - low) / 2;
    (fill(middle) < 1 ? low : high) = middle;
  }
  const double sum = fill(high);
  for (double& share : shares) share /= sum;
  return shares;
}

// Whole elements with the given fractions: floors first, what is left over goes to the largest
// quotients (Hagenbach-Bischoff); of equal quotients to the smaller part, which spreads the work.
std::vector<uint64_t> Apportion(uint64_t elements, const std::vector<double>& fractions) {
  constexpr double kTie = 1e-9;  // quotients this near are equal: bisection ends a few ulps off
  std::vector<uint64_t> parts;
  uint64_t given = 0;
  for (const double fraction : fractions) {
    const auto floor = static_cast<uint64_t>(static_cast<double>(elements) * fraction);
    parts.push_back(std::min(elements - given, floor));
    given += parts.back();
  }
  while (given < elements) {
    const auto quotient = [&](size_t i) {
      return fractions[i] / (static_cast<double>(parts[i]) + 1);
    };
    size_t best = 0;
    for (size_t i = 1; i < parts.size(); ++i) {
      const double ahead = quotient(i) - quotient(best);
      const double tie = kTie * quotient(best);
      if (ahead > tie || (ahead > -tie && fractions[i] > 0 && parts[i] < parts[best])) best = i;
    }
    ++parts[best];
    ++given;
  }
  return parts;
}

}  // namespace

StatusOr<std::vector<uint64_t>> PartSizes(uint64_t elements,
                                          const std::vector<std::optional<double>>& bandwidths,
                                          uint64_t min_elements) {
  ASSIGN_OR_RETURN(const std::vector<double> resolved, Resolved(bandwidths));
  std::vector<bool> in;
  in.reserve(resolved.size());
  for (const double bandwidth : resolved) in.push_back(bandwidth > 0);
  if (std::count(in.begin(), in.end(), true) == 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "none of ", bandwidths.size(), " members can reduce: all bandwidths are zero"));
  std::vector<double> fractions = Fractions(resolved, in);
  const double least =
      static_cast<double>(min_elements) / static_cast<double>(std::max<uint64_t>(elements, 1));
  if (*std::max_element(fractions.begin(), fractions.end()) >= least) {
    double sum = 0;
    for (double& fraction : fractions) {
      if (fraction < least) fraction = 0;
      sum += fraction;
    }
    for (double& fraction : fractions) fraction /= sum;
  }
  return Apportion(elements, fractions);
}

uint32_t ClassOfBandwidth(double bytes_per_second) {
  if (!std::isfinite(bytes_per_second) || bytes_per_second <= 0) return 0;
  return static_cast<uint32_t>(std::max(0L, std::lround(2 * std::log2(bytes_per_second)))) + 1;
}

std::optional<double> BandwidthOfClass(uint32_t bandwidth_class) {
  if (bandwidth_class == 0) return std::nullopt;
  return std::exp2(static_cast<double>(std::min(bandwidth_class - 1, 120U)) / 2);
}

std::vector<ChunkSpan> MakeChunks(const std::vector<uint64_t>& shares, RankSet members,
                                  uint32_t chunk_elements) {
  CHECK_GT(chunk_elements, 0U);
  CHECK(!members.empty());
  std::vector<ChunkSpan> chunks;
  uint64_t begin = 0;
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    CHECK(shares[rank] == 0 || members.Contains(rank));
    for (uint64_t left = shares[rank]; left > 0;) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(left, chunk_elements));
      chunks.push_back({static_cast<uint16_t>(rank), begin, count});
      begin += count;
      left -= count;
    }
  }
  if (chunks.empty()) {
    chunks.push_back({static_cast<uint16_t>(members.first()), 0, 0});
  }
  return chunks;
}

}  // namespace crowdsurf::worker
