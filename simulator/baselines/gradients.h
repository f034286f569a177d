// Gradients: where the gradients of a lock-step run come from: n workers, each with data of its
// own.
//
// Owner: one run; single sequence. A run is a function of its seed only if this is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace crowdsurf::simulator {

template <class Scalar>
class Gradients {
 public:
  virtual ~Gradients() = default;
  virtual uint32_t workers() const = 0;
  virtual size_t elements() const = 0;
  // First parameters, the same at all workers: Scalar[elements].
  virtual void Start(std::span<Scalar> x) const = 0;
  // The gradient at `x` of the next batch of `worker`; both are Scalar[elements].
  virtual void Take(uint32_t worker, std::span<const Scalar> x, std::span<Scalar> gradient) = 0;
};

}  // namespace crowdsurf::simulator
