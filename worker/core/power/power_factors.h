// PowerFactors: the rank-r factors that the two ends of an edge keep of one matrix, and the half
// power iterations that improve them.
//
// Source: PowerGossip (Vogels, Karimireddy, Jaggi 2020, arXiv 2008.01425, algorithm 1) and the
// notes of docs/strategies. D = X_high - X_low is the difference of the ends' matrices. Each end
// projects its own matrix on one factor; the difference of the two projections is the other factor:
//   odd k:  Q <- orth(Q), u = X Q,    P <- u_high - u_low
//   even k: P <- orth(P), u = X^T P,  Q <- u_high - u_low
// and P Q^T is D projected on the space of the orthonormal factor. So the estimate never exceeds D,
// and needs no step size of its own. Both ends compute the same factors to the bit from the same
// two messages: the arithmetic that they share is scalar, in double, in one order.
// Differs from the released code: a column whose projection is null keeps its old factor (the
// released code writes the zero, and orth(0) is dead), and factors are orthonormal to rounding, not
// to an epsilon of 1e-8. Value; single sequence. Memory: 2 * rank * (rows + cols). Scalar: float in
// production, double in paper tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "worker/core/vector/tensor_view.h"

namespace crowdsurf::worker {

// What becomes of a column whose projection is null. kOverwrite is the released code's way, for the
// bench alone: it kills the edge that begins at consensus.
enum class NullColumns : uint8_t { kKeep, kOverwrite };

template <class Scalar>
class PowerFactors {
 public:
  // Pre: 1 <= rank <= min(rows, cols). `rng`: equal at both ends.
  PowerFactors(MatrixShape shape, uint32_t rank, Rng rng,
               NullColumns null_columns = NullColumns::kKeep);

  uint32_t rank() const { return rank_; }
  // The next iteration, from 1.
  uint64_t iteration() const { return iteration_; }
  // Values of this end's message in that iteration: rank * rows, or rank * cols.
  size_t MessageSize() const { return rank_ * (odd() ? shape_.rows : shape_.cols); }

  // Writes this end's message: the projection of `matrix`, Scalar[rows][cols], column after column.
  // Pre: sizes fit. Costs rank * rows * cols multiplications.
  void Project(std::span<const Scalar> matrix, std::span<Scalar> message);

  // Ends the iteration with the messages of both ends, and adds `step` * P Q^T to `matrix`. The end
  // with the lower id steps by +W, the other by -W. Pre: Project was called in this iteration.
  void Apply(std::span<const Scalar> low, std::span<const Scalar> high, Scalar step,
             std::span<Scalar> matrix);

  // The next iteration is number `iteration`: the factors stay, and a Project without its Apply is
  // undone. Pre: iteration >= 1.
  void Restart(uint64_t iteration);
  // Of the factors' bits and of the nulls counted: equal at both ends, else they have come apart.
  uint64_t Fingerprint() const;

  std::span<const Scalar> p() const { return p_; }  // column after column
  std::span<const Scalar> q() const { return q_; }
  uint64_t reseeded_columns() const { return reseeded_; }

 private:
  static constexpr int kMaxNulls = 3;  // in a row: then the column looks elsewhere

  bool odd() const { return iteration_ % 2 == 1; }
  std::vector<Scalar>& projector() { return odd() ? q_ : p_; }  // orthonormal in this iteration
  std::vector<Scalar>& estimate() { return odd() ? p_ : q_; }   // replaced by it
  std::span<Scalar> Column(std::vector<Scalar>& factor, uint32_t column);
  void Draw(std::span<Scalar> column);
  void Orthonormalise(std::vector<Scalar>& factor);
  bool TakeColumn(uint32_t column, std::span<const Scalar> low, std::span<const Scalar> high);
  void AddOuter(uint32_t column, Scalar step, std::span<Scalar> matrix);

  const MatrixShape shape_;
  const uint32_t rank_;
  const NullColumns null_columns_;
  Rng rng_;
  std::vector<Scalar> p_, q_;  // rank columns of rows, of cols values
  std::vector<int> nulls_;     // in a row, by column
  uint64_t iteration_ = 1;
  bool ready_ = false;  // the projector is orthonormal
  struct Undo {         // what Project changes
    std::vector<Scalar> projector;
    Rng rng;
  };
  Undo undo_;
  uint64_t reseeded_ = 0;
};

extern template class PowerFactors<float>;
extern template class PowerFactors<double>;

}  // namespace crowdsurf::worker
