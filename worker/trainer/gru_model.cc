#include "worker/trainer/gru_model.h"

#include <cmath>

#include "base/check.h"
#include "worker/core/subnet/subnet.h"
#include "worker/trainer/softmax.h"

namespace crowdsurf::trainer {
namespace {

// Order of the tensors in the table, and of the gates in a block of 3 x hidden: reset, update,
// candidate.
enum : size_t { kInput, kRecurrent, kBias, kOutput, kOutputBias };

// Spread of the first weights. Inputs are one-hot, so their rows are seen undiluted: 0.3 keeps the
// gates away from saturation. Recurrent rows keep the variance of h; the output starts small, so
// the first loss is near that of the uniform guess.
constexpr double kInputSpread = 0.3;
constexpr double kOutputSpread = 0.5;

}  // namespace

template <class S>
GruModel<S>::GruModel(size_t vocabulary, size_t hidden, S scale)
    : vocabulary_(static_cast<Eigen::Index>(vocabulary)),
      hidden_(static_cast<Eigen::Index>(hidden)),
      scale_(scale) {
  CHECK_GE(vocabulary, 1u);
  CHECK_LE(vocabulary, 256u);
  CHECK_GE(hidden, 1u);
  const worker::UnitAxis gates{.axis = 0, .group = 0, .blocks = 3};
  const worker::UnitAxis gate_columns{.axis = 1, .group = 0, .blocks = 3};
  const worker::UnitAxis state{.axis = 1, .group = 0};
  table_.Add("gru.input.weight", {vocabulary, 3 * hidden}, {gate_columns});
  table_.Add("gru.recurrent.weight", {3 * hidden, hidden}, {gates, state});
  table_.Add("gru.bias", {3 * hidden}, {gates});
  table_.Add("output.weight", {vocabulary, hidden}, {state});
  table_.Add("output.bias", {vocabulary});
}

template <class S>
GruModel<S> GruModel<S>::SubnetOf(const worker::IndexSets& sets) const {
  const auto set = sets.find(0);
  const size_t active = set == sets.end() ? hidden() : set->second.size();
  return GruModel(vocabulary(), active, static_cast<S>(worker::ActivationScale(hidden(), active)));
}

template <class S>
void GruModel<S>::Initialize(Rng rng, std::span<S> parameters) const {
  CHECK_EQ(parameters.size(), table_.elements());
  const double root = std::sqrt(static_cast<double>(hidden_));
  const double spread[] = {kInputSpread, 1 / root, 0, kOutputSpread / root, 0};
  for (size_t i = 0; i < table_.tensors().size(); ++i) {
    for (S& value : table_.View(i, parameters)) value = static_cast<S>(spread[i] * rng.Normal());
  }
}

template <class S>
auto GruModel<S>::Read(std::span<const S> flat) const -> Tensors<Weights, const S> {
  CHECK_EQ(flat.size(), table_.elements());
  const auto at = [&](size_t i) { return table_.View(i, flat).data(); };
  return {Weights(at(kInput), vocabulary_, 3 * hidden_),
          Weights(at(kRecurrent), 3 * hidden_, hidden_), Weights(at(kBias), 1, 3 * hidden_),
          Weights(at(kOutput), vocabulary_, hidden_), Weights(at(kOutputBias), 1, vocabulary_)};
}

template <class S>
auto GruModel<S>::Write(std::span<S> flat) const -> Tensors<Gradients, S> {
  CHECK_EQ(flat.size(), table_.elements());
  const auto at = [&](size_t i) { return table_.View(i, flat).data(); };
  return {Gradients(at(kInput), vocabulary_, 3 * hidden_),
          Gradients(at(kRecurrent), 3 * hidden_, hidden_), Gradients(at(kBias), 1, 3 * hidden_),
          Gradients(at(kOutput), vocabulary_, hidden_), Gradients(at(kOutputBias), 1, vocabulary_)};
}

template <class S>
void GruModel<S>::StepForward(const Tensors<Weights, const S>& p, const TokenBatch& batch,
                              Eigen::Index t) {
  const auto width = static_cast<Eigen::Index>(batch.width);
  const Eigen::Index h = hidden_, first = t * width;
  const auto before = states_.middleCols(first, width);
  // The products of all three gates with h at once: the "reset after" form makes that possible.
  products_.noalias() = p.recurrent * before;
  if (scale_ != S(1)) products_ *= scale_;
  auto recalled = recalled_.middleCols(first, width);
  auto reset = reset_.middleCols(first, width);
  auto update = update_.middleCols(first, width);
  auto candidate = candidate_.middleCols(first, width);
  // Kept apart from the bias and the input: the reset gate multiplies this product alone.
  recalled = products_.bottomRows(h);
  for (Eigen::Index b = 0; b < width; ++b) {
    const auto row = p.input.row(batch.inputs[static_cast<size_t>(first + b)]);
    products_.col(b).head(2 * h) += (row.head(2 * h) + p.bias.row(0).head(2 * h)).transpose();
    candidate.col(b) = (row.tail(h) + p.bias.row(0).tail(h)).transpose();
  }
  // sigmoid(x) = 1 / (1 + exp(-x)): an infinite exp gives 0, never NaN.
  reset = (S(1) + (-products_.topRows(h).array()).exp()).inverse().matrix();
  update = (S(1) + (-products_.middleRows(h, h).array()).exp()).inverse().matrix();
  candidate = (candidate.array() + reset.array() * recalled.array()).tanh().matrix();
  // h' = z h + (1 - z) c, with one product fewer.
  states_.middleCols(first + width, width) =
      (candidate.array() + update.array() * (before.array() - candidate.array())).matrix();
}

template <class S>
void GruModel<S>::Forward(const Tensors<Weights, const S>& p, const TokenBatch& batch,
                          const Matrix& initial) {
  const auto width = static_cast<Eigen::Index>(batch.width);
  const auto time = static_cast<Eigen::Index>(batch.time);
  CHECK(width > 0 && time > 0);
  CHECK_EQ(batch.inputs.size(), batch.time * batch.width);
  CHECK_EQ(batch.targets.size(), batch.time * batch.width);
  CHECK(initial.rows() == hidden_ && initial.cols() == width);
  states_.resize(hidden_, (time + 1) * width);
  for (Matrix* m : {&reset_, &update_, &candidate_, &recalled_}) m->resize(hidden_, time * width);
  products_.resize(3 * hidden_, width);
  states_.leftCols(width) = initial;
  for (Eigen::Index t = 0; t < time; ++t) StepForward(p, batch, t);
  logits_.noalias() = p.output * states_.rightCols(time * width);
  if (scale_ != S(1)) logits_ *= scale_;
  logits_.colwise() += p.output_bias.row(0).transpose();
}

template <class S>
void GruModel<S>::Backward(const Tensors<Weights, const S>& p, const TokenBatch& batch,
                           const Matrix& d_output) {
  const auto width = static_cast<Eigen::Index>(batch.width);
  const Eigen::Index h = hidden_;
  d_recurrent_.resize(3 * h, d_output.cols());
  d_input_.resize(3 * h, d_output.cols());
  d_state_.setZero(h, width);
  for (Eigen::Index t = static_cast<Eigen::Index>(batch.time) - 1; t >= 0; --t) {
    const Eigen::Index first = t * width;
    d_state_ += d_output.middleCols(first, width);
    const auto d = d_state_.array();
    const auto before = states_.middleCols(first, width).array();
    const auto r = reset_.middleCols(first, width).array();
    const auto z = update_.middleCols(first, width).array();
    const auto c = candidate_.middleCols(first, width).array();
    const auto recalled = recalled_.middleCols(first, width).array();
    auto by_recurrent = d_recurrent_.middleCols(first, width);
    auto by_input = d_input_.middleCols(first, width);
    // By c in h' = z h + (1 - z) c, then through tanh, whose derivative is 1 - c^2.
    by_input.bottomRows(h) = (d * (S(1) - z) * (S(1) - c * c)).matrix();
    const auto d_candidate = by_input.bottomRows(h).array();
    // The reset gate acts on U_c h; the derivative of a sigmoid s is s (1 - s).
    by_input.topRows(h) = (d_candidate * recalled * r * (S(1) - r)).matrix();
    by_input.middleRows(h, h) = (d * (before - c) * z * (S(1) - z)).matrix();
    // The gates sum U h and W x + b, so both have one gradient. In the candidate r stands between.
    by_recurrent.topRows(2 * h) = by_input.topRows(2 * h);
    by_recurrent.bottomRows(h) = (d_candidate * r).matrix();
    if (scale_ != S(1)) by_recurrent *= scale_;
    // By h itself, then through the three products.
    d_previous_ = (d * z).matrix();
    d_previous_.noalias() += p.recurrent.transpose() * by_recurrent;
    d_state_.swap(d_previous_);
  }
}

template <class S>
double GruModel<S>::LossAndGradient(std::span<const S> parameters, const TokenBatch& batch,
                                    Matrix& state, std::span<S> gradient) {
  const auto p = Read(parameters);
  Forward(p, batch, state);
  state = states_.rightCols(state.cols());
  const double loss = SoftmaxLoss(logits_, batch.targets);
  auto g = Write(gradient);
  const Eigen::Index columns = logits_.cols();
  g.output_bias = logits_.rowwise().sum().transpose();
  // SoftmaxLoss has left d loss / d logits in logits_.
  if (scale_ != S(1)) logits_ *= scale_;
  g.output.noalias() = logits_ * states_.rightCols(columns).transpose();
  const Matrix d_output = p.output.transpose() * logits_;
  Backward(p, batch, d_output);
  g.recurrent.noalias() = d_recurrent_ * states_.leftCols(columns).transpose();
  g.bias = d_input_.rowwise().sum().transpose();
  g.input.setZero();
  for (Eigen::Index j = 0; j < columns; ++j) {
    // One-hot inputs: the product with them is a sum of rows.
    g.input.row(batch.inputs[static_cast<size_t>(j)]) += d_input_.col(j).transpose();
  }
  return loss;
}

template <class S>
double GruModel<S>::Loss(std::span<const S> parameters, const TokenBatch& batch, Matrix& state) {
  Forward(Read(parameters), batch, state);
  state = states_.rightCols(state.cols());
  return SoftmaxLoss(logits_, batch.targets);
}

template <class S>
auto GruModel<S>::Advance(std::span<const S> parameters, uint8_t token, Vector& state) -> Vector {
  CHECK_EQ(state.size(), hidden_);
  const Matrix initial = state;
  // Forward wants as many targets as inputs, and reads none.
  const uint8_t unused = 0;
  Forward(Read(parameters), {.time = 1, .width = 1, .inputs = {&token, 1}, .targets = {&unused, 1}},
          initial);
  state = states_.col(1);
  return logits_.col(0);
}

template class GruModel<float>;
template class GruModel<double>;

}  // namespace crowdsurf::trainer
