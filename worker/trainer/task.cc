#include "worker/trainer/task.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

// Quick evaluation: 32 windows of 256 characters are 8,192, some 20 ms of one core, and the same
// ones every time, so that the curve is smooth.
constexpr size_t kQuickBlocks = 32;
constexpr size_t kQuickTokens = 256;
// Evaluation runs this many characters of this many blocks at once: bounds the work space to 20 MB.
constexpr size_t kEvaluationTime = 64;
constexpr size_t kEvaluationWidth = 64;

// Sum of nats over tokens 1.. of blocks that are all (at least) `length` long.
double SumOfNats(GruModel<float>& model, std::span<const float> parameters,
                 std::span<const std::vector<uint8_t>* const> blocks, size_t length) {
  const size_t width = blocks.size();
  GruModel<float>::Matrix state = GruModel<float>::Matrix::Zero(
      static_cast<Eigen::Index>(model.hidden()), static_cast<Eigen::Index>(width));
  std::vector<uint8_t> inputs, targets;
  double nats = 0;
  for (size_t first = 0; first + 1 < length; first += kEvaluationTime) {
    const size_t time = std::min(kEvaluationTime, length - 1 - first);
    inputs.clear();
    targets.clear();
    for (size_t t = first; t < first + time; ++t) {
      for (const std::vector<uint8_t>* block : blocks) {
        inputs.push_back((*block)[t]);
        targets.push_back((*block)[t + 1]);
      }
    }
    const TokenBatch batch{.time = time, .width = width, .inputs = inputs, .targets = targets};
    nats += model.Loss(parameters, batch, state) * static_cast<double>(time * width);
  }
  return nats;
}

// A window jumps to another place this often: a state is carried over some thousand characters, as
// in evaluation and in made-up text, and every worker still sees the whole text.
constexpr double kJump = 1.0 / 16;

}  // namespace

Status Task::TrainUnits(const worker::IndexSets&) {
  return absl::UnimplementedError("this model has no unit groups: it is trained whole");
}

double HeldOutBits(GruModel<float>& model, std::span<const float> parameters,
                   const std::vector<std::vector<uint8_t>>& blocks, size_t most) {
  const auto length_of = [&](const std::vector<uint8_t>* b) { return std::min(most, b->size()); };
  std::vector<const std::vector<uint8_t>*> sorted;
  sorted.reserve(blocks.size());
  for (const auto& block : blocks) sorted.push_back(&block);
  // Blocks of one length are scored together, as the columns of one matrix.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](auto* a, auto* b) { return length_of(a) < length_of(b); });
  double nats = 0;
  size_t scored = 0;
  for (size_t first = 0; first < sorted.size();) {
    const size_t length = length_of(sorted[first]);
    size_t last = first + 1;
    while (last < sorted.size() && last - first < kEvaluationWidth &&
           length_of(sorted[last]) == length) {
      ++last;
    }
    nats += SumOfNats(model, parameters, std::span(sorted).subspan(first, last - first), length);
    scored += (last - first) * (length - 1);
    first = last;
  }
  return nats / std::numbers::ln2 / static_cast<double>(std::max<size_t>(1, scored));
}

