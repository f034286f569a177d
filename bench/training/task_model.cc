#include "bench/training/task_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace crowdsurf::bench {
namespace {

trainer::DataOrder DataOf(const StepOptions& options, uint32_t worker) {
  // Of the seed and the worker alone, so that all methods draw the same batches.
  return trainer::DataOrder(Rng(options.seed).Fork("data " + std::to_string(worker)));
}

trainer::OptimizerOptions InnerOf(const StepOptions& options) {
  return {.kind = trainer::OptimizerKind::kSgd, .momentum = options.momentum, .nesterov = true};
}

}  // namespace

trainer::Schedule ScheduleOf(double rate, uint64_t steps) {
  return {.kind = trainer::ScheduleKind::kCosine,
          .rate = rate,
          .warmup_steps = steps / 20,
          .total_steps = steps};
}

worker::TensorViews MatricesOf(const trainer::ParameterTable& table) {
  worker::TensorViews matrices;
  for (const trainer::TensorSpec& tensor : table.tensors())
    if (tensor.shape.size() == 2)
      matrices.push_back(
          {tensor.offset,
           {static_cast<uint32_t>(tensor.shape[0]), static_cast<uint32_t>(tensor.shape[1])}});
  return matrices;
}

TaskModel::TaskModel(std::unique_ptr<trainer::Task> task, const StepOptions& options,
                     uint32_t worker, uint64_t first_step)
    : options_(options),
      task_(std::move(task)),
      optimizer_(InnerOf(options), task_->table()),
      data_(DataOf(options, worker)),
      gradient_(task_->table().elements()),
      step_(first_step) {}

void TaskModel::Start(std::span<float> x) const { task_->Initialize(options_.seed, x); }

void TaskModel::Step(double lr_scale, std::span<float> x) {
  const double rate = options_.schedule.RateAt(step_++) * lr_scale;
  if (!subnet_) return StepOf(rate, x, gradient_, optimizer_);
  // Anew at every step: an averaging may have changed x since the last one.
  subnet_->Gather(x);
  StepOf(rate, subnet_->parameters(), subnet_->gradient(), subnet_->optimizer());
  subnet_->Scatter(x);
}

void TaskModel::StepOf(double rate, std::span<float> x, std::span<float> gradient,
                       trainer::Optimizer& optimizer) {
  task_->Gradient(data_, x, gradient);
  // As the built-in trainer does: such a gradient changes nothing.
  if (!std::isfinite(trainer::ClipByNorm(options_.clip, gradient))) return;
  optimizer.Step(rate, gradient, x);
}

void TaskModel::TrainUnits(const worker::IndexSets& sets) {
  const worker::UnitSchema schema = task_->table().units();
  const worker::IndexSets next = schema.IsWhole(sets) ? worker::IndexSets() : sets;
  if (next == units_) return;
  CHECK(task_->TrainUnits(next).ok());
  units_ = next;
  subnet_ = next.empty() ? nullptr
                         : std::make_unique<trainer::SubnetParameters>(task_->table(), next,
                                                                       InnerOf(options_));
  optimizer_.Reset();
  data_.state.resize(0, 0);
}

double TaskModel::step_share() const {
  if (!subnet_) return 1;
  return static_cast<double>(subnet_->table().elements()) / static_cast<double>(elements());
}

TaskGradients::TaskGradients(const Workload& workload, uint32_t workers, const StepOptions& options)
    : options_(options) {
  for (uint32_t worker = 0; worker < workers; ++worker) {
    tasks_.push_back(workload.TaskOf(worker));
    data_.push_back(DataOf(options, worker));
  }
}

void TaskGradients::Start(std::span<float> x) const {
  tasks_.front()->Initialize(options_.seed, x);
}

void TaskGradients::Take(uint32_t worker, std::span<const float> x, std::span<float> gradient) {
  tasks_[worker]->Gradient(data_[worker], x, gradient);
  // A gradient that is not finite counts as zero, so that a method's momentum stays finite.
  if (!std::isfinite(trainer::ClipByNorm(options_.clip, gradient)))
    std::fill(gradient.begin(), gradient.end(), 0.0F);
}

}  // namespace crowdsurf::bench
