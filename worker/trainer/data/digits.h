// Digits: a small synthetic classification set in the likeness of 8 x 8 handwritten digits.
//
// Made in code from a seed, so that it needs no file and every worker has the same: each of ten
// classes is a template of soft blobs; an example is its template moved by up to one pixel, dimmed
// or brightened, under Gaussian noise. A linear classifier does not separate it fully, one hidden
// layer does much better. ShardByLabel cuts it into label-sorted shards, the hardest non-iid case
// for averaging. Pure.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::trainer {

inline constexpr size_t kDigitSide = 8;  // pixels
inline constexpr size_t kDigitFeatures = kDigitSide * kDigitSide;
inline constexpr size_t kDigitClasses = 10;

struct DigitSet {
  Eigen::MatrixXf features;     // [kDigitFeatures x examples]
  std::vector<uint8_t> labels;  // of each column

  size_t size() const { return labels.size(); }
};

struct Digits {
  DigitSet train, held_out;
};

struct DigitOptions {
  size_t train = 4000;
  size_t held_out = 1000;
  double noise = 0.4;  // standard deviation; templates have peaks of about 1
  uint64_t seed = 1;
};

Digits MakeDigits(const DigitOptions& options);

// Part `index` of `count` of the examples sorted by label (stable): with 10 shards about one label
// each. Sizes differ by at most one. Pre: index < count.
DigitSet ShardByLabel(const DigitSet& all, size_t index, size_t count);

}  // namespace crowdsurf::trainer
