#include "worker/core/reduce/fold.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// Values that are folded at a time: 16 KiB of floats, which stay in the L1 cache until they have
// their factor.
constexpr size_t kBlock = 4096;

// What a fold adds up, in rank order.
template <class Scalar>
struct Terms {
  std::vector<Scalar> weights;
  std::vector<ByteView> inputs;
  double sum = 0;  // of the weights, before they are rounded
};

template <class Scalar>
Terms<Scalar> TermsOf(RankSet mask, const std::vector<double>& weights,
                      const std::vector<ByteView>& inputs) {
  double most = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank)
    if (mask.Contains(rank)) most = std::max(most, weights[rank]);
  // All weights are zero: the plain mean.
  const bool plain = most == 0;
  // The largest weight, scaled, is in [1, 2): exact, and keeps the sum of any weights finite
  // (docs/data-plane.md).
  const int exponent = plain ? 0 : std::ilogb(most);
  Terms<Scalar> terms;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (!mask.Contains(rank)) continue;
    const double weight = plain ? 1.0 : std::ldexp(weights[rank], -exponent);
    terms.weights.push_back(static_cast<Scalar>(weight));
    terms.inputs.push_back(inputs[rank]);
    terms.sum += weight;
  }
  return terms;
}

// Pre: inputs[rank] holds out.size() values for every rank in the mask.
template <class Scalar>
void FoldInto(WireFormat wire, RankSet mask, const std::vector<double>& weights,
              const std::vector<ByteView>& inputs, std::span<Scalar> out) {
  const Terms<Scalar> terms = TermsOf<Scalar>(mask, weights, inputs);
  // Int8 has scales between its values, so its chunks are folded as they are.
  const bool uneven = wire == WireFormat::kInt8;
  const size_t block = uneven ? out.size() : kBlock;
  const size_t width = uneven ? 0 : WireWidth<Scalar>(wire);
  std::vector<ByteView> parts = terms.inputs;
  for (size_t begin = 0; begin < out.size(); begin += block) {
    const std::span<Scalar> acc = out.subspan(begin, std::min(block, out.size() - begin));
    if (!uneven) {
      for (size_t k = 0; k < parts.size(); ++k)
        parts[k] = terms.inputs[k].subspan(begin * width, acc.size() * width);
    }
    std::fill(acc.begin(), acc.end(), Scalar{0});
    AddWeightedWire(wire, std::span<const Scalar>(terms.weights), parts, acc);
    ScaleValues(1.0 / terms.sum, acc);
  }
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
void FoldInputs(WireFormat wire, RankSet mask, const std::vector<double>& weights,
                const std::vector<ByteView>& inputs, std::span<Scalar> out) {
  CHECK(!mask.empty());
  CHECK_EQ(weights.size(), inputs.size());
  FoldInto(wire, mask, weights, inputs, out);
}

// From one boundary of any input's extents to the next the same ranks cover every element, so each
// such stretch is a fold of those ranks alone.
template <class Scalar>
MaskedFold<Scalar> FoldMasked(WireFormat wire, RankSet mask, const std::vector<double>& weights,
                              const std::vector<ByteView>& inputs, std::span<const Scalar> old) {
  CHECK(!mask.empty());
  CHECK_EQ(weights.size(), inputs.size());
  const auto count = static_cast<uint32_t>(old.size());
  std::vector<Walk> walks;
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    if (mask.Contains(rank)) walks.push_back(WalkOver(rank, inputs[rank], count));
  MaskedFold<Scalar> fold{std::vector<Scalar>(count), {}};
  std::vector<ByteView> parts(inputs.size());
  const size_t width = WireWidth<Scalar>(wire);
  for (uint32_t begin = 0; begin < count;) {
    // The stretch ends where the first extent that covers it ends, or another begins.
    uint32_t end = count;
    RankSet here;
    for (const Walk& walk : walks) {
      if (walk.done()) continue;
      const bool covers = walk.position() == begin;
      if (covers) here.Insert(walk.rank);
      end = std::min(end, covers ? begin + walk.left() : walk.position());
    }
    const uint32_t length = end - begin;
    const std::span<Scalar> out = std::span<Scalar>(fold.values).subspan(begin, length);
    if (here.empty()) {
      fold.kept.push_back({begin, length});
      std::copy_n(old.begin() + begin, length, out.begin());
    }
    for (Walk& walk : walks) {
      if (!here.Contains(walk.rank)) continue;
      parts[walk.rank] = walk.values.first(length * width);
      walk.values = walk.values.subspan(length * width);
      walk.at += length;
      if (walk.left() == 0) ++walk.next, walk.at = 0;
    }
    // Of one rank alone the mean is its value, whatever it weighs: not times w and over w, which
    // would round twice.
    if (here.size() == 1)
      DecodeWire(wire, parts[here.first()], out);
    else if (!here.empty())
      FoldInto(wire, here, weights, parts, out);
    begin = end;
  }
  return fold;
}

template void FoldInputs<float>(WireFormat, RankSet, const std::vector<double>&,
                                const std::vector<ByteView>&, std::span<float>);
template void FoldInputs<double>(WireFormat, RankSet, const std::vector<double>&,
                                 const std::vector<ByteView>&, std::span<double>);
template MaskedFold<float> FoldMasked<float>(WireFormat, RankSet, const std::vector<double>&,
                                             const std::vector<ByteView>&, std::span<const float>);
template MaskedFold<double> FoldMasked<double>(WireFormat, RankSet, const std::vector<double>&,
                                               const std::vector<ByteView>&,
                                               std::span<const double>);

}  // namespace crowdsurf::worker
