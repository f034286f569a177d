// Ngram: how many bits a character of the held-out text costs a counting model, the yardstick.
//
// Order n predicts a token from the n - 1 before it, with counts of the training text and
// Witten-Bell interpolation down to the uniform distribution (Bell, Witten, Cleary 1989, method C):
//   P_n(c | h) = (count(h c) + types(h) P_{n-1}(c | h')) / (count(h) + types(h)),
// where types(h) is the number of different tokens seen after h and h' is h without its first
// token. Scores the same tokens as the model: every token of a block but the first, with contexts
// that do not reach across a block's start. Pure. Cost: linear in the text, plus 256^n counters, so
// n <= 3.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/trainer/data/corpus.h"

namespace crowdsurf::trainer {

struct NgramBits {
  double unigram = 0, bigram = 0, trigram = 0;  // held-out cross-entropy, bits per character
};

NgramBits HeldOutNgramBits(const Corpus& corpus);

}  // namespace crowdsurf::trainer
