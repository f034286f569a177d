// DescentModel: what one worker of a descent trains, as its trainer sees it: first parameters and
// one step of the user's optimizer.
//
// A quadratic whose optimum is known (quadratic.h), or a network on data of its own
// (bench/training). Owner: one DescentTrainer; single sequence. A run is a function of its seed
// only if its models are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::simulator {

class DescentModel {
 public:
  virtual ~DescentModel() = default;
  virtual size_t elements() const = 0;
  // First parameters, float32[elements]: the same at all workers of a job.
  virtual void Start(std::span<float> x) const = 0;
  // One step, in place. lr_scale: factor of the learning rate that the strategy asks for.
  virtual void Step(double lr_scale, std::span<float> x) = 0;
  // IST: Step trains only these units from here on; none: the whole model.
  virtual void TrainUnits(const worker::IndexSets& /*sets*/) {}
  // Of the time of a step of the whole model, what a step takes now.
  virtual double step_share() const { return 1; }
  // Jobs that average gradients, in place of Step: the mean gradient at x of the next batch, whose
  // samples it returns; and one step of the optimizer with a gradient.
  virtual uint64_t Gradient(std::span<const float> /*x*/, std::span<float> /*gradient*/) {
    CHECK(false);
    return 0;
  }
  virtual void Apply(std::span<const float> /*gradient*/, std::span<float> /*x*/) { CHECK(false); }
};

}  // namespace crowdsurf::simulator
