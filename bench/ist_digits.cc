#include "bench/ist_digits.h"

#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "bench/ist_exchange.h"
#include "worker/trainer/training.h"

namespace crowdsurf::bench {
namespace {

// As agents cut it: 128 KiB of float32.
constexpr uint32_t kChunkElements = 32'768;

struct IstWorker {
  IstWorker(const IstDigitsOptions& options, const trainer::Digits& digits, uint32_t index)
      : task(digits.train, digits.held_out, {.hidden = options.hidden}),
        training(task, OptionsOf(options, index)) {}

  static trainer::TrainingOptions OptionsOf(const IstDigitsOptions& options, uint32_t index) {
    trainer::TrainingOptions training;
    training.seed = options.seed;
    training.worker = "digits-" + std::to_string(index);
    training.optimizer = options.optimizer;
    training.schedule.rate = options.learning_rate;
    return training;
  }

  trainer::DigitTask task;
  trainer::Training training;
};

using Workers = std::vector<std::unique_ptr<IstWorker>>;

// The partition of averaging k; local SGD has no units to cut.
worker::UnitPartition PartitionOf(const IstDigitsOptions& options, const worker::UnitSchema& schema,
                                  uint64_t averaging) {
  const auto units = options.cut == Cut::kSubnets ? schema.units() : std::map<uint32_t, uint32_t>();
  return worker::UnitPartition({options.seed, 1, worker::AveragingId(averaging)},
                               std::vector<uint32_t>(options.workers, 1), units);
}

// Without units every coordinate has all workers for coverers, and the exchange is a plain mean.
worker::UnitSchema SchemaOf(const IstDigitsOptions& options, const trainer::ParameterTable& table) {
  if (options.cut == Cut::kSubnets) return table.units();
  auto whole = worker::UnitSchema::Of({{"all", {table.elements()}, {}}});
  CHECK(whole.ok());
  return *std::move(whole);
}

}  // namespace

IstDigitsResult RunIstDigits(const IstDigitsOptions& options) {
  const trainer::Digits digits = trainer::MakeDigits({.seed = options.seed});
  Workers workers;
  // Views of the trainers' own parameters: the exchange writes into them.
  std::vector<std::span<float>> models;
  for (uint32_t i = 0; i < options.workers; ++i) {
    workers.push_back(std::make_unique<IstWorker>(options, digits, i));
    models.push_back(workers.back()->training.parameters());
  }
  const worker::UnitSchema schema = SchemaOf(options, workers.front()->task.table());
  for (uint64_t k = 1; k <= options.averagings; ++k) {
    // Dealt anew for each averaging.
    const worker::UnitPartition partition = PartitionOf(options, schema, k);
    for (uint32_t i = 0; i < options.workers; ++i) {
      CHECK(workers[i]->training.TrainUnits(partition.SetsOf(i)).ok());
      for (uint64_t step = 0; step < options.local_steps; ++step) workers[i]->training.Step(1.0);
    }
    AverageSubnets(worker::SubnetExchange(schema, partition, kChunkElements), models);
  }
  IstDigitsResult result;
  // After an exchange all members hold the same model; the first stands for all.
  result.model.assign(models.front().begin(), models.front().end());
  for (const trainer::Metric& metric :
       workers.front()->task.Evaluate(models.front(), trainer::Evaluation::kFull)) {
    if (metric.name == "heldout_accuracy") result.accuracy = 100 * metric.value;
  }
  return result;
}

bool IstOfOneIsPlain(uint64_t seed) {
  using trainer::OptimizerKind;
  const trainer::Digits digits = trainer::MakeDigits({.seed = seed});
  // Optimizers with state, too: the sub-network of one worker is the whole model, so it is kept.
  for (const trainer::OptimizerOptions& optimizer :
       {trainer::OptimizerOptions{.kind = OptimizerKind::kSgd, .momentum = 0},
        {.kind = OptimizerKind::kSgd, .momentum = 0.9},
        {.kind = OptimizerKind::kAdam}}) {
    const IstDigitsOptions options{.workers = 1,
                                   .averagings = 20,
                                   .optimizer = optimizer,
                                   .learning_rate = 0.01,
                                   .seed = seed};
    IstWorker plain(options, digits, 0);
    for (uint64_t step = 0; step < options.averagings * options.local_steps; ++step)
      plain.training.Step(1.0);
    const auto expected = plain.training.parameters();
    if (RunIstDigits(options).model != std::vector<float>(expected.begin(), expected.end()))
      return false;
  }
  return true;
}

}  // namespace crowdsurf::bench
