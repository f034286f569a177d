#include "simulator/baselines/methods.h"

#include <algorithm>

namespace crowdsurf::simulator {
namespace {

// a += scale * b.
template <class Scalar>
void AddScaled(double scale, const std::vector<Scalar>& b, std::vector<Scalar>& a) {
  const auto factor = static_cast<Scalar>(scale);
  for (size_t k = 0; k < a.size(); ++k) a[k] += factor * b[k];
}

}  // namespace

template <class Scalar>
void AllReduce<Scalar>::Communicate() {
  this->AddUpdates();
  auto& x = this->x();
  std::vector<Scalar> mean(this->elements());
  for (const auto& model : x) AddScaled(1.0 / this->workers(), model, mean);
  std::fill(x.begin(), x.end(), mean);
  this->CountVectors(2 * (this->workers() - 1));  // of a ring
}

template <class Scalar>
void DPsgd<Scalar>::Mix(typename Baseline<Scalar>::Vectors& values) {
  mixing_.Mix(values);
  this->CountVectors(mixing_.messages());
}

template <class Scalar>
void DPsgd<Scalar>::Communicate() {
  this->AddUpdates();
  Mix(this->x());
}

template <class Scalar>
void D2<Scalar>::Communicate() {
  const auto before = this->x();
  this->AddUpdates();
  // A correction is x - x' - u' of the last step: x + u and it make 2 x - x' + u - u'.
  for (uint32_t i = 0; i < this->workers(); ++i) AddScaled(1, corrections_[i], this->x()[i]);
  this->Mix(this->x());
  for (uint32_t i = 0; i < this->workers(); ++i)
    for (size_t k = 0; k < this->elements(); ++k)
      corrections_[i][k] = this->x()[i][k] - before[i][k] - this->updates()[i][k];
}

template <class Scalar>
void GradientTracking<Scalar>::Communicate() {
  // y <- W y + u - u', then x <- W (x + y).
  this->Mix(trackers_);
  for (uint32_t i = 0; i < this->workers(); ++i) {
    AddScaled(1, this->updates()[i], trackers_[i]);
    AddScaled(-1, last_[i], trackers_[i]);
    AddScaled(1, trackers_[i], this->x()[i]);
  }
  last_ = this->updates();
  this->Mix(this->x());
}

template <class Scalar>
void QuasiGlobal<Scalar>::Update(uint32_t worker, std::span<const Scalar> gradient,
                                 std::span<Scalar> update) {
  // The momentum follows the mixed model, so the neighbours' data are in it.
  std::vector<Scalar> velocity(gradient.begin(), gradient.end());
  AddScaled(this->options().momentum, momenta_[worker], velocity);
  this->Nesterov(gradient, velocity, update);
}

template <class Scalar>
void QuasiGlobal<Scalar>::Communicate() {
  const auto before = this->x();
  this->AddUpdates();
  this->Mix(this->x());
  const double keep = this->options().momentum;
  // (x' - x) / rate is the gradient that the mixed move stands for.
  const auto share = static_cast<Scalar>((1 - keep) / std::max(this->rate(), 1e-8));
  for (uint32_t i = 0; i < this->workers(); ++i)
    for (size_t k = 0; k < this->elements(); ++k)
      momenta_[i][k] =
          static_cast<Scalar>(keep) * momenta_[i][k] + share * (before[i][k] - this->x()[i][k]);
}

template <class Scalar>
PushSum<Scalar>::PushSum(const BaselineOptions& options, Gradients<Scalar>& gradients)
    : Baseline<Scalar>(options, gradients),
      weights_(this->workers(), Scalar(1)),
      z_(this->x()),
      losses_(Rng(options.seed).Fork("losses")) {
  while ((1U << offsets_) < this->workers()) ++offsets_;
}

template <class Scalar>
void PushSum<Scalar>::Communicate() {
  this->AddUpdates();
  for (uint32_t message = 0; message < this->options().messages_a_step; ++message)
    Push((1U << (sent_++ % offsets_)) % this->workers());
  // z = x / w is the model: w is the weight that has come along.
  for (uint32_t i = 0; i < this->workers(); ++i)
    for (size_t k = 0; k < this->elements(); ++k) z_[i][k] = this->x()[i][k] / weights_[i];
}

template <class Scalar>
void PushSum<Scalar>::Push(uint32_t offset) {
  // From copies, because all push at once.
  const auto before = this->x();
  const auto weights = weights_;
  const uint32_t n = this->workers();
  for (uint32_t i = 0; i < n; ++i) {
    if (this->options().loss > 0 && losses_.Bernoulli(this->options().loss)) continue;
    const uint32_t from = (i + n - offset) % n;
    for (size_t k = 0; k < this->elements(); ++k)
      this->x()[i][k] = (before[i][k] + before[from][k]) / 2;
    weights_[i] = (weights[i] + weights[from]) / 2;
  }
  this->CountVectors(n);
}

template <class Scalar>
void Choco<Scalar>::Communicate() {
  this->AddUpdates();
  const auto& mixing = this->mixing();
  const Compressor& compressor = this->options().compressor;
  std::vector<Scalar> sent(this->elements());
  // q = C(x - h) travels, and the neighbours' copies h take it over, too.
  for (uint32_t i = 0; i < this->workers(); ++i) {
    sent = this->x()[i];
    AddScaled(-1, copies_[i], sent);
    compressor.Apply(std::span(sent));
    AddScaled(1, sent, copies_[i]);
  }
  const double rate = this->options().consensus_rate;
  // x += g (W h - h); the diagonal of W - I is own - 1.
  for (uint32_t i = 0; i < this->workers(); ++i) {
    AddScaled(rate * (mixing.own(i) - 1), copies_[i], this->x()[i]);
    for (const auto& [j, weight] : mixing.of(i)) AddScaled(rate * weight, copies_[j], this->x()[i]);
  }
  this->CountBytes(static_cast<double>(mixing.messages()) * compressor.bytes());
}

template <class Scalar>
void DeepSqueeze<Scalar>::Communicate() {
  this->AddUpdates();
  const auto& mixing = this->mixing();
  const Compressor& compressor = this->options().compressor;
  auto sent = this->x();
  // v = x + e travels compressed, and e keeps what compression has left out.
  for (uint32_t i = 0; i < this->workers(); ++i) {
    AddScaled(1, errors_[i], sent[i]);
    errors_[i] = sent[i];
    compressor.Apply(std::span(sent[i]));
    AddScaled(-1, sent[i], errors_[i]);
  }
  const double rate = this->options().consensus_rate;
  // x += g (W C(v) - C(v)), as for Choco.
  for (uint32_t i = 0; i < this->workers(); ++i) {
    AddScaled(rate * (mixing.own(i) - 1), sent[i], this->x()[i]);
    for (const auto& [j, weight] : mixing.of(i)) AddScaled(rate * weight, sent[j], this->x()[i]);
  }
  this->CountBytes(static_cast<double>(mixing.messages()) * compressor.bytes());
}

template class AllReduce<float>;
template class AllReduce<double>;
template class DPsgd<float>;
template class DPsgd<double>;
template class D2<float>;
template class D2<double>;
template class GradientTracking<float>;
template class GradientTracking<double>;
template class QuasiGlobal<float>;
template class QuasiGlobal<double>;
template class PushSum<float>;
template class PushSum<double>;
template class Choco<float>;
template class Choco<double>;
template class DeepSqueeze<float>;
template class DeepSqueeze<double>;

}  // namespace crowdsurf::simulator
