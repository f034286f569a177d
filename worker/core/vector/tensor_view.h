// Tensor views: the tensors of the flat vector as matrices, for strategies that need shapes.
//
// The trainer declares them when it registers (docs/trainer-link.md). Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace crowdsurf::worker {

struct MatrixShape {
  uint32_t rows = 0;
  uint32_t cols = 0;
  bool operator==(const MatrixShape&) const = default;
};

// A tensor of the flat vector: rows * cols elements from `begin` on. cols = 1: it has no matrix
// view.
struct TensorView {
  uint64_t begin = 0;
  MatrixShape shape;
  bool operator==(const TensorView&) const = default;
};

using TensorViews = std::vector<TensorView>;  // ascending by `begin`, none overlaps another

}  // namespace crowdsurf::worker
