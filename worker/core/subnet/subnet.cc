#include "worker/core/subnet/subnet.h"

namespace crowdsurf::worker {
namespace {

// The positions of `active` along an axis of a group with `units`, ascending.
std::vector<uint64_t> PositionsOf(const UnitAxis& axis, uint64_t units,
                                  const std::vector<uint32_t>& active) {
  std::vector<uint64_t> positions;
  positions.reserve(active.size() * axis.unit_size * axis.blocks);
  for (uint64_t block = 0; block < axis.blocks; ++block) {
    for (const uint64_t unit : active) {
      const uint64_t first = (block * units + unit) * axis.unit_size;
      for (uint64_t i = 0; i < axis.unit_size; ++i) positions.push_back(first + i);
    }
  }
  return positions;
}

// Of axis `index`: those that the sets leave active, all where it has no group.
std::vector<uint64_t> PositionsOf(const UnitTensor& tensor, size_t index, const IndexSets& sets) {
  for (const UnitAxis& axis : tensor.axes) {
    const auto set = sets.find(axis.group);
    if (axis.axis == index && set != sets.end())
      return PositionsOf(axis, *UnitsAlong(axis, tensor.shape), set->second);
  }
  std::vector<uint64_t> all(tensor.shape[index]);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

}  // namespace

CoordinateBlock::CoordinateBlock(const UnitTensor& tensor, uint64_t begin, const IndexSets& sets)
    : begin_(begin), shape_(tensor.shape) {
  uint64_t stride = 1;
  for (size_t index = tensor.shape.size(); index-- > 0;) {
    std::vector<uint64_t> positions = PositionsOf(tensor, index, sets);
    shape_[index] = positions.size();
    size_ *= positions.size();
    // Innermost axes that are whole make one run of neighbouring elements.
    if (levels_.empty() && positions.size() == tensor.shape[index]) {
      run_ *= positions.size();
    } else {
      for (uint64_t& position : positions) position *= stride;
      levels_.insert(levels_.begin(), std::move(positions));
    }
    stride *= tensor.shape[index];
  }
  // The whole tensor is one run.
  if (levels_.empty()) levels_.push_back({0});
}

Subnet::Subnet(const UnitSchema& schema, const IndexSets& sets) : elements_(schema.elements()) {
  CHECK(schema.Fits(sets));
  uint64_t begin = 0;
  for (const UnitTensor& tensor : schema.tensors()) {
    size_ += blocks_.emplace_back(tensor, begin, sets).size();
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) elements *= dimension;
    begin += elements;
  }
}

}  // namespace crowdsurf::worker
