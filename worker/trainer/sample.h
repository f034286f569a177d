// Sample: text that a language model makes up, character by character.
//
// Draws from the softmax of logits / temperature. Deterministic under its Rng; one thread, since
// the model's work space is used.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "worker/trainer/data/corpus.h"
#include "worker/trainer/gru_model.h"

namespace crowdsurf::trainer {

struct SampleOptions {
  std::string prompt;  // read first, not returned; bytes outside the vocabulary are passed over
  size_t most = 400;   // characters made up
  double temperature = 0.6;  // > 0; below 1 prefers the likely
  std::string stop;          // ends before its first occurrence; empty: never
};

// Deterministic for equal parameters, options and rng.
std::string Sample(GruModel<float>& model, std::span<const float> parameters,
                   const Vocabulary& vocabulary, const SampleOptions& options, Rng rng);

// A fortune: starts behind a "%" line, as the files of fortune(6) are parted, and ends before the
// next; when it comes out shorter than 40 characters another is made, at most 8 times. Texts
// without
// "%" lines give a passage of 400 characters. `start` is kept as its beginning.
std::string MakeUpFortune(GruModel<float>& model, std::span<const float> parameters,
                          const Vocabulary& vocabulary, std::string_view start, uint64_t seed);

}  // namespace crowdsurf::trainer
