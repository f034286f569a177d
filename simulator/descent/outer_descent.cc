#include "simulator/descent/outer_descent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "simulator/descent/descent.h"

namespace crowdsurf::simulator {
namespace {

constexpr double kLearningRate = 0.1;

DescentResult Run(const OuterDescent& job) {
  DescentOptions options;
  options.averaging =
      DescentAveraging(worker::StrategyKind::kMoshpit, worker::GraphKind::kComplete);
  options.averaging.group_size = job.group_size;
  options.averaging.interval = static_cast<double>(job.steps);
  options.averaging.outer = job.outer;
  options.members = job.members;
  options.learning_rate = kLearningRate;
  options.seed = job.seed;
  // DiLoCo has fixed workers: nobody comes or goes.
  options.deaths = {};
  options.joins = {};
  options.end = Seconds(30);
  return RunDescent(options);
}

// DiLoCo (Douillard et al. 2023, arXiv 2311.08105) of the same losses, off line and in double.
class DiLoCo {
 public:
  DiLoCo(const OuterDescent& job, const std::vector<Quadratic>& losses,
         const std::vector<float>& begin)
      : job_(job), losses_(losses), base_(begin.begin(), begin.end()), velocity_(begin.size(), 0) {}

  // `steps`: of each worker.
  void Round(const std::vector<uint64_t>& steps) {
    std::vector<double> mean(base_.size(), 0);
    for (size_t worker = 0; worker < losses_.size(); ++worker) {
      const Quadratic& loss = losses_[worker];
      // The inner optimizer: plain gradient steps from the base.
      std::vector<double> x = base_;
      for (uint64_t step = 0; step < steps[worker]; ++step)
        for (size_t k = 0; k < x.size(); ++k)
          x[k] -= kLearningRate * loss.h[k] * (x[k] - loss.c[k]);
      // Equal weights, as DescentAveraging has them.
      for (size_t k = 0; k < x.size(); ++k) mean[k] += x[k] / static_cast<double>(losses_.size());
    }
    const double momentum = job_.outer.momentum;
    // The outer one, as in docs/outer-optimizer.md.
    for (size_t k = 0; k < base_.size(); ++k) {
      const double gradient = base_[k] - mean[k];
      velocity_[k] = momentum * velocity_[k] + gradient;
      const bool nesterov = job_.outer.kind == worker::OuterKind::kNesterov;
      base_[k] -=
          job_.outer.learning_rate * (nesterov ? gradient + momentum * velocity_[k] : velocity_[k]);
    }
  }
  const std::vector<double>& base() const { return base_; }

 private:
  const OuterDescent job_;
  const std::vector<Quadratic>& losses_;
  std::vector<double> base_, velocity_;
};

template <class Values>
void Compare(const std::vector<float>& got, const Values& wanted, OuterComparison& result) {
  ++result.averages;
  double largest = 1e-6, error = 0;
  for (size_t k = 0; k < got.size(); ++k) {
    const auto value = static_cast<double>(wanted[k]);
    largest = std::max(largest, std::abs(value));
    error = std::max(error, std::abs(static_cast<double>(got[k]) - value));
  }
  result.error = std::max(result.error, error / largest);
}

}  // namespace

OuterComparison CompareWithDiLoCo(const OuterDescent& job) {
  const DescentResult run = Run(job);
  OuterComparison result;
  // The trainers begin one after the other: the job is DiLoCo from the first average of all on.
  std::optional<DiLoCo> off_line;
  std::vector<uint64_t> before;
  for (const auto& [averaging, first] : run.averages.front()) {
    std::vector<uint64_t> steps;
    for (const auto& worker : run.averages) {
      const auto own = worker.find(averaging);
      if (own != worker.end() && !own->second.result.empty()) steps.push_back(own->second.steps);
    }
    // Somebody is missing: what comes next does not follow from this average.
    if (steps.size() < run.losses.size()) {
      off_line.reset();
      continue;
    }
    if (off_line) {
      std::vector<uint64_t> taken;
      for (size_t worker = 0; worker < steps.size(); ++worker)
        taken.push_back(steps[worker] - before[worker]);
      off_line->Round(taken);
      Compare(first.result, off_line->base(), result);
    } else if (first.result == first.mean) {  // a base begins: without a velocity
      off_line.emplace(job, run.losses, first.result);
    }
    before = steps;
  }
  return result;
}

OuterComparison CompareWithMeans(const OuterDescent& job) {
  const DescentResult run = Run(job);
  OuterComparison result;
  for (const auto& worker : run.averages)
    for (const auto& [averaging, average] : worker) {
      // Published, and not delivered at this worker.
      if (average.mean.empty()) continue;
      Compare(average.result, average.mean, result);
      // The bytes, because 0 and -0 are equal as numbers.
      const size_t bytes = average.mean.size() * sizeof(float);
      result.bit_equal =
          result.bit_equal && std::memcmp(average.result.data(), average.mean.data(), bytes) == 0;
    }
  return result;
}

}  // namespace crowdsurf::simulator
