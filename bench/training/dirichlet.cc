#include "bench/training/dirichlet.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace crowdsurf::bench {
namespace {

// The logarithm of a draw from Gamma(shape, 1): at shape .01 the draw itself is mostly below what a
// double can hold. Marsaglia and Tsang 2000 for shape + 1, and U^(1 / shape) for the rest.
double LogGamma(double shape, Rng& rng) {
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = rng.Normal(), root = 1 + c * x;
    const double uniform = rng.UniformDouble();
    if (root <= 0 || uniform <= 0) continue;
    const double v = root * root * root;
    if (std::log(uniform) > x * x / 2 + d - d * v + d * std::log(v)) continue;
    return std::log(d * v) + std::log(1 - rng.UniformDouble()) / shape;
  }
}

// A class by its share among those that have examples left; all shares of these may be zero.
size_t DrawClass(const std::vector<double>& shares, const std::vector<std::vector<size_t>>& left,
                 Rng& rng) {
  const auto weight_of = [&](size_t k, bool by_share) {
    if (left[k].empty()) return 0.0;
    return by_share ? shares[k] : static_cast<double>(left[k].size());
  };
  double total = 0;
  for (size_t k = 0; k < shares.size(); ++k) total += weight_of(k, true);
  const bool by_share = total > 0;
  if (!by_share)
    for (size_t k = 0; k < shares.size(); ++k) total += weight_of(k, false);
  double draw = rng.UniformDouble() * total;
  size_t last = 0;
  for (size_t k = 0; k < shares.size(); ++k) {
    if (weight_of(k, by_share) <= 0) continue;
    last = k;
    draw -= weight_of(k, by_share);
    if (draw < 0) break;
  }
  return last;
}

}  // namespace

std::vector<std::vector<double>> DirichletShares(uint32_t workers, size_t classes, double alpha,
                                                 Rng rng) {
  CHECK_GT(alpha, 0.0);
  std::vector<std::vector<double>> shares(workers, std::vector<double>(classes));
  for (std::vector<double>& row : shares) {
    for (double& share : row) share = LogGamma(alpha, rng);
    // Scaled by the largest, so that not all underflow.
    const double most = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (double& share : row) sum += share = std::exp(share - most);
    for (double& share : row) share /= sum;
  }
  return shares;
}

std::vector<trainer::DigitSet> DirichletShards(const trainer::DigitSet& all, uint32_t workers,
                                               double alpha, Rng rng) {
  // Equal shards: what does not divide is left out.
  const size_t each = all.size() / workers;
  CHECK_GE(each, 1U);
  Rng draws = rng.Fork("classes");
  std::vector<std::vector<size_t>> left(trainer::kDigitClasses);
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Which example of a class is taken is drawn, too.
  draws.Shuffle(order);
  for (const size_t i : order) left[all.labels[i]].push_back(i);
  const auto shares = DirichletShares(workers, trainer::kDigitClasses, alpha, rng.Fork("shares"));
  std::vector<trainer::DigitSet> shards(workers);
  for (uint32_t w = 0; w < workers; ++w) {
    shards[w].features.resize(all.features.rows(), static_cast<Eigen::Index>(each));
    for (size_t i = 0; i < each; ++i) {
      std::vector<size_t>& of_class = left[DrawClass(shares[w], left, draws)];
      const size_t example = of_class.back();
      of_class.pop_back();
      shards[w].features.col(static_cast<Eigen::Index>(i)) =
          all.features.col(static_cast<Eigen::Index>(example));
      shards[w].labels.push_back(all.labels[example]);
    }
  }
  return shards;
}

}  // namespace crowdsurf::bench
