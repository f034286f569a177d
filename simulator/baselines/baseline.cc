#include "simulator/baselines/baseline.h"

#include "base/check.h"
#include "simulator/baselines/methods.h"
#include "simulator/baselines/power_baseline.h"

namespace crowdsurf::simulator {

template <class Scalar>
Baseline<Scalar>::Baseline(const BaselineOptions& options, Gradients<Scalar>& gradients)
    : options_(options), gradients_(gradients) {
  CHECK_GE(options_.graph.nodes, 1U);
  CHECK_EQ(options_.graph.nodes, gradients_.workers());
  gradient_.resize(gradients_.elements());
  Vector first(gradients_.elements());
  gradients_.Start(first);
  x_.assign(gradients_.workers(), first);
  updates_ = Zeros();
  velocities_ = Zeros();
}

template <class Scalar>
void Baseline<Scalar>::Step() {
  for (uint32_t i = 0; i < workers(); ++i) {
    gradients_.Take(i, model(i), gradient_);
    Update(i, gradient_, updates_[i]);
  }
  // All gradients are taken before anything is sent: lock step.
  Communicate();
  ++step_;
}

template <class Scalar>
void Baseline<Scalar>::Update(uint32_t worker, std::span<const Scalar> gradient,
                              std::span<Scalar> update) {
  // The rate is not in the velocity: a schedule's new rate acts at once on all of it.
  Vector& velocity = velocities_[worker];
  const auto momentum = static_cast<Scalar>(options_.momentum);
  for (size_t k = 0; k < gradient.size(); ++k) velocity[k] = momentum * velocity[k] + gradient[k];
  Nesterov(gradient, velocity, update);
}

template <class Scalar>
void Baseline<Scalar>::Nesterov(std::span<const Scalar> gradient, std::span<const Scalar> velocity,
                                std::span<Scalar> update) const {
  const auto momentum = static_cast<Scalar>(options_.momentum);
  const auto minus_rate = static_cast<Scalar>(-rate());
  for (size_t k = 0; k < update.size(); ++k)
    update[k] = minus_rate * (gradient[k] + momentum * velocity[k]);
}

template <class Scalar>
void Baseline<Scalar>::AddUpdates() {
  for (uint32_t i = 0; i < workers(); ++i)
    for (size_t k = 0; k < elements(); ++k) x_[i][k] += updates_[i][k];
}

template <class Scalar>
void Baseline<Scalar>::CountVectors(uint64_t messages) {
  // Four bytes a value: float32 travels, whatever is computed with here.
  bytes_ += 4.0 * static_cast<double>(messages * elements());
}

template <class Scalar>
std::unique_ptr<Baseline<Scalar>> MakeBaseline(BaselineKind kind, const BaselineOptions& options,
                                               Gradients<Scalar>& gradients) {
  switch (kind) {
    case BaselineKind::kAllReduce:
      return std::make_unique<AllReduce<Scalar>>(options, gradients);
    case BaselineKind::kDPsgd:
      return std::make_unique<DPsgd<Scalar>>(options, gradients);
    case BaselineKind::kD2:
      return std::make_unique<D2<Scalar>>(options, gradients);
    case BaselineKind::kGradientTracking:
      return std::make_unique<GradientTracking<Scalar>>(options, gradients);
    case BaselineKind::kQuasiGlobal:
      return std::make_unique<QuasiGlobal<Scalar>>(options, gradients);
    case BaselineKind::kPushSum:
      return std::make_unique<PushSum<Scalar>>(options, gradients);
    case BaselineKind::kChoco:
      return std::make_unique<Choco<Scalar>>(options, gradients);
    case BaselineKind::kDeepSqueeze:
      return std::make_unique<DeepSqueeze<Scalar>>(options, gradients);
    case BaselineKind::kPowerGossip:
      return std::make_unique<PowerBaseline<Scalar>>(options, gradients);
  }
  CHECK(false);
  return nullptr;
}

template class Baseline<float>;
template class Baseline<double>;
template std::unique_ptr<Baseline<float>> MakeBaseline(BaselineKind, const BaselineOptions&,
                                                       Gradients<float>&);
template std::unique_ptr<Baseline<double>> MakeBaseline(BaselineKind, const BaselineOptions&,
                                                        Gradients<double>&);

}  // namespace crowdsurf::simulator
