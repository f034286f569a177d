// SubnetExchange: the one round of an averaging in which each member has trained a sub-network.
//
// A pure function of the model's units and the partition, so both ends know which coordinates a
// chunk has: no index travels. The exchanged vector is what somebody covers, packed: first the
// coordinates that one member alone covers, by member, then those that several cover. Coordinates
// that nobody covers are not in it, and keep their old values; members must hold equal ones
// (docs/round.md). A chunk lies within one run of equal coverers, and one of these owns it. Each
// other coverer sends its values to the owner. The owner sends the mean to all members; the mean of
// one is its values, to the bit. So what one member alone covers goes from it to all, without a
// reducer. Values; any thread. Memory: as Subnet, for each member. Source: docs/strategies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "worker/core/round/round_spec.h"
#include "worker/core/subnet/subnet.h"
#include "worker/core/subnet/unit_partition.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

// span: of the exchanged vector. coverers: the owner among them.
struct SubnetChunk {
  ChunkSpan span;
  RankSet coverers;

  // Whether `rank` sends its values of this chunk to the owner.
  bool HasInputOf(size_t rank) const { return rank != span.owner && coverers.Contains(rank); }
  bool operator==(const SubnetChunk&) const = default;
};

class SubnetExchange {
 public:
  // Pre: the partition is of schema.units(); chunk_elements > 0.
  SubnetExchange(const UnitSchema& schema, const UnitPartition& partition, uint32_t chunk_elements);

  const std::vector<SubnetChunk>& chunks() const { return chunks_; }  // in order, without gaps
  uint64_t size() const { return size_; }                             // of the exchanged vector
  uint64_t uncovered() const { return elements_ - size_; }

  // The values of a chunk out of the flat vector, and into it. Bits are copied. Pre: flat has
  // schema.elements() values, `values` those of the chunk.
  template <class Scalar>
  void Gather(size_t chunk, std::span<const Scalar> flat, std::span<Scalar> values) const;
  template <class Scalar>
  void Scatter(size_t chunk, std::span<const Scalar> values, std::span<Scalar> flat) const;

  // The payload of a chunk's frame: its values as they travel, and nothing else.
  template <class Scalar>
  Bytes Encode(WireFormat wire, size_t chunk, std::span<const Scalar> flat) const;
  // False, and nothing is written, when `payload` is not as many finite values.
  template <class Scalar>
  bool Decode(WireFormat wire, size_t chunk, ByteView payload, std::span<Scalar> flat) const;

 private:
  // A tensor's coordinates with equal coverers.
  struct Section {
    RankSet coverers;
    CoordinateBlock block;
    uint64_t begin = 0;  // in the exchanged vector
  };
  void AddSections(const UnitSchema& schema, const UnitPartition& partition);
  void CutChunks(uint32_t chunk_elements, size_t members);
  // Sections whose coverers are those of section `first`, and their elements.
  std::pair<size_t, uint64_t> RunFrom(size_t first) const;
  template <class Visit>
  void ForEachRun(size_t chunk, Visit&& visit) const;

  uint64_t elements_ = 0;
  uint64_t size_ = 0;
  std::vector<Section> sections_;
  std::vector<SubnetChunk> chunks_;
};

}  // namespace crowdsurf::worker
