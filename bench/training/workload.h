// Workload: what n workers train in the bench of the papers: data of each, and how models are
// judged.
//
// The built-in trainer's models (worker/trainer/task.h): the classifier on digits that are split by
// Dirichlet, and the language model on text. Owner: one run; single sequence. Memory: the data, and
// a work space for each task made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/trainer/data/corpus.h"
#include "worker/trainer/data/digits.h"
#include "worker/trainer/task.h"

namespace crowdsurf::bench {

// Of several workers' own models on what is held out. Lower is better; a model that is not finite
// counts as kDiverged.
struct Score {
  double mean = 0;
  double worst = 0;
  double accuracy = 0;        // percent, the mean; 0 where the model has none
  double worst_accuracy = 0;  // percent
  double spread = 0;          // root mean square distance of the finite models to their mean
};
inline constexpr double kDiverged = 100;  // nats, or bits: above a blind guess

class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::unique_ptr<trainer::Task> TaskOf(uint32_t worker) const = 0;
  virtual double flops_a_step() const = 0;  // multiplications and additions of one gradient
  virtual trainer::Evaluation evaluation() const { return trainer::Evaluation::kFull; }

  Score Judge(const std::vector<std::span<const float>>& models);

 private:
  std::unique_ptr<trainer::Task> judge_;
};

struct DigitsOptions {
  uint32_t workers = 16;
  double alpha = 0.1;  // of the split; 0: everybody draws from all examples
  size_t batch = 16;
  std::vector<size_t> hidden = {64, 64};
  size_t examples = 6400;  // in all, so that 64 workers have 100 each
  uint64_t seed = 1;
};

// Examples for which a run of thousands of steps has no more than a few passes: what is held out
// then tells how well a method trains, and not how much it has learnt by heart.
inline constexpr size_t kManyExamples = 65'536;

// The seed is of the split only.
class DigitsWorkload : public Workload {
 public:
  explicit DigitsWorkload(const DigitsOptions& options);
  std::unique_ptr<trainer::Task> TaskOf(uint32_t worker) const override;
  double flops_a_step() const override;

 private:
  const DigitsOptions options_;
  std::vector<trainer::DigitSet> shards_;
  trainer::DigitSet held_out_;
};

// A GRU of 64 units, 4 windows of 32 characters, on the same text at all workers.
class TextWorkload : public Workload {
 public:
  explicit TextWorkload(trainer::Corpus corpus) : corpus_(std::move(corpus)) {}
  std::unique_ptr<trainer::Task> TaskOf(uint32_t worker) const override;
  double flops_a_step() const override;
  trainer::Evaluation evaluation() const override { return trainer::Evaluation::kQuick; }

 private:
  const trainer::Corpus corpus_;
};

}  // namespace crowdsurf::bench
