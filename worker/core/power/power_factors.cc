#include "worker/core/power/power_factors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

// Of squared lengths: below it a projection is nothing but the rounding of two equal messages, and
// a column lies in the space of those before it.
constexpr double kNull = 1e-24;

template <class Scalar>
double Dot(std::span<const Scalar> a, std::span<const Scalar> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace

template <class Scalar>
PowerFactors<Scalar>::PowerFactors(MatrixShape shape, uint32_t rank, Rng rng,
                                   NullColumns null_columns)
    : shape_(shape),
      rank_(rank),
      null_columns_(null_columns),
      rng_(rng),
      nulls_(rank, 0),
      undo_{{}, rng} {
  CHECK_GE(rank, 1u);
  CHECK_LE(rank, std::min(shape.rows, shape.cols));
  p_.resize(size_t{rank} * shape.rows);
  q_.resize(size_t{rank} * shape.cols);
  Draw(p_);
  Draw(q_);
}

template <class Scalar>
std::span<Scalar> PowerFactors<Scalar>::Column(std::vector<Scalar>& factor, uint32_t column) {
  const size_t length = factor.size() / rank_;
  return std::span(factor).subspan(column * length, length);
}

template <class Scalar>
void PowerFactors<Scalar>::Draw(std::span<Scalar> column) {
  for (Scalar& value : column) value = static_cast<Scalar>(rng_.Normal());
}

// Gram-Schmidt, twice: once leaves columns that were nearly parallel at an angle.
template <class Scalar>
void PowerFactors<Scalar>::Orthonormalise(std::vector<Scalar>& factor) {
  for (uint32_t c = 0; c < rank_; ++c) {
    const std::span<Scalar> column = Column(factor, c);
    for (int pass = 0; pass < 2; ++pass) {
      const double before = Dot<Scalar>(column, column);
      for (uint32_t other = 0; other < c; ++other) {
        const std::span<const Scalar> base = Column(factor, other);
        const double along = Dot<Scalar>(column, base);
        for (size_t i = 0; i < column.size(); ++i)
          column[i] = static_cast<Scalar>(column[i] - along * base[i]);
      }
      double length = Dot<Scalar>(column, column);
      if (!(length > kNull * before) || length == 0) {  // it says nothing new
        if (null_columns_ == NullColumns::kOverwrite) break;
        // A column drawn anew needs both passes.
        Draw(column);
        ++reseeded_;
        pass = -1;
        continue;
      }
      length = std::sqrt(length);
      for (Scalar& value : column) value = static_cast<Scalar>(value / length);
    }
  }
}

template <class Scalar>
void PowerFactors<Scalar>::Project(std::span<const Scalar> matrix, std::span<Scalar> message) {
  const size_t rows = shape_.rows, cols = shape_.cols;
  CHECK_EQ(matrix.size(), rows * cols);
  CHECK_EQ(message.size(), MessageSize());
  // Once an iteration: Restart takes it back where no Apply follows.
  if (!std::exchange(ready_, true)) {
    undo_ = {projector(), rng_};
    Orthonormalise(projector());
  }
  for (uint32_t c = 0; c < rank_; ++c) {
    const std::span<const Scalar> factor = Column(projector(), c);
    const std::span<Scalar> out = message.subspan(c * (odd() ? rows : cols), odd() ? rows : cols);
    if (odd()) {
      for (size_t i = 0; i < rows; ++i)
        out[i] = static_cast<Scalar>(Dot<Scalar>(matrix.subspan(i * cols, cols), factor));
      continue;
    }
    // By rows, as the matrix lies in memory.
    std::vector<double> sums(cols, 0.0);
    for (size_t i = 0; i < rows; ++i) {
      const std::span<const Scalar> row = matrix.subspan(i * cols, cols);
      const double weight = factor[i];
      for (size_t j = 0; j < cols; ++j) sums[j] += weight * static_cast<double>(row[j]);
    }
    for (size_t j = 0; j < cols; ++j) out[j] = static_cast<Scalar>(sums[j]);
  }
}

// False: the column is null, and keeps its old estimate.
template <class Scalar>
bool PowerFactors<Scalar>::TakeColumn(uint32_t column, std::span<const Scalar> low,
                                      std::span<const Scalar> high) {
  std::vector<Scalar> difference(low.size());
  for (size_t i = 0; i < low.size(); ++i) difference[i] = high[i] - low[i];
  const std::span<const Scalar> d(difference);
  const bool null = Dot<Scalar>(d, d) <= kNull * (Dot<Scalar>(low, low) + Dot<Scalar>(high, high));
  if (null && null_columns_ == NullColumns::kKeep) {
    // Both ends see the same difference, so they draw at the same iteration.
    if (++nulls_[column] == kMaxNulls) {
      nulls_[column] = 0;
      ++reseeded_;
      Draw(Column(estimate(), column));
    }
    return false;
  }
  nulls_[column] = 0;
  std::copy(difference.begin(), difference.end(), Column(estimate(), column).begin());
  return true;
}

template <class Scalar>
void PowerFactors<Scalar>::AddOuter(uint32_t column, Scalar step, std::span<Scalar> matrix) {
  const std::span<const Scalar> p = Column(p_, column);
  const std::span<const Scalar> q = Column(q_, column);
  for (size_t i = 0; i < p.size(); ++i) {
    const Scalar weight = step * p[i];
    const std::span<Scalar> row = matrix.subspan(i * q.size(), q.size());
    for (size_t j = 0; j < q.size(); ++j) row[j] += weight * q[j];
  }
}

template <class Scalar>
void PowerFactors<Scalar>::Apply(std::span<const Scalar> low, std::span<const Scalar> high,
                                 Scalar step, std::span<Scalar> matrix) {
  CHECK(ready_);
  CHECK_EQ(low.size(), MessageSize());
  CHECK_EQ(high.size(), MessageSize());
  const size_t length = MessageSize() / rank_;
  for (uint32_t c = 0; c < rank_; ++c) {
    if (TakeColumn(c, low.subspan(c * length, length), high.subspan(c * length, length)))
      AddOuter(c, step, matrix);
  }
  ++iteration_;
  ready_ = false;
}

template <class Scalar>
void PowerFactors<Scalar>::Restart(uint64_t iteration) {
  CHECK_GE(iteration, 1u);
  if (std::exchange(ready_, false)) {
    projector() = undo_.projector;
    rng_ = undo_.rng;
  }
  iteration_ = iteration;
}

template <class Scalar>
uint64_t PowerFactors<Scalar>::Fingerprint() const {
  const auto mix = [](const auto& values, uint64_t key) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    return ContentHash({bytes, values.size() * sizeof(values[0])}, key);
  };
  // The nulls as well: they decide when a column is drawn anew.
  return mix(nulls_, mix(q_, mix(p_, 0)));
}

template class PowerFactors<float>;
template class PowerFactors<double>;

}  // namespace crowdsurf::worker
