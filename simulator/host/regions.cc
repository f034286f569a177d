#include "simulator/host/regions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "worker/core/strategy/mix_kernels.h"

namespace crowdsurf::simulator {

using worker::Extent;
using worker::Region;

template <class Scalar>
Regions<Scalar>::Regions(size_t elements) {
  for (Buffer<Scalar>& buffer : fixed_) buffer.Resize(elements);
}

template <class Scalar>
const Buffer<Scalar>& Regions<Scalar>::At(Region region) const {
  if (!worker::IsExtra(region)) return fixed_[static_cast<size_t>(region)];
  CHECK_LT(worker::ExtraIndex(region), extras_.size());
  return extras_[worker::ExtraIndex(region)];
}

template <class Scalar>
Buffer<Scalar>& Regions<Scalar>::At(Region region) {
  return const_cast<Buffer<Scalar>&>(std::as_const(*this).At(region));
}

template <class Scalar>
std::span<Scalar> Regions<Scalar>::Part(Region region, const Extent& range) {
  Buffer<Scalar>& buffer = At(region);
  // An extra region holds a part of the vector.
  const uint64_t begin = worker::IsExtra(region) ? extents_[worker::ExtraIndex(region)].begin : 0;
  CHECK_GE(range.begin, begin);
  return std::span(buffer.values).subspan(range.begin - begin, range.count);
}

template <class Scalar>
void Regions<Scalar>::Reserve(const worker::ReserveRegions& reserve) {
  extents_ = reserve.extents;
  extras_.assign(extents_.size(), {});
  for (size_t i = 0; i < extras_.size(); ++i)
    // NaN, so that a value used before it was written shows.
    extras_[i].values.assign(extents_[i].count, std::numeric_limits<Scalar>::quiet_NaN());
}

template <class Scalar>
void Regions<Scalar>::Run(const worker::RunKernel& kernel) {
  std::array<std::span<Scalar>, worker::kMaxKernelRegions> parts;
  const size_t count = kernel.regions.size();
  CHECK_LE(count, parts.size());
  for (size_t i = 0; i < count; ++i) parts[i] = Part(kernel.regions[i], kernel.range);
  worker::RunMixKernel<Scalar>(
      kernel.kernel, std::span<const std::span<Scalar>>(parts).first(count), kernel.scalars);
}

template <class Scalar>
std::vector<Scalar> Regions<Scalar>::Sum(const worker::MixChunk& chunk) {
  std::vector<Scalar> sum(chunk.elements, 0);
  // In the order that the core names, as every host adds.
  for (const Region region : chunk.sum_of) {
    const auto part = Part(region, {chunk.begin, chunk.elements});
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

template <class Scalar>
bool Regions<Scalar>::Store(const worker::MixPlace& place, ByteView wire) {
  if (!worker::WireIsSound<Scalar>(place.wire, wire, place.count)) return false;
  worker::DecodeWire(place.wire, wire, Part(place.region, {place.begin, place.count}));
  return true;
}

template class Regions<float>;
template class Regions<double>;

}  // namespace crowdsurf::simulator
