#include "worker/core/round/fold.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// The largest weight of the mask, scaled, is in [1, 2).
int ExponentOf(Mask mask, const std::vector<double>& weights) {
  double most = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (mask >> rank & 1) most = std::max(most, weights[rank]);
  }
  return most > 0 ? std::ilogb(most) : 0;
}

// Pre: acc is zero; inputs[rank] holds acc.size() values for every rank in the mask.
template <class Scalar>
void FoldInto(WireFormat wire, Mask mask, const std::vector<double>& weights,
              const std::vector<ByteView>& inputs, std::span<Scalar> acc) {
  const int exponent = ExponentOf(mask, weights);
  double sum = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (mask >> rank & 1) sum += std::ldexp(weights[rank], -exponent);
  }
  const bool plain = sum == 0;
  if (plain) sum = std::popcount(mask);
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    const double weight = plain ? 1.0 : std::ldexp(weights[rank], -exponent);
    AddWeightedWire(wire, weight, inputs[rank], acc);
  }
  ScaleValues(1.0 / sum, acc);
}

// Walks over one input, extent by extent.
struct Walk {
  size_t rank = 0;
  ChunkExtents extents;
  ByteView values;  // of the extent it is in or before, and of those behind it
  size_t next = 0;  // that extent
  uint32_t at = 0;  // elements of it that are behind
  bool done() const { return next == extents.size(); }
  uint32_t position() const { return extents[next].begin + at; }
  uint32_t left() const { return extents[next].count - at; }
};

Walk WalkOver(size_t rank, ByteView input, uint32_t count) {
  Walk walk{.rank = rank, .extents = {}, .values = input};
  if (!IsMasked(input)) {
    if (count > 0) walk.extents = {{0, count}};
    return walk;
  }
  auto read = ReadMasked(MaskedForm::kInput, input, count);
  CHECK(read.has_value());
  walk.extents = std::move(read->extents);
  walk.values = read->values;
  return walk;
}

}  // namespace

template <class Scalar>
std::vector<Scalar> FoldInputs(WireFormat wire, Mask mask, const std::vector<double>& weights,
                               const std::vector<ByteView>& inputs, size_t count) {
  CHECK_NE(mask, 0u);
  CHECK_EQ(weights.size(), inputs.size());
  std::vector<Scalar> acc(count);
  FoldInto(wire, mask, weights, inputs, std::span<Scalar>(acc));
  return acc;
}

// From one boundary of any input's extents to the next the same ranks cover every element, so each
// such stretch is a fold of those ranks alone.
template <class Scalar>
MaskedFold<Scalar> FoldMasked(WireFormat wire, Mask mask, const std::vector<double>& weights,
                              const std::vector<ByteView>& inputs, std::span<const Scalar> old) {
  CHECK_NE(mask, 0u);
  CHECK_EQ(weights.size(), inputs.size());
  const auto count = static_cast<uint32_t>(old.size());
  std::vector<Walk> walks;
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    if (mask >> rank & 1) walks.push_back(WalkOver(rank, inputs[rank], count));
  MaskedFold<Scalar> fold{std::vector<Scalar>(count), {}};
  std::vector<ByteView> parts(inputs.size());
  const size_t width = WireWidth<Scalar>(wire);
  for (uint32_t begin = 0; begin < count;) {
    uint32_t end = count;
    Mask here = 0;
    for (const Walk& walk : walks) {
      if (walk.done()) continue;
      const bool covers = walk.position() == begin;
      if (covers) here |= Mask{1} << walk.rank;
      end = std::min(end, covers ? begin + walk.left() : walk.position());
    }
    const uint32_t length = end - begin;
    const std::span<Scalar> out = std::span<Scalar>(fold.values).subspan(begin, length);
    if (here == 0) {
      fold.kept.push_back({begin, length});
      std::copy_n(old.begin() + begin, length, out.begin());
    }
    for (Walk& walk : walks) {
      if ((here >> walk.rank & 1) == 0) continue;
      parts[walk.rank] = walk.values.first(length * width);
      walk.values = walk.values.subspan(length * width);
      walk.at += length;
      if (walk.left() == 0) ++walk.next, walk.at = 0;
    }
    // Of one rank alone the mean is its value, whatever it weighs: not times w and over w, which
    // would round twice.
    if (std::has_single_bit(here))
      DecodeWire(wire, parts[static_cast<size_t>(std::countr_zero(here))], out);
    else if (here != 0)
      FoldInto(wire, here, weights, parts, out);
    begin = end;
  }
  return fold;
}

template std::vector<float> FoldInputs<float>(WireFormat, Mask, const std::vector<double>&,
                                              const std::vector<ByteView>&, size_t);
template std::vector<double> FoldInputs<double>(WireFormat, Mask, const std::vector<double>&,
                                                const std::vector<ByteView>&, size_t);
template MaskedFold<float> FoldMasked<float>(WireFormat, Mask, const std::vector<double>&,
                                             const std::vector<ByteView>&, std::span<const float>);
template MaskedFold<double> FoldMasked<double>(WireFormat, Mask, const std::vector<double>&,
                                               const std::vector<ByteView>&,
                                               std::span<const double>);

}  // namespace crowdsurf::worker
