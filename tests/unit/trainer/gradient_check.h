// Gradient check: a hand-written gradient against central finite differences, in double.
//
// Shared by the model tests. Central differences with step h have error h^2 f'''/6 + eps f/h; at
// h = 1e-5 both are below 1e-9 for losses of order one, so 1e-6 relative to the gradient's size
// leaves no room for a wrong term.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

namespace crowdsurf::trainer {

// The largest |analytic - numeric| / max(|analytic|, |numeric|, floor) over all parameters. The
// floor, a thousandth of the largest entry, keeps entries that are zero from being compared by
// their rounding.
inline double WorstRelativeError(std::vector<double> parameters, std::span<const double> analytic,
                                 const std::function<double(std::span<const double>)>& loss) {
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (const double g : analytic) largest = std::max(largest, std::abs(g));
  double worst = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double kept = parameters[i];
    parameters[i] = kept + kStep;
    const double above = loss(parameters);
    parameters[i] = kept - kStep;
    const double below = loss(parameters);
    parameters[i] = kept;
    const double numeric = (above - below) / (2 * kStep);
    const double size = std::max({std::abs(analytic[i]), std::abs(numeric), 1e-3 * largest});
    worst = std::max(worst, std::abs(analytic[i] - numeric) / size);
  }
  return worst;
}

}  // namespace crowdsurf::trainer
