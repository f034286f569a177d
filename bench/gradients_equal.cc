#include "bench/gradients_equal.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "simulator/descent/descent.h"
#include "worker/trainer/data/digits.h"
#include "worker/trainer/mlp_model.h"
#include "worker/trainer/optimizer.h"

namespace crowdsurf::bench {
namespace {

using trainer::DigitSet;
using trainer::MlpModel;

constexpr double kRate = 0.1;
constexpr trainer::OptimizerOptions kSgd{.kind = trainer::OptimizerKind::kSgd, .momentum = 0};

// Without hidden layers. At the kink of a rectifier the last bit of a sum decides whether a unit
// has a gradient. With 32 such units 3 of 25 correct runs met one, and ended 1e-5 to 4e-4 apart.
MlpModel<float> MakeModel() {
  return MlpModel<float>(trainer::kDigitFeatures, {}, trainer::kDigitClasses);
}

double GradientOf(MlpModel<float>& model, const DigitSet& set, const std::vector<size_t>& examples,
                  std::span<const float> x, std::span<float> gradient) {
  Eigen::MatrixXf inputs(trainer::kDigitFeatures, static_cast<Eigen::Index>(examples.size()));
  std::vector<uint8_t> labels;
  for (const size_t example : examples) {
    inputs.col(static_cast<Eigen::Index>(labels.size())) =
        set.features.col(static_cast<Eigen::Index>(example));
    labels.push_back(set.labels[example]);
  }
  return model.LossAndGradient(x, inputs, labels, gradient);
}

// What a worker has seen: examples, batch after batch.
struct Seen {
  std::vector<size_t> examples;
};

// One worker: batches of its own stream of examples.
class BatchModel : public simulator::DescentModel {
 public:
  BatchModel(const GradientsJob& job, const DigitSet& set, Rng rng, Seen& seen)
      : job_(job),
        set_(set),
        rng_(rng),
        seen_(seen),
        model_(MakeModel()),
        optimizer_(kSgd, model_.table()) {}
  size_t elements() const override { return model_.table().elements(); }
  void Start(std::span<float> x) const override {
    model_.Initialize(Rng(job_.seed).Fork("parameters"), x);
  }
  void Step(double, std::span<float>) override { CHECK(false); }  // it averages gradients
  uint64_t Gradient(std::span<const float> x, std::span<float> gradient) override {
    std::vector<size_t> examples;
    while (examples.size() < job_.batch) examples.push_back(rng_.Uniform(set_.size()));
    seen_.examples.insert(seen_.examples.end(), examples.begin(), examples.end());
    GradientOf(model_, set_, examples, x, gradient);
    return examples.size();
  }
  void Apply(std::span<const float> gradient, std::span<float> x) override {
    optimizer_.Step(kRate, gradient, x);
  }

 private:
  const GradientsJob job_;
  const DigitSet& set_;
  Rng rng_;
  Seen& seen_;
  MlpModel<float> model_;
  trainer::Optimizer optimizer_;
};

simulator::DescentOptions OptionsOf(const GradientsJob& job) {
  simulator::DescentOptions options;
  options.averaging.strategy = worker::StrategyKind::kAllReduce;
  options.averaging.compression = worker::WireFormat::kFloat32;
  options.averaging.overlap = worker::Overlap::kBlocking;
  options.averaging.global_batch = job.global_batch;
  options.members = job.members;
  options.chunk_elements = 256;
  options.seed = job.seed;
  options.deaths = {};
  options.joins = {};
  // Twice the time that the gradients take.
  const double batches = static_cast<double>(job.global_batch) /
                         static_cast<double>(job.batch * static_cast<size_t>(job.members));
  options.end = options.step_time * (2 * static_cast<double>(job.steps) * (batches + 1));
  return options;
}

// A step of the job: what it was made of, and what it made of worker 0.
struct Step {
  std::vector<size_t> examples;  // of all workers
  bool whole = true;             // all workers are in it
  std::vector<float> model;      // after it
};

// Steps that any worker took, in their order.
std::map<worker::AveragingId, Step> StepsOf(const simulator::DescentResult& run,
                                            const GradientsJob& job,
                                            const std::vector<Seen>& seen) {
  std::map<worker::AveragingId, Step> steps;
  for (size_t worker = 0; worker < run.averages.size(); ++worker) {
    for (const auto& [averaging, average] : run.averages[worker]) {
      if (average.model.empty()) continue;
      Step& step = steps[averaging];
      const auto end =
          seen[worker].examples.begin() + static_cast<std::ptrdiff_t>(average.steps * job.batch);
      step.examples.insert(step.examples.end(), end - static_cast<std::ptrdiff_t>(average.gathered),
                           end);
      step.model = average.model;
    }
  }
  // Whose gradient came too late for a round is in it with nothing, and takes the step.
  for (auto& [averaging, step] : steps) {
    for (const auto& worker : run.averages) {
      const auto own = worker.find(averaging);
      const bool in_it = own != worker.end() && !own->second.model.empty() &&
                         own->second.samples == static_cast<double>(step.examples.size());
      step.whole = step.whole && in_it;
    }
  }
  return steps;
}

double RelativeDifference(std::span<const float> got, std::span<const float> wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(wanted[i]), 2);
    norm += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace

GradientsComparison CompareWithLargeBatch(const GradientsJob& job) {
  const trainer::Digits digits = trainer::MakeDigits({.seed = job.seed});
  std::vector<Seen> seen(static_cast<size_t>(job.members));
  simulator::DescentOptions options = OptionsOf(job);
  options.worker = [&](int node) {
    return simulator::DescentWorker{
        std::make_unique<BatchModel>(job, digits.train,
                                     Rng(job.seed).Fork("examples").Fork(std::to_string(node)),
                                     seen[static_cast<size_t>(node)]),
        options.step_time};
  };
  const simulator::DescentResult run = simulator::RunDescent(options);

  GradientsComparison result;
  MlpModel<float> model = MakeModel();
  trainer::Optimizer optimizer(kSgd, model.table());
  std::vector<float> x(model.table().elements()), gradient(x.size());
  model.Initialize(Rng(job.seed).Fork("parameters"), x);
  for (const auto& [averaging, step] : StepsOf(run, job, seen)) {
    if (result.steps == job.steps) break;
    // The workers begin one after the other: the job is one process from its first whole step on.
    if (!step.whole) {
      result.steps = 0;
      x = step.model;
      continue;
    }
    GradientOf(model, digits.train, step.examples, x, gradient);
    optimizer.Step(kRate, gradient, x);
    ++result.steps;
    result.difference = RelativeDifference(step.model, x);
    result.bit_equal = true;
    for (const auto& worker : run.averages)
      result.bit_equal = result.bit_equal && worker.at(averaging).model == step.model;
  }
  return result;
}

}  // namespace crowdsurf::bench
