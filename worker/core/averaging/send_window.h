// Send windows: how many bytes of inputs a member may have under way to an owner, by the link.
//
// SendWindows learns from all rounds of an agent. A window is twice bandwidth x delay (gain 2 of
// BBR, Cardwell et al. 2016). The delay is the kernel's least round trip to the owner, which holds
// no queue and no busy processor. The bandwidth is the most of the last kSamples epochs, each of
// which lasts a round trip or longer. A sample of it is, as in BBR, what came between an input and
// its result, over that time. So a window doubles each round trip until the link is full, and a
// stall does not shrink it. Owner: GroupRounds. Single sequence. Bounds: kMaxPeers, and kMaxInputs
// of each. Source: docs/data-plane.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/round/chunk_index.h"

namespace crowdsurf::worker {

// Of inputs to one owner, from all members of its group. Half of what an owner keeps of inputs
// (ChunkPlane::kMaxInputBytes): the other half is for rounds before and for stand-ins.
inline constexpr uint64_t kMaxUnderWayBytes = uint64_t{128} << 20;

// The most chunks that a member of a group of `ranks` may have under way to one owner, and `least`
// at least. Pre: ranks > 0, chunk_bytes > 0.
uint32_t MaxWindowChunks(size_t ranks, uint64_t chunk_bytes, uint32_t least);

class SendWindows {
 public:
  static constexpr size_t kMaxPeers = 1024;   // the one told of longest ago goes first
  static constexpr size_t kSamples = 8;       // epochs that a window remembers
  static constexpr size_t kMaxInputs = 4096;  // under way to one owner; more give no samples

  // The least round trip to `owner`; nullopt: it is not known, and its window is 0.
  void OnRoundTrip(const PeerId& owner, std::optional<Duration> round_trip);
  // What is under way belongs to a round before.
  void OnRoundOpened();
  // An own input leaves for its owner.
  void OnInput(Time now, const PeerId& owner, ChunkIndex chunk);
  // The first result of an own input came from its owner, with so many bytes. True: BytesTo(owner)
  // may be another.
  bool OnResult(Time now, const PeerId& owner, ChunkIndex chunk, uint64_t bytes);
  // Twice bandwidth x delay; 0: one of them is not known.
  uint64_t BytesTo(const PeerId& owner) const;

 private:
  struct Input {
    ChunkIndex chunk = {};
    Time left;
    uint64_t come = 0;  // bytes of results then
  };
  struct Link {
    uint64_t told = 0;  // number of the last OnRoundTrip
    Duration round_trip;
    uint64_t come = 0;                        // bytes of results
    std::deque<Input> under_way = {};         // in the order in which they left
    std::array<double, kSamples> rates = {};  // most bytes a second, by epoch
    size_t epoch = 0;                         // of rates: the present one
    Time began;                               // ... since
  };
  std::map<PeerId, Link> links_;
  uint64_t told_ = 0;
};

}  // namespace crowdsurf::worker
