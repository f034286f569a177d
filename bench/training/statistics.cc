#include "bench/training/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace crowdsurf::bench {
namespace {

// The 97.5 % point of Student's t, by degrees of freedom from 1.
constexpr std::array<double, 9> kStudent = {12.706, 4.303, 3.182, 2.776, 2.571,
                                            2.447,  2.365, 2.306, 2.262};

}  // namespace

Estimate EstimateOf(const std::vector<double>& values) {
  CHECK(!values.empty());
  CHECK_LE(values.size(), kStudent.size() + 1);
  const auto count = static_cast<double>(values.size());
  Estimate estimate;
  for (const double value : values) estimate.mean += value / count;
  if (values.size() == 1) return estimate;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - estimate.mean, 2);
  // t times the standard error of the mean.
  estimate.interval = kStudent[values.size() - 2] * std::sqrt(squares / (count - 1) / count);
  return estimate;
}

std::vector<double> RateGrid() {
  std::vector<double> rates;
  // From .00625 to .8, a factor of two apart.
  for (double rate = 0.00625; rate < 1; rate *= 2) rates.push_back(rate);
  return rates;
}

BestRate BestOf(const std::vector<double>& rates, const std::vector<double>& scores) {
  CHECK(!rates.empty());
  CHECK_EQ(rates.size(), scores.size());
  const auto best =
      static_cast<size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
  // At an edge of the grid the best may lie outside: the figure says so.
  return {rates[best], scores[best], best > 0 && best + 1 < rates.size(), rates.size()};
}

}  // namespace crowdsurf::bench
