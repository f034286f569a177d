#include "worker/trainer/sample.h"

#include <cmath>

namespace crowdsurf::trainer {
namespace {

constexpr std::string_view kParting = "\n%\n";
constexpr size_t kShort = 40;  // characters: below it is hardly a fortune
constexpr int kAttempts = 8;

// Inverts the cumulative distribution. The largest logit is taken off, so no exp overflows.
uint8_t Draw(const GruModel<float>::Vector& logits, double temperature, Rng& rng) {
  const double most = static_cast<double>(logits.maxCoeff());
  double sum = 0;
  const auto weight = [&](Eigen::Index i) {
    return std::exp((static_cast<double>(logits(i)) - most) / temperature);
  };
  for (Eigen::Index i = 0; i < logits.size(); ++i) sum += weight(i);
  double left = rng.UniformDouble() * sum;
  for (Eigen::Index i = 0; i < logits.size(); ++i) {
    left -= weight(i);
    if (left < 0) return static_cast<uint8_t>(i);
  }
  // Rounding may leave a rest.
  return static_cast<uint8_t>(logits.size() - 1);
}

}  // namespace

std::string Sample(GruModel<float>& model, std::span<const float> parameters,
                   const Vocabulary& vocabulary, const SampleOptions& options, Rng rng) {
  using Vector = GruModel<float>::Vector;
  Vector state = Vector::Zero(static_cast<Eigen::Index>(model.hidden()));
  // Equal logits: without a prompt the first character is drawn from all alike.
  Vector logits = Vector::Zero(static_cast<Eigen::Index>(model.vocabulary()));
  for (const uint8_t token : vocabulary.Encode(options.prompt)) {
    logits = model.Advance(parameters, token, state);
  }
  std::string text;
  while (text.size() < options.most) {
    const uint8_t token = Draw(logits, options.temperature, rng);
    text.push_back(vocabulary.ByteOf(token));
    if (!options.stop.empty() && text.ends_with(options.stop)) {
      text.resize(text.size() - options.stop.size());
      break;
    }
    logits = model.Advance(parameters, token, state);
  }
  return text;
}

std::string MakeUpFortune(GruModel<float>& model, std::span<const float> parameters,
                          const Vocabulary& vocabulary, std::string_view start, uint64_t seed) {
  const Rng rng = Rng(seed).Fork("fortune");
  SampleOptions options;
  options.prompt = std::string(kParting).append(start);
  if (vocabulary.TokenOf('%')) options.stop = "\n%";
  std::string text;
  for (int attempt = 0; attempt < kAttempts && text.size() < kShort; ++attempt) {
    // A stream of its own: what an attempt draws does not depend on how long the last one was.
    text = Sample(model, parameters, vocabulary, options, rng.Fork(std::to_string(attempt)));
  }
  return std::string(start).append(text);
}

}  // namespace crowdsurf::trainer
