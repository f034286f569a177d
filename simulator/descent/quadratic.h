// Quadratic: f(x) = 1/2 sum of h_k (x_k - c_k)^2, a loss whose minimum is known.
//
// The judge of a descent stands on it: the optimum of the workers that are left is computed from
// the losses alone (descent.h). Values; nothing that others fill.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "simulator/descent/descent_model.h"

namespace crowdsurf::simulator {

struct Quadratic {
  std::vector<double> h, c;

  // h uniform in [1/4, 1], c normal with standard deviation `spread`.
  static Quadratic Draw(uint32_t dimensions, double spread, Rng rng);
};
// The minimum of the sum. Pre: at least one, of one dimension.
std::vector<double> OptimumOf(const std::vector<const Quadratic*>& losses);

// Full gradient steps of a constant rate, from zero. Parameters are float32 and a step is computed
// in float64.
class QuadraticModel : public DescentModel {
 public:
  QuadraticModel(Quadratic loss, double rate) : loss_(std::move(loss)), rate_(rate) {}
  size_t elements() const override { return loss_.c.size(); }
  void Start(std::span<float> x) const override;
  void Step(double lr_scale, std::span<float> x) override;
  uint64_t Gradient(std::span<const float> x, std::span<float> gradient) override;
  void Apply(std::span<const float> gradient, std::span<float> x) override;

 private:
  const Quadratic loss_;
  const double rate_;
};

}  // namespace crowdsurf::simulator
