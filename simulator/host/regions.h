// Regions: the named buffers of an agent's vector, and what strategies on graphs do with them.
//
// Stands for the trainer's link and the agent's own buffers (worker/edge/tensor/mix_plane.h).
// Owner: one virtual node; single sequence. Bounds: what the core reserves.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "simulator/engine/origins.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::simulator {

template <class Scalar>
class Regions {
 public:
  // The outbox, both inboxes and an outer optimizer's: zeros. Nothing is reserved.
  explicit Regions(size_t elements);

  // Pre: the region is reserved, if it is an extra one.
  Buffer<Scalar>& At(worker::Region region);
  const Buffer<Scalar>& At(worker::Region region) const;
  // Pre: the region holds that range of the vector.
  std::span<Scalar> Part(worker::Region region, const worker::Extent& range);

  // Every element is NaN, so that a read before the first write shows.
  void Reserve(const worker::ReserveRegions& reserve);
  // Allocates nothing.
  void Run(const worker::RunKernel& kernel);
  // The values of a chunk that leaves.
  std::vector<Scalar> Sum(const worker::MixChunk& chunk);
  // Stores a chunk that arrived; false: its size or a value is wrong, nothing is written.
  bool Store(const worker::MixPlace& place, ByteView wire);

 private:
  std::array<Buffer<Scalar>, worker::kFixedRegions> fixed_;
  std::vector<Buffer<Scalar>> extras_;
  std::vector<worker::Extent> extents_;  // of the extras
};

extern template class Regions<float>;
extern template class Regions<double>;

}  // namespace crowdsurf::simulator
