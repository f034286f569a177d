// Softmax: cross-entropy over columns of logits and its gradient, shared by both models.
//
// Pure functions over Eigen matrices, one column an example. The column maximum is subtracted
// first, so that no finite logit overflows. Any thread.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace crowdsurf::trainer {

// logits: [classes x N]; on return (softmax - one_hot) / N, the gradient of the mean loss. targets:
// N class indices. Returns the mean cross-entropy in nats.
template <class Derived>
double SoftmaxLoss(Eigen::MatrixBase<Derived>& logits, std::span<const uint8_t> targets) {
  using S = typename Derived::Scalar;
  double loss = 0;
  const S scale = S(1) / static_cast<S>(logits.cols());
  for (Eigen::Index j = 0; j < logits.cols(); ++j) {
    auto column = logits.col(j);
    const S most = column.maxCoeff();
    const S target = column(targets[static_cast<size_t>(j)]) - most;
    column = (column.array() - most).exp().matrix();
    const S sum = column.sum();
    loss += std::log(static_cast<double>(sum)) - static_cast<double>(target);
    column *= scale / sum;
    column(targets[static_cast<size_t>(j)]) -= scale;
  }
  return loss * static_cast<double>(scale);
}

}  // namespace crowdsurf::trainer
