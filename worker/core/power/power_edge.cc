#include "worker/core/power/power_edge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

template <class Scalar>
PowerEdge<Scalar>::PowerEdge(std::shared_ptr<const PowerLayout> layout, const Rng& rng,
                             NullColumns null_columns)
    : layout_(std::move(layout)) {
  factors_.reserve(layout_->matrices().size());
  // The fork is named by where the matrix begins, so both ends draw the same factors.
  for (const PowerLayout::Matrix& matrix : layout_->matrices()) {
    factors_.emplace_back(matrix.tensor.shape, matrix.rank,
                          rng.Fork("matrix " + std::to_string(matrix.tensor.begin)), null_columns);
  }
}

template <class Scalar>
void PowerEdge<Scalar>::Project(std::span<const Scalar> snapshot, std::span<Scalar> message) {
  CHECK_EQ(snapshot.size(), layout_->elements());
  CHECK_EQ(message.size(), MessageSize());
  // A message has the projections of all matrices, in order, then what travels whole.
  size_t at = 0;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const TensorView& tensor = layout_->matrices()[i].tensor;
    const size_t size = factors_[i].MessageSize();
    factors_[i].Project(
        snapshot.subspan(tensor.begin, size_t{tensor.shape.rows} * tensor.shape.cols),
        message.subspan(at, size));
    at += size;
  }
  for (const Extent& part : layout_->whole()) {
    const auto values = snapshot.subspan(part.begin, part.count);
    std::copy(values.begin(), values.end(), message.begin() + static_cast<std::ptrdiff_t>(at));
    at += part.count;
  }
}

template <class Scalar>
void PowerEdge<Scalar>::Apply(std::span<const Scalar> low, std::span<const Scalar> high,
                              double step, std::span<Scalar> vector) {
  CHECK_EQ(vector.size(), layout_->elements());
  CHECK_EQ(low.size(), MessageSize());
  CHECK_EQ(high.size(), MessageSize());
  const auto weight = static_cast<Scalar>(step);
  size_t at = 0;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const TensorView& tensor = layout_->matrices()[i].tensor;
    const size_t size = factors_[i].MessageSize();
    factors_[i].Apply(low.subspan(at, size), high.subspan(at, size), weight,
                      vector.subspan(tensor.begin, size_t{tensor.shape.rows} * tensor.shape.cols));
    at += size;
  }
  for (const Extent& part : layout_->whole()) {
    for (size_t i = 0; i < part.count; ++i, ++at)
      vector[part.begin + i] += weight * (high[at] - low[at]);
  }
  ++iteration_;
}

template <class Scalar>
void PowerEdge<Scalar>::Restart(uint64_t iteration) {
  for (PowerFactors<Scalar>& factors : factors_) factors.Restart(iteration);
  iteration_ = iteration;
}

template <class Scalar>
uint64_t PowerEdge<Scalar>::Fingerprint() const {
  uint64_t mixed = 0;
  for (const PowerFactors<Scalar>& factors : factors_) {
    // The order of the matrices counts.
    mixed = (mixed ^ factors.Fingerprint()) * 1099511628211ULL;
  }
  return mixed;
}

template <class Scalar>
uint64_t PowerEdge<Scalar>::reseeded_columns() const {
  uint64_t sum = 0;
  for (const PowerFactors<Scalar>& factors : factors_) sum += factors.reseeded_columns();
  return sum;
}

template class PowerEdge<float>;
template class PowerEdge<double>;

}  // namespace crowdsurf::worker