CharTask::CharTask(Corpus corpus, const CharTaskOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      model_(corpus_.vocabulary.size(), options.hidden),
      inputs_(options.batch * options.window),
      targets_(inputs_.size()) {
  CHECK_GT(corpus_.train.size(), options.window);
  CHECK(!inputs_.empty());
}

void CharTask::Initialize(uint64_t seed, std::span<float> parameters) const {
  model_.Initialize(Rng(seed).Fork("parameters"), parameters);
}

Status CharTask::TrainUnits(const worker::IndexSets& sets) {
  subnet_.reset();
  if (!sets.empty()) subnet_.emplace(model_.SubnetOf(sets));
  return absl::OkStatus();
}

BatchResult CharTask::Gradient(DataOrder& data, std::span<const float> parameters,
                               std::span<float> gradient) {
  const std::vector<uint8_t>& text = corpus_.train;
  const size_t width = options_.batch, time = options_.window;
  GruModel<float>& model = subnet_ ? *subnet_ : model_;
  const bool first = data.positions.empty();
  if (first) data.positions.resize(width);
  // As large as what is trained: a sub-network has fewer units.
  if (data.state.size() == 0)
    data.state.setZero(static_cast<Eigen::Index>(model.hidden()), static_cast<Eigen::Index>(width));
  for (size_t b = 0; b < width; ++b) {
    size_t& position = data.positions[b];
    // The last target lies at position + time.
    if (first || position + time >= text.size() || data.rng.Bernoulli(kJump)) {
      position = data.rng.Uniform(text.size() - time);
      data.state.col(static_cast<Eigen::Index>(b)).setZero();
    }
    for (size_t t = 0; t < time; ++t) {
      inputs_[t * width + b] = text[position + t];
      targets_[t * width + b] = text[position + t + 1];
    }
    position += time;
  }
  const TokenBatch batch{.time = time, .width = width, .inputs = inputs_, .targets = targets_};
  const double nats = model.LossAndGradient(parameters, batch, data.state, gradient);
  return {.loss = nats / std::numbers::ln2, .samples = inputs_.size()};
}

std::vector<Metric> CharTask::Evaluate(std::span<const float> parameters, Evaluation how) {
  // Of the whole model, also while a sub-network trains: the metric is the job's.
  if (how == Evaluation::kFull) {
    return {{"heldout_bits_per_char",
             HeldOutBits(model_, parameters, corpus_.held_out, std::string::npos)}};
  }
  // Every stride-th block, so that the few are spread over the whole text.
  const size_t stride = (corpus_.held_out.size() + kQuickBlocks - 1) / kQuickBlocks;
  std::vector<std::vector<uint8_t>> few;
  for (size_t i = 0; i < corpus_.held_out.size(); i += stride) few.push_back(corpus_.held_out[i]);
  // One more than is scored: a block's first token is only read.
  return {{"heldout_bits_per_char", HeldOutBits(model_, parameters, few, kQuickTokens + 1)}};
}

std::map<std::string, std::string> CharTask::Metadata() const {
  // Hexadecimal, because metadata must be UTF-8 and the vocabulary need not be.
  return {{"model", "charlm"}, {"vocabulary", ToHex(AsBytes(corpus_.vocabulary.bytes()))}};
}

DigitTask::DigitTask(DigitSet train, DigitSet held_out, const DigitTaskOptions& options)
    : train_(std::move(train)),
      held_out_(std::move(held_out)),
      options_(options),
      model_(kDigitFeatures, options.hidden, kDigitClasses),
      inputs_(kDigitFeatures, static_cast<Eigen::Index>(options.batch)),
      labels_(options.batch) {
  CHECK(train_.size() > 0 && held_out_.size() > 0 && options.batch > 0);
}

void DigitTask::Initialize(uint64_t seed, std::span<float> parameters) const {
  model_.Initialize(Rng(seed).Fork("parameters"), parameters);
}

Status DigitTask::TrainUnits(const worker::IndexSets& sets) {
  subnet_.reset();
  if (!sets.empty()) subnet_.emplace(model_.SubnetOf(sets));
  return absl::OkStatus();
}

BatchResult DigitTask::Gradient(DataOrder& data, std::span<const float> parameters,
                                std::span<float> gradient) {
  for (size_t j = 0; j < options_.batch; ++j) {
    const size_t example = data.rng.Uniform(train_.size());
    inputs_.col(static_cast<Eigen::Index>(j)) =
        train_.features.col(static_cast<Eigen::Index>(example));
    labels_[j] = train_.labels[example];
  }
  MlpModel<float>& model = subnet_ ? *subnet_ : model_;
  return {.loss = model.LossAndGradient(parameters, inputs_, labels_, gradient),
          .samples = options_.batch};
}

std::vector<Metric> DigitTask::Evaluate(std::span<const float> parameters, Evaluation) {
  size_t correct = 0;
  // All of it at each evaluation: the held-out examples are few.
  const double loss = model_.Loss(parameters, held_out_.features, held_out_.labels, correct);
  const double accuracy = static_cast<double>(correct) / static_cast<double>(held_out_.size());
  return {{"heldout_loss", loss}, {"heldout_accuracy", accuracy}};
}

std::map<std::string, std::string> DigitTask::Metadata() const { return {{"model", "mlp"}}; }

}  // namespace crowdsurf::trainer
