// PowerLayout: which tensors of the flat vector travel as factors of low rank, and which as they
// are.
//
// Source: PowerGossip (Vogels et al. 2020), section 3: tensors of two and more dimensions are
// matrices, shape[0] by the rest; those of one dimension are sent whole. Also a matrix is sent
// whole when its factors would not be half as large. Value; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/vector/mix.h"
#include "worker/core/vector/tensor_view.h"

namespace crowdsurf::worker {

class PowerLayout {
 public:
  struct Matrix {
    TensorView tensor;
    uint32_t rank = 1;
    bool operator==(const Matrix&) const = default;
  };

  // Pre: `tensors` ascend by `begin` and do not overlap; `elements` >= their end; rank >= 1.
  // Elements that no tensor covers travel whole.
  PowerLayout(std::span<const TensorView> tensors, uint64_t elements, uint32_t rank);

  const std::vector<Matrix>& matrices() const { return matrices_; }
  const std::vector<Extent>& whole() const { return whole_; }  // ascending, none empty
  uint64_t elements() const { return elements_; }
  uint64_t whole_elements() const { return whole_elements_; }
  // Values of one message: rank * sum of rows (odd iterations) or of cols (even), and what travels
  // whole.
  uint64_t MessageSize(uint64_t iteration) const;
  bool operator==(const PowerLayout&) const = default;

 private:
  void AddWhole(uint64_t begin, uint64_t end);

  std::vector<Matrix> matrices_;
  std::vector<Extent> whole_;
  uint64_t elements_ = 0;
  uint64_t whole_elements_ = 0;
};

}  // namespace crowdsurf::worker
