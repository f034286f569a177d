// Outer step: from one committed average to the next, by an optimizer on the averaged change.
//
// With the base B (the last committed average), the mean m of what the members have trained from
// it, and d = B - m:
//
//   SGD        B' = B - a (d + mu v)                  = m + (1 - a) d - a mu v
//              v' = mu v + d
//   Nesterov   v' = mu v + d,  B' = B - a (d + mu v') = m + (1 - a) d - a mu v'
//
// a is the learning rate, mu the momentum. These are PyTorch's SGD with d as the gradient, without
// and with `nesterov`. They are computed in the right-hand form, element by element, in the order
// that stands there, and a term whose factor is zero is left out. So equal inputs give equal bits
// at all members, and a = 1, mu = 0 gives m to the bit: B - (B - m) would not. Without momentum
// there is no v. Templates on the scalar: float in production, double in tests. Any thread that
// owns the spans; O(elements), nothing is allocated. Source: docs/outer-optimizer.md; DiLoCo
// (Douillard et al. 2023).
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

struct OuterRule {
  double learning_rate = 0;
  double momentum = 0;
  bool nesterov = false;  // without: heavy ball

  // As the scalars of a kernel.
  std::array<double, 3> scalars() const { return {learning_rate, momentum, nesterov ? 1.0 : 0.0}; }
  static OuterRule FromScalars(std::span<const double> scalars) {
    CHECK_EQ(scalars.size(), 3u);
    return {scalars[0], scalars[1], scalars[2] != 0};
  }
};

// One element: B and v are stepped to the mean m. `velocity`: null exactly when the momentum is 0.
template <class Scalar>
class OuterStepper {
 public:
  explicit OuterStepper(const OuterRule& rule)
      : rest_(static_cast<Scalar>(1 - rule.learning_rate)),
        keep_(static_cast<Scalar>(rule.momentum)),
        push_(static_cast<Scalar>(rule.learning_rate * rule.momentum)),
        nesterov_(rule.nesterov) {}

  void Step(Scalar mean, Scalar& base, Scalar* velocity) const {
    const Scalar change = base - mean;
    Scalar next = mean;
    if (rest_ != 0) next += rest_ * change;
    if (velocity != nullptr) {
      const Scalar before = *velocity;
      *velocity = keep_ * before + change;
      next -= push_ * (nesterov_ ? *velocity : before);
    }
    base = next;
  }

 private:
  const Scalar rest_, keep_, push_;
  const bool nesterov_;
};

// base: B before, B' after. velocity: v and v'. Pre: equally long; velocity empty exactly when the
// momentum is 0. `mean` is neither of the two.
template <class Scalar>
void StepOuter(const OuterRule& rule, std::span<const Scalar> mean, std::span<Scalar> base,
               std::span<Scalar> velocity) {
  CHECK_EQ(mean.size(), base.size());
  CHECK_EQ(velocity.size(), rule.momentum == 0 ? 0 : base.size());
  const OuterStepper<Scalar> stepper(rule);
  for (size_t i = 0; i < base.size(); ++i)
    stepper.Step(mean[i], base[i], velocity.empty() ? nullptr : &velocity[i]);
}

// The same where the mean is B + change: what rounds of changes end with (change.h).
template <class Scalar>
void StepOuterBy(const OuterRule& rule, std::span<const Scalar> change, std::span<Scalar> base,
                 std::span<Scalar> velocity) {
  CHECK_EQ(change.size(), base.size());
  CHECK_EQ(velocity.size(), rule.momentum == 0 ? 0 : base.size());
  const OuterStepper<Scalar> stepper(rule);
  for (size_t i = 0; i < base.size(); ++i)
    stepper.Step(base[i] + change[i], base[i], velocity.empty() ? nullptr : &velocity[i]);
}

// A base without a history.
template <class Scalar>
void BeginOuter(std::span<const Scalar> mean, std::span<Scalar> base, std::span<Scalar> velocity) {
  CHECK_EQ(mean.size(), base.size());
  std::copy(mean.begin(), mean.end(), base.begin());
  std::fill(velocity.begin(), velocity.end(), Scalar{0});
}

// What was trained from an old base counts from a newer one: `fetched` holds the newer base before,
// and trained + (newer - old) after; `base` the old one before, and the newer one after.
template <class Scalar>
void MoveBase(std::span<const Scalar> trained, std::span<Scalar> fetched, std::span<Scalar> base) {
  CHECK_EQ(trained.size(), base.size());
  CHECK_EQ(fetched.size(), base.size());
  for (size_t i = 0; i < base.size(); ++i) {
    const Scalar newer = fetched[i];
    fetched[i] = trained[i] + (newer - base[i]);
    base[i] = newer;
  }
}

}  // namespace crowdsurf::worker
