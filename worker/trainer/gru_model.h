// GruModel: a character-level language model, one gated recurrent layer, gradients by hand.
//
// h' = z h + (1 - z) c, with r, z = sigmoid(W x + U h + b) and c = tanh(W x + r (U h) + b): Cho et
// al. 2014 (arXiv 1406.1078) in the "reset after" form, so that the three products with h are one
// matrix product. Differs from paper: inputs are bytes, so W is a table of rows, no product; one
// bias, not two. Logits are a linear map of h'. Matrices of activations are [units x time*width],
// column t*width + b, so that a time step is a block of columns and the products outside the
// recurrence are one large product each. The hidden units are unit group 0: each is a row of every
// gate, and a column of all that reads the state.
// S is float (training) or double (gradient checks). One thread owns a model: it keeps its
// activations between calls to save allocation: about 40 bytes x hidden x time x width for float.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

// `width` windows of `time` tokens, borrowed. inputs and targets: [time][width], time-major.
struct TokenBatch {
  size_t time = 0;
  size_t width = 0;
  std::span<const uint8_t> inputs;
  std::span<const uint8_t> targets;
};

template <class S>
class GruModel {
 public:
  using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic>;
  using Vector = Eigen::Matrix<S, Eigen::Dynamic, 1>;

  // vocabulary: 1..256 tokens; hidden: units >= 1. scale: of the state where a matrix reads it, 1
  // in a whole model; in a sub-network what its absent units leave to the others.
  GruModel(size_t vocabulary, size_t hidden, S scale = S(1));

  const ParameterTable& table() const { return table_; }
  // The sub-network with these hidden units: as MlpModel::SubnetOf.
  GruModel SubnetOf(const worker::IndexSets& sets) const;
  size_t vocabulary() const { return static_cast<size_t>(vocabulary_); }
  size_t hidden() const { return static_cast<size_t>(hidden_); }

  // Fills `parameters` (table().elements() values); equal streams give equal bits.
  void Initialize(Rng rng, std::span<S> parameters) const;

  // Mean loss in nats over the batch; `gradient` (same size as the parameters) is overwritten.
  // `state` [hidden x width] is where the windows start, as constants, and is left at their last
  // step (truncated back-propagation through time). Cost: about 6 multiply-adds a parameter and
  // token.
  double LossAndGradient(std::span<const S> parameters, const TokenBatch& batch, Matrix& state,
                         std::span<S> gradient);

  // Mean loss in nats, no gradient. `state` [hidden x width] is read and left at the last step, so
  // that long texts are evaluated in pieces. Pre: state has that shape.
  double Loss(std::span<const S> parameters, const TokenBatch& batch, Matrix& state);

  // Reads one token, moves `state` [hidden] on, and returns the logits [vocabulary] of the next.
  Vector Advance(std::span<const S> parameters, uint8_t token, Vector& state);

 private:
  using RowMatrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Weights = Eigen::Map<const RowMatrix>;
  using Gradients = Eigen::Map<RowMatrix>;
  // Views into a flat vector, by name.
  template <class M, class Flat>
  struct Tensors {
    M input, recurrent, bias, output, output_bias;
  };
  Tensors<Weights, const S> Read(std::span<const S> flat) const;
  Tensors<Gradients, S> Write(std::span<S> flat) const;

  // Fills states_ (whose first block is the initial state), the gates and logits_.
  void Forward(const Tensors<Weights, const S>& p, const TokenBatch& batch, const Matrix& initial);
  void StepForward(const Tensors<Weights, const S>& p, const TokenBatch& batch, Eigen::Index t);
  // Back through time from `d_output` = d loss / d states; fills d_recurrent_ and d_input_.
  void Backward(const Tensors<Weights, const S>& p, const TokenBatch& batch,
                const Matrix& d_output);

  ParameterTable table_;
  Eigen::Index vocabulary_, hidden_;
  S scale_;
  Matrix states_;                                 // [hidden x (time + 1) * width]
  Matrix reset_, update_, candidate_, recalled_;  // gates, c, and U_c h: [hidden x time * width]
  Matrix products_;                               // U h of one time step: [3 hidden x width]
  Matrix logits_;                                 // [vocabulary x time * width]
  Matrix d_recurrent_, d_input_;  // by U h and by W x + b: [3 hidden x time * width]
  Matrix d_state_, d_previous_;   // [hidden x width]
};

extern template class GruModel<float>;
extern template class GruModel<double>;

}  // namespace crowdsurf::trainer
