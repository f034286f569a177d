// DigitWorkers: the built-in classifier on n workers with label-sorted shards of the synthetic
// digits.
//
// Every worker has its own task (an MLP, worker/trainer/task.h), SGD without momentum, equal first
// parameters. The set is made in code from the seed (worker/trainer/data/digits.h); cut into 16 by
// label a worker has one or two of ten classes. Owner: one experiment; single sequence. Memory: a
// few MB.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/trainer/data/digits.h"
#include "worker/trainer/task.h"
#include "worker/trainer/training.h"

namespace crowdsurf::bench {

struct DigitWorker {
  std::unique_ptr<trainer::DigitTask> task;
  std::unique_ptr<trainer::Training> training;

  std::span<float> model() { return training->parameters(); }
  double Metric(const std::string& name) {
    for (const trainer::Metric& m : task->Evaluate(model(), trainer::Evaluation::kFull))
      if (m.name == name) return m.value;
    return 0;
  }
};

inline std::vector<DigitWorker> MakeDigitWorkers(uint32_t n, double learning_rate, uint64_t seed) {
  const trainer::Digits digits = trainer::MakeDigits({.seed = seed});
  std::vector<DigitWorker> workers(n);
  for (uint32_t i = 0; i < n; ++i) {
    workers[i].task = std::make_unique<trainer::DigitTask>(
        trainer::ShardByLabel(digits.train, i, n), digits.held_out, trainer::DigitTaskOptions{});
    trainer::TrainingOptions training;
    training.seed = seed;
    training.worker = "digits-" + std::to_string(i);
    training.optimizer = {.kind = trainer::OptimizerKind::kSgd, .momentum = 0};
    training.schedule.rate = learning_rate;
    training.clip = 0;
    workers[i].training = std::make_unique<trainer::Training>(*workers[i].task, training);
  }
  return workers;
}

// Mean over the workers' own models of a held-out metric.
inline double MeanMetric(std::vector<DigitWorker>& workers, const std::string& name) {
  double sum = 0;
  for (DigitWorker& worker : workers) sum += worker.Metric(name);
  return sum / static_cast<double>(workers.size());
}

}  // namespace crowdsurf::bench
