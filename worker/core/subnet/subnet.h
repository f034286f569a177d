// Subnet: the coordinates of the flat vector that a sub-network has, and how they are packed.
//
// A sub-network has the active units of each group and nothing of the others. Of a tensor it has
// the product of the positions along each axis: rows I, columns J, or the block I x J. Packed, the
// values of a tensor are the row-major values of a smaller tensor, and the tensors keep their
// order: so they are the parameters of the same model with smaller layers. Coordinates are made
// while they are walked; nothing is kept for each of them. Values; any thread. Memory: eight bytes
// for each position of an axis. Source: Independent Subnet Training (arXiv 1910.02120), section 3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::worker {

// What a sub-network has of one tensor.
class CoordinateBlock {
 public:
  // `begin`: of the tensor in the flat vector. Pre: the schema of `tensor` fits the sets.
  CoordinateBlock(const UnitTensor& tensor, uint64_t begin, const IndexSets& sets);

  const std::vector<uint64_t>& shape() const { return shape_; }  // of the smaller tensor
  uint64_t size() const { return size_; }

  // Calls visit(begin, count) for the runs of the flat vector in which the values [first, first +
  // count) of the smaller tensor lie, in their order. Pre: first + count <= size().
  template <class Visit>
  void ForEachRun(uint64_t first, uint64_t count, Visit&& visit) const;

 private:
  uint64_t begin_ = 0;
  std::vector<uint64_t> shape_;
  uint64_t size_ = 1;
  uint64_t run_ = 1;                           // elements in a row below the last level
  std::vector<std::vector<uint64_t>> levels_;  // offsets of the positions, the outermost axis first
};

class Subnet {
 public:
  // Pre: schema.Fits(sets).
  Subnet(const UnitSchema& schema, const IndexSets& sets);

  const std::vector<CoordinateBlock>& blocks() const { return blocks_; }  // one a tensor
  uint64_t size() const { return size_; }
  uint64_t elements() const { return elements_; }  // of the flat vector

  // packed = the sub-network's values of `flat`, and back; the rest of `flat` stays as it is. Bits
  // are copied. Pre: flat.size() == elements(), packed.size() == size().
  template <class T>
  void Gather(std::span<const T> flat, std::span<T> packed) const;
  template <class T>
  void Scatter(std::span<const T> packed, std::span<T> flat) const;

 private:
  template <class Visit>
  void ForEachRun(Visit&& visit) const;

  std::vector<CoordinateBlock> blocks_;
  uint64_t size_ = 0;
  uint64_t elements_ = 0;
};

// In training, activations of a layer of which `active` of `units` are there are scaled by this.
// Their sum into the next layer then has its size in the whole model, whatever the number of
// members.
inline double ActivationScale(size_t units, size_t active) {
  return static_cast<double>(units) / static_cast<double>(active);
}

template <class Visit>
void CoordinateBlock::ForEachRun(uint64_t first, uint64_t count, Visit&& visit) const {
  CHECK(first <= size_ && count <= size_ - first);
  if (count == 0) return;
  const size_t last = levels_.size() - 1;
  std::vector<size_t> at(levels_.size());
  uint64_t rest = first / run_, skip = first % run_;
  for (size_t level = levels_.size(); level-- > 0;) {
    at[level] = rest % levels_[level].size();
    rest /= levels_[level].size();
  }
  while (true) {
    uint64_t base = begin_;
    for (size_t level = 0; level < last; ++level) base += levels_[level][at[level]];
    for (size_t& j = at[last]; j < levels_[last].size() && count > 0; ++j) {
      const uint64_t length = std::min(run_ - skip, count);
      visit(base + levels_[last][j] + skip, length);
      count -= length;
      skip = 0;
    }
    if (count == 0) return;
    at[last] = 0;
    size_t level = last - 1;
    while (++at[level] == levels_[level].size()) at[level--] = 0;
  }
}

template <class Visit>
void Subnet::ForEachRun(Visit&& visit) const {
  uint64_t packed = 0;
  for (const CoordinateBlock& block : blocks_) {
    block.ForEachRun(0, block.size(), [&](uint64_t begin, uint64_t count) {
      visit(begin, packed, count);
      packed += count;
    });
  }
}

template <class T>
void Subnet::Gather(std::span<const T> flat, std::span<T> packed) const {
  CHECK_EQ(flat.size(), elements_);
  CHECK_EQ(packed.size(), size_);
  ForEachRun([&](uint64_t begin, uint64_t at, uint64_t count) {
    std::copy_n(flat.data() + begin, count, packed.data() + at);
  });
}

template <class T>
void Subnet::Scatter(std::span<const T> packed, std::span<T> flat) const {
  CHECK_EQ(flat.size(), elements_);
  CHECK_EQ(packed.size(), size_);
  ForEachRun([&](uint64_t begin, uint64_t at, uint64_t count) {
    std::copy_n(packed.data() + at, count, flat.data() + begin);
  });
}

}  // namespace crowdsurf::worker
