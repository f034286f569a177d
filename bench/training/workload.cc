#include "bench/training/workload.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "bench/training/dirichlet.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kDataSeed = 1;  // the same digits in all runs, as published sets are
constexpr trainer::CharTaskOptions kText = {.hidden = 64, .batch = 4, .window = 32};

// A product with a matrix takes two operations a weight and example forward, and twice that back.
constexpr double kFlopsOfWeight = 6;

bool IsFinite(std::span<const float> model) {
  return std::all_of(model.begin(), model.end(), [](float v) { return std::isfinite(v); });
}

double SpreadOf(const std::vector<std::span<const float>>& models) {
  if (models.empty()) return 0;
  const auto count = static_cast<double>(models.size());
  double squares = 0;
  for (size_t k = 0; k < models.front().size(); ++k) {
    double mean = 0;
    for (const std::span<const float> model : models) mean += static_cast<double>(model[k]) / count;
    for (const std::span<const float> model : models)
      squares += std::pow(static_cast<double>(model[k]) - mean, 2) / count;
  }
  return std::sqrt(squares);
}

}  // namespace

Score Workload::Judge(const std::vector<std::span<const float>>& models) {
  if (judge_ == nullptr) judge_ = TaskOf(0);
  Score score;
  score.worst_accuracy = 100;
  const auto count = static_cast<double>(models.size());
  std::vector<std::span<const float>> finite;
  for (const std::span<const float> model : models) {
    // A model that is not finite counts as diverged, with no accuracy.
    double loss = kDiverged, accuracy = 0;
    if (IsFinite(model)) {
      finite.push_back(model);
      for (const trainer::Metric& metric : judge_->Evaluate(model, evaluation())) {
        if (metric.name == "heldout_accuracy")
          accuracy = 100 * metric.value;
        else if (std::isfinite(metric.value))
          loss = std::min(metric.value, kDiverged);
      }
    }
    score.mean += loss / count;
    score.worst = std::max(score.worst, loss);
    score.accuracy += accuracy / count;
    score.worst_accuracy = std::min(score.worst_accuracy, accuracy);
  }
  score.spread = SpreadOf(finite);
  return score;
}

DigitsWorkload::DigitsWorkload(const DigitsOptions& options) : options_(options) {
  trainer::Digits digits = trainer::MakeDigits({.train = options.examples, .seed = kDataSeed});
  held_out_ = std::move(digits.held_out);
  if (options.alpha > 0)
    shards_ = DirichletShards(digits.train, options.workers, options.alpha,
                              Rng(options.seed).Fork("dirichlet"));
  else
    shards_ = {std::move(digits.train)};
}

std::unique_ptr<trainer::Task> DigitsWorkload::TaskOf(uint32_t worker) const {
  // With one shard everybody draws from all examples.
  return std::make_unique<trainer::DigitTask>(
      shards_[worker % shards_.size()], held_out_,
      trainer::DigitTaskOptions{.hidden = options_.hidden, .batch = options_.batch});
}

double DigitsWorkload::flops_a_step() const {
  const auto weights = static_cast<double>(TaskOf(0)->table().elements());
  return kFlopsOfWeight * weights * static_cast<double>(options_.batch);
}

std::unique_ptr<trainer::Task> TextWorkload::TaskOf(uint32_t) const {
  return std::make_unique<trainer::CharTask>(corpus_, kText);
}

double TextWorkload::flops_a_step() const {
  const auto weights = static_cast<double>(TaskOf(0)->table().elements());
  return kFlopsOfWeight * weights * static_cast<double>(kText.batch * kText.window);
}

}  // namespace crowdsurf::bench
