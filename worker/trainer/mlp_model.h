// MlpModel: a fully connected classifier with rectified hidden layers, gradients by hand.
//
// Hidden layer l is unit group l: its weight rows, its bias and the next layer's weight columns
// belong to the same units, which is what sub-network strategies cut by (IST, arXiv 1910.02120).
// Input features and classes are never cut. Weights are [out, in], row-major. S is float (training)
// or double (gradient checks). One thread owns a model; it keeps activations between calls.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

template <class S>
class MlpModel {
 public:
  using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic>;

  // features >= 1, classes 1..256, every hidden width >= 1; no hidden layer is a linear classifier.
  // Activations of hidden layer l are multiplied by scales[l]: 1 in a whole model, and where
  // `scales` is empty; in a sub-network what its absent units leave to the others.
  MlpModel(size_t features, std::vector<size_t> hidden, size_t classes, std::vector<S> scales = {});

  const ParameterTable& table() const { return table_; }

  // The sub-network with these units of the hidden layers: a smaller model, whose parameters are
  // the gathered ones of this, and whose activations are scaled for training. Pre:
  // table().units().Fits(sets).
  MlpModel SubnetOf(const worker::IndexSets& sets) const;

  // He initialisation (arXiv 1502.01852): variance 2 / inputs for the rectified layers, 1 / inputs
  // for the last; biases zero. Equal streams give equal bits.
  void Initialize(Rng rng, std::span<S> parameters) const;

  // inputs: [features x N]; labels: N classes. Mean cross-entropy in nats; gradient overwritten.
  double LossAndGradient(std::span<const S> parameters, const Matrix& inputs,
                         std::span<const uint8_t> labels, std::span<S> gradient);
  // Mean loss in nats; `correct` counts examples whose largest logit is the label.
  double Loss(std::span<const S> parameters, const Matrix& inputs, std::span<const uint8_t> labels,
              size_t& correct);

 private:
  using RowMatrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  void Forward(std::span<const S> parameters, const Matrix& inputs);

  ParameterTable table_;
  std::vector<Eigen::Index> widths_;  // features, hidden..., classes
  std::vector<S> scales_;             // of each hidden layer
  std::vector<Matrix> outputs_;       // of each layer; the last are the logits
};

extern template class MlpModel<float>;
extern template class MlpModel<double>;

}  // namespace crowdsurf::trainer
