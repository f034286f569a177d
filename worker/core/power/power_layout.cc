#include "worker/core/power/power_layout.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

PowerLayout::PowerLayout(std::span<const TensorView> tensors, uint64_t elements, uint32_t rank)
    : elements_(elements) {
  CHECK_GE(rank, 1u);
  uint64_t covered = 0;
  for (const TensorView& tensor : tensors) {
    const uint64_t rows = tensor.shape.rows, cols = tensor.shape.cols;
    CHECK_GE(tensor.begin, covered);
    // What no matrix covers travels whole.
    AddWhole(covered, tensor.begin);
    covered = tensor.begin + rows * cols;
    const auto r = static_cast<uint32_t>(std::min<uint64_t>({rank, rows, cols}));
    // Factors of more than half its size save too little: the matrix travels whole.
    if (uint64_t{2} * r * (rows + cols) <= rows * cols) {
      matrices_.push_back({tensor, r});
    } else {
      AddWhole(tensor.begin, covered);
    }
  }
  CHECK_LE(covered, elements);
  AddWhole(covered, elements);
}

void PowerLayout::AddWhole(uint64_t begin, uint64_t end) {
  if (begin == end) return;
  whole_elements_ += end - begin;
  if (!whole_.empty() && whole_.back().begin + whole_.back().count == begin) {
    whole_.back().count += end - begin;
  } else {
    whole_.push_back({begin, end - begin});
  }
}

uint64_t PowerLayout::MessageSize(uint64_t iteration) const {
  uint64_t size = whole_elements_;
  for (const Matrix& matrix : matrices_) {
    const MatrixShape& shape = matrix.tensor.shape;
    size += uint64_t{matrix.rank} * (iteration % 2 == 1 ? shape.rows : shape.cols);
  }
  return size;
}

}  // namespace crowdsurf::worker
