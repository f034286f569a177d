#include "simulator/descent/quadratic.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::simulator {

Quadratic Quadratic::Draw(uint32_t dimensions, double spread, Rng rng) {
  Quadratic loss;
  for (uint32_t k = 0; k < dimensions; ++k) {
    // h in [1/4, 1): gradient steps of a rate below 2 contract.
    loss.h.push_back(0.25 + 0.75 * rng.UniformDouble());
    loss.c.push_back(spread * rng.Normal());
  }
  return loss;
}

// Of the sum of the losses: x*_k = sum of h c / sum of h.
std::vector<double> OptimumOf(const std::vector<const Quadratic*>& losses) {
  CHECK(!losses.empty());
  std::vector<double> optimum;
  for (size_t k = 0; k < losses.front()->c.size(); ++k) {
    double weighted = 0, total = 0;
    for (const Quadratic* loss : losses) {
      weighted += loss->h[k] * loss->c[k];
      total += loss->h[k];
    }
    optimum.push_back(weighted / total);
  }
  return optimum;
}

void QuadraticModel::Start(std::span<float> x) const { std::fill(x.begin(), x.end(), 0.0F); }

uint64_t QuadraticModel::Gradient(std::span<const float> x, std::span<float> gradient) {
  constexpr uint64_t kSamples = 4;  // of a batch; the gradient is of all of the loss
  for (size_t k = 0; k < x.size(); ++k)
    gradient[k] = static_cast<float>(loss_.h[k] * (static_cast<double>(x[k]) - loss_.c[k]));
  return kSamples;
}

void QuadraticModel::Apply(std::span<const float> gradient, std::span<float> x) {
  for (size_t k = 0; k < x.size(); ++k)
    x[k] = static_cast<float>(static_cast<double>(x[k]) - rate_ * static_cast<double>(gradient[k]));
}

void QuadraticModel::Step(double lr_scale, std::span<float> x) {
  CHECK_EQ(x.size(), elements());
  for (size_t k = 0; k < x.size(); ++k) {
    const double at = static_cast<double>(x[k]);
    x[k] = static_cast<float>(at - rate_ * lr_scale * loss_.h[k] * (at - loss_.c[k]));
  }
}

}  // namespace crowdsurf::simulator
