#include "worker/trainer/mlp_model.h"

#include <absl/strings/str_cat.h>

#include <cmath>
#include <utility>

#include "base/check.h"
#include "worker/core/subnet/subnet.h"
#include "worker/trainer/softmax.h"

namespace crowdsurf::trainer {

template <class S>
MlpModel<S>::MlpModel(size_t features, std::vector<size_t> hidden, size_t classes,
                      std::vector<S> scales)
    : scales_(std::move(scales)) {
  CHECK_LE(classes, 256u);
  if (scales_.empty()) scales_.assign(hidden.size(), S(1));
  CHECK_EQ(scales_.size(), hidden.size());
  std::vector<size_t> widths = {features};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(classes);
  const size_t layers = widths.size() - 1;
  for (size_t l = 0; l < layers; ++l) {
    const auto layer = static_cast<uint32_t>(l);
    // Rows are the units of this layer, columns those of the layer below.
    std::vector<worker::UnitAxis> units;
    if (l + 1 < layers) units.push_back({.axis = 0, .group = layer});
    const std::vector<worker::UnitAxis> out = units;
    if (l > 0) units.push_back({.axis = 1, .group = layer - 1});
    // Tensor 2 l of the table is the weight of layer l, tensor 2 l + 1 its bias.
    table_.Add(absl::StrCat("dense", l, ".weight"), {widths[l + 1], widths[l]}, units);
    table_.Add(absl::StrCat("dense", l, ".bias"), {widths[l + 1]}, out);
  }
  for (const size_t width : widths) widths_.push_back(static_cast<Eigen::Index>(width));
  outputs_.resize(layers);
}

template <class S>
MlpModel<S> MlpModel<S>::SubnetOf(const worker::IndexSets& sets) const {
  std::vector<size_t> hidden;
  std::vector<S> scales;
  for (size_t l = 0; l + 1 < outputs_.size(); ++l) {
    const auto whole = static_cast<size_t>(widths_[l + 1]);
    const auto set = sets.find(static_cast<uint32_t>(l));
    hidden.push_back(set == sets.end() ? whole : set->second.size());
    scales.push_back(static_cast<S>(worker::ActivationScale(whole, hidden.back())));
  }
  return MlpModel(static_cast<size_t>(widths_.front()), hidden, static_cast<size_t>(widths_.back()),
                  scales);
}

template <class S>
void MlpModel<S>::Initialize(Rng rng, std::span<S> parameters) const {
  CHECK_EQ(parameters.size(), table_.elements());
  const size_t layers = outputs_.size();
  for (size_t l = 0; l < layers; ++l) {
    // A rectifier halves the mean square, so its layer starts with twice the variance.
    const double gain = l + 1 < layers ? 2.0 : 1.0;
    const double spread = std::sqrt(gain / static_cast<double>(widths_[l]));
    for (S& w : table_.View(2 * l, parameters)) w = static_cast<S>(spread * rng.Normal());
    for (S& b : table_.View(2 * l + 1, parameters)) b = S(0);
  }
}

template <class S>
void MlpModel<S>::Forward(std::span<const S> parameters, const Matrix& inputs) {
  CHECK_EQ(parameters.size(), table_.elements());
  CHECK_EQ(inputs.rows(), widths_.front());
  const size_t layers = outputs_.size();
  for (size_t l = 0; l < layers; ++l) {
    const Eigen::Map<const RowMatrix> weight(table_.View(2 * l, parameters).data(), widths_[l + 1],
                                             widths_[l]);
    const Eigen::Map<const Matrix> bias(table_.View(2 * l + 1, parameters).data(), widths_[l + 1],
                                        1);
    outputs_[l].noalias() = weight * (l == 0 ? inputs : outputs_[l - 1]);
    outputs_[l].colwise() += bias.col(0);
    if (l + 1 == layers) break;
    outputs_[l] = outputs_[l].cwiseMax(S(0));
    if (scales_[l] != S(1)) outputs_[l] *= scales_[l];
  }
}

template <class S>
double MlpModel<S>::LossAndGradient(std::span<const S> parameters, const Matrix& inputs,
                                    std::span<const uint8_t> labels, std::span<S> gradient) {
  CHECK_EQ(gradient.size(), table_.elements());
  CHECK_EQ(labels.size(), static_cast<size_t>(inputs.cols()));
  Forward(parameters, inputs);
  const double loss = SoftmaxLoss(outputs_.back(), labels);
  // outputs_[l] is the gradient by the sums of layer l: of the last one SoftmaxLoss has left it
  // there.
  for (size_t l = outputs_.size(); l-- > 0;) {
    const Matrix& below = l == 0 ? inputs : outputs_[l - 1];
    Eigen::Map<RowMatrix> d_weight(table_.View(2 * l, gradient).data(), widths_[l + 1], widths_[l]);
    Eigen::Map<Matrix> d_bias(table_.View(2 * l + 1, gradient).data(), widths_[l + 1], 1);
    d_weight.noalias() = outputs_[l] * below.transpose();
    d_bias = outputs_[l].rowwise().sum();
    if (l == 0) break;
    const Eigen::Map<const RowMatrix> weight(table_.View(2 * l, parameters).data(), widths_[l + 1],
                                             widths_[l]);
    // The rectifier passes a gradient where its output is positive; the output is not needed after
    // that, so its matrix takes the gradient.
    outputs_[l - 1] = (below.array() > S(0)).select(weight.transpose() * outputs_[l], S(0)).eval();
    // Scales are positive, so they do not change which outputs are.
    if (scales_[l - 1] != S(1)) outputs_[l - 1] *= scales_[l - 1];
  }
  return loss;
}

template <class S>
double MlpModel<S>::Loss(std::span<const S> parameters, const Matrix& inputs,
                         std::span<const uint8_t> labels, size_t& correct) {
  CHECK_EQ(labels.size(), static_cast<size_t>(inputs.cols()));
  Forward(parameters, inputs);
  correct = 0;
  for (Eigen::Index j = 0; j < inputs.cols(); ++j) {
    Eigen::Index best = 0;
    outputs_.back().col(j).maxCoeff(&best);
    correct += best == labels[static_cast<size_t>(j)] ? 1 : 0;
  }
  return SoftmaxLoss(outputs_.back(), labels);
}

template class MlpModel<float>;
template class MlpModel<double>;

}  // namespace crowdsurf::trainer
