// Task: what is trained on what, as the training loop sees it: a table, gradients, held-out
// metrics.
//
// CharTask is the language model on text, DigitTask the classifier on the synthetic digits. A task
// owns its model's work space, so one thread owns a task; the parameters stay with the caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "worker/trainer/data/corpus.h"
#include "worker/trainer/data/digits.h"
#include "worker/trainer/gru_model.h"
#include "worker/trainer/mlp_model.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

struct Metric {
  std::string name;
  double value;
};

struct BatchResult {
  double loss = 0;       // mean over the batch, in the task's unit
  uint64_t samples = 0;  // what the batch counts in the job: characters, or examples
};

// Where a worker is in its data: owned by its Training, filled by the task. Never leaves the
// worker.
struct DataOrder {
  explicit DataOrder(Rng r) : rng(r) {}
  Rng rng;
  std::vector<size_t> positions;  // CharTask: next character of each window
  Eigen::MatrixXf state;          // CharTask: recurrent state there; empty: starts at zero
};

enum class Evaluation {
  kQuick,  // some tens of milliseconds: every few hundred steps
  kFull,   // everything held out: at the end
};

class Task {
 public:
  virtual ~Task() = default;
  virtual const ParameterTable& table() const = 0;
  // Equal seeds give equal bits at every worker.
  virtual void Initialize(uint64_t seed, std::span<float> parameters) const = 0;
  // From the next Gradient on, only these units are trained: its spans then hold the values of that
  // sub-network alone, packed (worker/core/subnet/subnet.h). No sets: the whole model again.
  // Unimplemented where the model has no unit groups. Pre: table().units().Fits(sets).
  virtual Status TrainUnits(const worker::IndexSets& sets);
  // Takes the next batch of `data` and writes its gradient.
  virtual BatchResult Gradient(DataOrder& data, std::span<const float> parameters,
                               std::span<float> gradient) = 0;
  // Always the same names in the same order.
  virtual std::vector<Metric> Evaluate(std::span<const float> parameters, Evaluation how) = 0;
  // For the model file: what a reader needs beside the tensors.
  virtual std::map<std::string, std::string> Metadata() const = 0;
};

struct CharTaskOptions {
  size_t hidden = 128;
  size_t batch = 8;    // windows a step
  size_t window = 64;  // characters of a window that are predicted
};

// Loss: bits per character. Samples: characters. Metric: heldout_bits_per_char. A window goes on
// where the one before it in its place of the batch ended, with its state, sixteen windows long on
// average; then it jumps to a random character and starts from zero.
class CharTask : public Task {
 public:
  // Pre: the training part is longer than a window.
  CharTask(Corpus corpus, const CharTaskOptions& options);
  const ParameterTable& table() const override { return model_.table(); }
  void Initialize(uint64_t seed, std::span<float> parameters) const override;
  Status TrainUnits(const worker::IndexSets& sets) override;
  BatchResult Gradient(DataOrder& data, std::span<const float> parameters,
                       std::span<float> gradient) override;
  std::vector<Metric> Evaluate(std::span<const float> parameters, Evaluation how) override;
  std::map<std::string, std::string> Metadata() const override;

  const Corpus& corpus() const { return corpus_; }
  GruModel<float>& model() { return model_; }

 private:
  Corpus corpus_;
  CharTaskOptions options_;
  GruModel<float> model_;
  std::optional<GruModel<float>> subnet_;  // what is trained, where that is not all
  std::vector<uint8_t> inputs_, targets_;
};

// Bits per character of `model` on the first `most` tokens of each of the blocks, all tokens but
// the first scored, the state carried through a block.
double HeldOutBits(GruModel<float>& model, std::span<const float> parameters,
                   const std::vector<std::vector<uint8_t>>& blocks, size_t most);

struct DigitTaskOptions {
  std::vector<size_t> hidden = {64, 64};
  size_t batch = 32;
};

// Loss: nats. Samples: examples. Metrics: heldout_loss, heldout_accuracy.
class DigitTask : public Task {
 public:
  // `train` may be a shard. Pre: neither set is empty.
  DigitTask(DigitSet train, DigitSet held_out, const DigitTaskOptions& options);
  const ParameterTable& table() const override { return model_.table(); }
  void Initialize(uint64_t seed, std::span<float> parameters) const override;
  Status TrainUnits(const worker::IndexSets& sets) override;
  BatchResult Gradient(DataOrder& data, std::span<const float> parameters,
                       std::span<float> gradient) override;
  std::vector<Metric> Evaluate(std::span<const float> parameters, Evaluation how) override;
  std::map<std::string, std::string> Metadata() const override;

 private:
  DigitSet train_, held_out_;
  DigitTaskOptions options_;
  MlpModel<float> model_;
  std::optional<MlpModel<float>> subnet_;  // what is trained, where that is not all
  Eigen::MatrixXf inputs_;
  std::vector<uint8_t> labels_;
};

}  // namespace crowdsurf::trainer
