// Crowd: several trainings in one process, averaged as a job would, to see whether it learns.
//
// Steps the replicas in turn and, every `interval` steps, averages their parameters exactly (what
// Moshpit gives after all its rounds). Delayed: the average of a snapshot arrives `delay` steps
// later and each replica adds (average - its snapshot), as the trainer link does. Owned by a test;
// one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/trainer/training.h"

namespace crowdsurf::trainer {

struct CrowdOptions {
  size_t replicas = 8;
  uint64_t interval = 50;  // steps between averagings
  uint64_t delay = 10;     // steps until the result is applied; below interval
};

class Crowd {
 public:
  Crowd(Task& task, const TrainingOptions& training, const CrowdOptions& options)
      : options_(options) {
    for (size_t i = 0; i < options.replicas; ++i) {
      TrainingOptions own = training;
      own.worker = "charlm-" + std::to_string(i) + "-0";
      replicas_.push_back(std::make_unique<Training>(task, own));
    }
    snapshots_.resize(options.replicas);
  }

  // One step of every replica.
  void Step() {
    for (auto& replica : replicas_) replica->Step(1.0);
    ++step_;
    if (step_ > options_.interval && step_ % options_.interval == options_.delay) Apply();
    if (step_ % options_.interval == 0) Publish();
  }

  // The mean of the replicas as they are now.
  std::vector<float> Mean() const {
    std::vector<double> sum(replicas_[0]->parameters().size(), 0.0);
    for (const auto& replica : replicas_) Add(replica->parameters(), sum);
    return Divided(sum);
  }
  Training& replica(size_t i) { return *replicas_[i]; }

 private:
  static void Add(std::span<const float> values, std::vector<double>& sum) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  std::vector<float> Divided(const std::vector<double>& sum) const {
    std::vector<float> mean(sum.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      mean[i] = static_cast<float>(sum[i] / static_cast<double>(replicas_.size()));
    }
    return mean;
  }
  void Publish() {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      const std::span<const float> p = replicas_[r]->parameters();
      snapshots_[r].assign(p.begin(), p.end());
    }
  }
  void Apply() {
    std::vector<double> sum(snapshots_[0].size(), 0.0);
    for (const auto& snapshot : snapshots_) Add(snapshot, sum);
    const std::vector<float> mean = Divided(sum);
    for (size_t r = 0; r < replicas_.size(); ++r) {
      const std::span<float> p = replicas_[r]->parameters();
      for (size_t i = 0; i < p.size(); ++i) p[i] += mean[i] - snapshots_[r][i];
    }
  }

  CrowdOptions options_;
  std::vector<std::unique_ptr<Training>> replicas_;
  std::vector<std::vector<float>> snapshots_;
  uint64_t step_ = 0;
};

}  // namespace crowdsurf::trainer
