// Edge mailbox: the transport for strategies whose members hold, for each edge of a graph, what
// the neighbour sent last.
//
// Owner: Mixing, single sequence. Pure bookkeeping: bytes lie in regions that the host holds.
// Latest-wins, chunk by chunk: a chunk that is newer than what lies there replaces it in place, an
// older one is counted and dropped, a lost one leaves the last. So one copy of the vector per edge
// is all there is, and no message needs to be complete before it is of use: delays may differ from
// chunk to chunk, which the fixed point of RelaySum does not depend on. FIFO takes a chunk only if
// it is the next one of its edge; the sender repeats what is missing. Memory is made by Reset;
// nothing is allocated afterwards. Source: docs/strategies. Bounds: links
// of one graph; no queue.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class EdgeMailbox {
 public:
  // What a neighbour says is bounded, so that sums over all models fit.
  static constexpr uint64_t kMaxSequence = 1ULL << 40;
  static constexpr int64_t kMaxLag = 1LL << 52;

  enum class Taken : uint8_t { kTaken, kStale, kStrange };
  struct Counters {
    uint64_t taken = 0, stale = 0, strange = 0, not_finite = 0;
  };

  // A new view: every edge is empty again. `models`: members of the view, the bound of counts.
  // Pre: chunk_elements > 0. Bound: a region each (MaxMembersOf, view_plan.h).
  void Reset(std::vector<EdgeLink> links, uint32_t models, uint32_t chunk_elements, WireFormat wire,
             EdgeOrder order);

  // Where a chunk belongs; nullopt: no such edge, chunk or count.
  std::optional<MixPlace> Place(const MixArrived& chunk) const;
  // True when the chunk is to be stored: newer than what lies there (FIFO: the next one).
  bool Wants(const MixArrived& chunk) const;
  // The host has looked at the bytes, and stored them when Wants said so.
  Taken OnChunk(const MixArrived& chunk);

  // Chunk `chunk` of what goes to link `to`: `own`, and kWithOthers: what the other edges of its
  // tag hold. `sequence`: of this peer's message. Pre: at most kMaxSequence.
  MixChunk Describe(size_t to, uint32_t chunk, Region own, EdgeSum sum, uint64_t sequence) const;

  const std::vector<EdgeLink>& links() const { return links_; }
  std::optional<size_t> Find(const PeerId& peer, MixTag tag) const;
  uint32_t ChunksOf(const Extent& extent) const;
  uint32_t CountAt(size_t link, uint32_t chunk) const { return slots_[link][chunk].count; }
  // Steps by which the models of a chunk are behind a member at step `sequence`, in all: how many
  // each has taken since, up to where both began to count.
  int64_t LagAt(size_t link, uint32_t chunk, uint64_t sequence) const;
  // The greatest sequence of which anything is here: how far the neighbour has come.
  uint64_t Newest(size_t link) const { return newest_[link]; }
  Extent RangeOf(const Extent& extent, uint32_t chunk) const;
  const Counters& counters() const { return counters_; }

 private:
  struct Slot {
    uint64_t sequence = 0;
    uint32_t count = 0;  // 0: never heard
    int64_t lag = 0;     // of its models, behind `sequence`
  };
  std::vector<EdgeLink> links_;
  std::vector<std::vector<Slot>> slots_;  // by link, by chunk
  std::vector<uint64_t> newest_;          // by link
  uint32_t models_ = 0;
  uint32_t chunk_elements_ = 1;
  WireFormat wire_ = WireFormat::kFloat32;
  EdgeOrder order_ = EdgeOrder::kLatestWins;
  Counters counters_;
  mutable std::vector<Region> sum_of_;  // scratch of Describe
};

}  // namespace crowdsurf::worker
