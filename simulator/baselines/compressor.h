// Compressor: what Choco and DeepSqueeze send in place of a vector: the signs, or the largest
// values.
//
// Applied to each tensor apart, as in the released code of PowerGossip (Vogels et al. 2020,
// arXiv 2008.01425). Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/vector/extent.h"

namespace crowdsurf::simulator {

struct Compressor {
  enum class Kind : uint8_t {
    kIdentity,
    kSign,  // sign(v) |v|_1 / size: Karimireddy et al. 2019 (arXiv 1901.09847)
    kTopK,  // the largest absolute values, at least one of a tensor
  };
  Kind kind = Kind::kIdentity;
  double keep = 0.01;  // kTopK: share of the values
  // The tensors, which do not overlap; what lies in none of them is lost.
  std::vector<worker::Extent> tensors = {};

  // v <- C(v).
  template <class Scalar>
  void Apply(std::span<Scalar> v) const;
  // Of one message. A value takes four bytes, and its index four.
  double bytes() const;
};

}  // namespace crowdsurf::simulator
