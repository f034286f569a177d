#include "worker/trainer/data/ngram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace crowdsurf::trainer {
namespace {

// Counts for one context length: after context h (a number in base V), token c came count[h * V +
// c] times.
class ContextCounts {
 public:
  ContextCounts(std::span<const uint8_t> text, size_t vocabulary, size_t length)
      : vocabulary_(vocabulary), length_(length) {
    size_t contexts = 1;
    for (size_t i = 0; i < length; ++i) contexts *= vocabulary;
    count_.assign(contexts * vocabulary, 0);
    total_.assign(contexts, 0);
    types_.assign(contexts, 0);
    for (size_t i = length; i < text.size(); ++i) {
      const size_t h = Context(text, i);
      if (count_[h * vocabulary + text[i]]++ == 0) ++types_[h];
      ++total_[h];
    }
  }

  // Interpolates `shorter`, the probability under the next shorter context. Pre: at >= length.
  double Probability(std::span<const uint8_t> text, size_t at, double shorter) const {
    const size_t h = Context(text, at);
    if (total_[h] == 0) return shorter;
    // Witten-Bell, method C: the formula of ngram.h.
    const double types = types_[h];
    return (count_[h * vocabulary_ + text[at]] + types * shorter) / (total_[h] + types);
  }

 private:
  size_t Context(std::span<const uint8_t> text, size_t at) const {
    size_t h = 0;
    for (size_t i = at - length_; i < at; ++i) h = h * vocabulary_ + text[i];
    return h;
  }
  size_t vocabulary_, length_;
  std::vector<uint32_t> count_, total_, types_;
};

}  // namespace

NgramBits HeldOutNgramBits(const Corpus& corpus) {
  const size_t vocabulary = corpus.vocabulary.size();
  std::vector<ContextCounts> orders;
  for (size_t length = 0; length < 3; ++length) {
    orders.emplace_back(corpus.train, vocabulary, length);
  }
  std::array<double, 3> bits{};
  size_t scored = 0;
  for (const std::vector<uint8_t>& block : corpus.held_out) {
    for (size_t at = 1; at < block.size(); ++at, ++scored) {
      double p = 1.0 / static_cast<double>(vocabulary);
      for (size_t length = 0; length < orders.size(); ++length) {
        // Near the start of a block longer contexts do not exist: the shorter one stands for them.
        if (at >= length) p = orders[length].Probability(block, at, p);
        bits[length] -= std::log2(p);
      }
    }
  }
  const double n = static_cast<double>(std::max<size_t>(1, scored));
  return {.unigram = bits[0] / n, .bigram = bits[1] / n, .trigram = bits[2] / n};
}

}  // namespace crowdsurf::trainer
