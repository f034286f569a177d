#include "simulator/baselines/compressor.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf::simulator {
namespace {

size_t KeptOf(const Compressor& compressor, const worker::Extent& tensor) {
  const double share = compressor.keep * static_cast<double>(tensor.count);
  // A tensor with few values sends one at least.
  return std::clamp<size_t>(static_cast<size_t>(share), 1, tensor.count);
}

// All values get the mean absolute value (Karimireddy et al. 2019).
template <class Scalar>
void KeepSigns(std::span<Scalar> v) {
  double sum = 0;
  for (const Scalar value : v) sum += std::abs(static_cast<double>(value));
  const auto scale = static_cast<Scalar>(sum / static_cast<double>(v.size()));
  for (Scalar& value : v) value = std::copysign(scale, value);
}

// Of equal values those that come first.
template <class Scalar>
void KeepLargest(size_t kept, std::span<Scalar> v) {
  std::vector<size_t> order(v.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept - 1),
                   order.end(), [&](size_t a, size_t b) {
                     const Scalar left = std::abs(v[a]), right = std::abs(v[b]);
                     return left != right ? left > right : a < b;
                   });
  for (size_t at = kept; at < order.size(); ++at) v[order[at]] = 0;
}

}  // namespace

template <class Scalar>
void Compressor::Apply(std::span<Scalar> v) const {
  if (kind == Kind::kIdentity) return;
  for (const worker::Extent& tensor : tensors) {
    const auto part = v.subspan(tensor.begin, tensor.count);
    if (kind == Kind::kSign)
      KeepSigns(part);
    else
      KeepLargest(KeptOf(*this, tensor), part);
  }
}

template void Compressor::Apply(std::span<float>) const;
template void Compressor::Apply(std::span<double>) const;

double Compressor::bytes() const {
  double sum = 0;
  for (const worker::Extent& tensor : tensors) {
    const auto count = static_cast<double>(tensor.count);
    switch (kind) {
      case Kind::kIdentity:
        sum += 4 * count;
        break;
      case Kind::kSign:
        // A bit a value, and the scale.
        sum += 4 + std::ceil(count / 8);
        break;
      case Kind::kTopK:
        // A value and its index.
        sum += 8 * static_cast<double>(KeptOf(*this, tensor));
        break;
    }
  }
  return sum;
}

}  // namespace crowdsurf::simulator
