// TaskModel: a task of the built-in trainer as a worker of a descent trains it, and TaskGradients:
// tasks of n workers as a lock-step method asks them.
//
// Both draw the same batches for a worker: from the seed and its number. TaskModel steps by the
// trainer's own SGD with Nesterov momentum and its own schedule, so that nothing of it is a second
// version. Owner: one run; single sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/training/workload.h"
#include "simulator/baselines/gradients.h"
#include "simulator/descent/descent_model.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/parameters.h"
#include "worker/trainer/schedule.h"
#include "worker/trainer/subnet_parameters.h"
#include "worker/trainer/task.h"

namespace crowdsurf::bench {

struct StepOptions {
  trainer::Schedule schedule;
  double momentum = 0.9;
  double clip = 0;    // most Euclidean length of a gradient; 0: as it is
  uint64_t seed = 1;  // of first parameters and batches
};

// A warm-up of a twentieth, then half a cosine to a twentieth of `rate`.
trainer::Schedule ScheduleOf(double rate, uint64_t steps);

// Matrices alone have factors (PowerGossip); all else travels whole.
worker::TensorViews MatricesOf(const trainer::ParameterTable& table);

class TaskModel : public simulator::DescentModel {
 public:
  // first_step: of the schedule, for a worker that joins later.
  TaskModel(std::unique_ptr<trainer::Task> task, const StepOptions& options, uint32_t worker,
            uint64_t first_step = 0);
  size_t elements() const override { return gradient_.size(); }
  void Start(std::span<float> x) const override;
  void Step(double lr_scale, std::span<float> x) override;
  // As the built-in trainer does (training.h): the smaller model alone, without moments at first.
  void TrainUnits(const worker::IndexSets& sets) override;
  double step_share() const override;  // as its parameters, of all

 private:
  void StepOf(double rate, std::span<float> x, std::span<float> gradient,
              trainer::Optimizer& optimizer);

  const StepOptions options_;
  std::unique_ptr<trainer::Task> task_;
  worker::IndexSets units_;                            // that are trained; none: the whole model
  std::unique_ptr<trainer::SubnetParameters> subnet_;  // with units_
  trainer::Optimizer optimizer_;
  trainer::DataOrder data_;
  std::vector<float> gradient_;
  uint64_t step_;
};

class TaskGradients : public simulator::Gradients<float> {
 public:
  TaskGradients(const Workload& workload, uint32_t workers, const StepOptions& options);
  uint32_t workers() const override { return static_cast<uint32_t>(tasks_.size()); }
  size_t elements() const override { return tasks_.front()->table().elements(); }
  void Start(std::span<float> x) const override;
  void Take(uint32_t worker, std::span<const float> x, std::span<float> gradient) override;

 private:
  const StepOptions options_;
  std::vector<std::unique_ptr<trainer::Task>> tasks_;
  std::vector<trainer::DataOrder> data_;
};

}  // namespace crowdsurf::bench
