// Mix: the words that strategies on graphs, their transports and their hosts share.
//
// A strategy on a graph (Gossip, A2CiD2, RelaySum) mixes its own snapshot with what neighbours
// sent. Bytes never pass through a core: chunks are named by (sender, tag, sequence, chunk), the
// host asks where they belong (MixPlace) or what they are made of (MixChunk), and runs kernels
// (mix_kernels.h) on named regions when told. Values; any thread. Source: docs/strategies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "worker/core/vector/extent.h"
#include "worker/core/view/averaging_choices.h"
#include "worker/core/view/register.h"

namespace crowdsurf::worker {

// Buffers by name, float32. kOutbox is the trainer's snapshot (read only between publish and
// release); kInboxA/B are results; from kExtra0 on a strategy's own, as long as it declares. Where
// all measure from a base (an outer optimizer, IST, Int8), kInboxA holds it, and rounds write into
// kInboxB and kSpare. Strategies with an edge mailbox send from kSpare. kVelocity is zeros until a
// step or a fetched state writes it. kRest is what earlier changes have left (change.h). All three
// are there from their first use on.
enum class Region : uint8_t {
  kOutbox,
  kInboxA,
  kInboxB,
  kSpare,
  kVelocity,
  kRest,
  kExtra0,
  kExtra1,
  kExtra2,
  kExtra3
};
constexpr size_t kFixedRegions = static_cast<size_t>(Region::kExtra0);
constexpr Region ExtraRegion(size_t i) {
  return static_cast<Region>(static_cast<size_t>(Region::kExtra0) + i);
}
constexpr bool IsExtra(Region region) { return region >= Region::kExtra0; }
constexpr size_t ExtraIndex(Region region) {
  return static_cast<size_t>(region) - static_cast<size_t>(Region::kExtra0);
}

// What a message is: a pair's model or the reply to one, or an edge's message, by the tree it is
// of. A view has one strategy, so pairs and edges never meet.
using MixTag = uint8_t;
inline constexpr MixTag kPairTag = 0;
inline constexpr MixTag kPairReplyTag = 1;
inline constexpr MixTag kFirstEdgeTag = 1;
inline constexpr MixTag kMaxMixTag = 2;  // DoubleBinaryTree has two trees

// A chunk that arrived; the host holds its bytes until the call returns.
struct MixArrived {
  PeerId from;
  InstanceId instance;  // of the view (MixInstanceOf)
  MixTag tag = kPairTag;
  uint64_t sequence = 0;  // the sender's step, or the exchange's number
  uint32_t count = 1;     // models in the sum
  int64_t lag = 0;  // of all of them behind the sender, in steps; in pairs the sender's restraint
  uint32_t chunk = 0;
  bool stored = false;  // it had a place, the right size and finite values, and lies there
};
// Where a chunk that arrives belongs: exactly `count` values of `region`, as they travelled.
struct MixPlace {
  Region region = Region::kExtra0;
  uint64_t begin = 0;
  uint32_t count = 0;
  WireFormat wire = WireFormat::kFloat32;
};
// What a chunk that leaves is made of: the sum of `sum_of`, in that order, encoded as `wire`.
struct MixChunk {
  InstanceId instance;
  uint64_t sequence = 0;
  uint32_t count = 1;
  int64_t lag = 0;  // as in MixArrived
  WireFormat wire = WireFormat::kFloat32;
  uint64_t begin = 0;
  uint32_t elements = 0;
  std::span<const Region> sum_of;  // until the next call
};

// An edge of this peer, and the region that holds what came over it.
struct EdgeLink {
  PeerId peer;
  MixTag tag = kFirstEdgeTag;
  Region region = Region::kExtra0;
  Extent extent;  // of the vector: all of it, or the part that travels on this tree
};
// What a message to a neighbour holds: the own vector, or its sum with what the other edges of the
// tag brought.
enum class EdgeSum : uint8_t { kOwn, kWithOthers };
// Which of the messages of an edge are taken (edge_mailbox.h).
enum class EdgeOrder : uint8_t { kLatestWins, kFifo };

// Kernels over regions r[0], r[1], ... and scalars s[0], ... of the same range of the vector.
enum class MixKernel : uint8_t {
  kCopy,         // r0 = r1
  kAddChange,    // r0 += r1 - r2: the trainer's own change since the last result
  kMomentum,     // AcidMix: (r0, r1) move towards each other by s0 of their difference
  kDifference,   // r0 = r0 - (r1 as it travels), as that travels; s0: WireFormat
  kMoveTowards,  // r0 += s0 * r1
  kAverage,      // r0 = s[n] * (s0 * r1 + s1 * r2 + ... ); r0 may be among them
  kOuterStep,    // base r0 and velocity r2, if there is one, step to the mean r1 (outer_step.h)
  kOuterBegin,   // r0 = r1, and r2 = 0 if there is one: the base is the mean
  kMoveBase,     // r0, r2 = r1 + (r0 - r2), r0: what was measured from r2 is from r0 now
  kOuterChange,  // kOuterStep where r1 is the mean less the base; without scalars r0 += r1, and r2
                 // = 0
  kKeepRest,     // r0 = what the snapshot r1 leaves of its change from the base r2 (change.h);
                 // s0: r0 holds a rest
};
// What region `i` of a kernel holds stays as it is. (Of the kernels on graphs all count as
// written.)
constexpr bool OnlyReads(MixKernel kernel, size_t i) {
  return (i == 1 && kernel >= MixKernel::kOuterStep) || (i == 2 && kernel == MixKernel::kKeepRest);
}
// Orders of a strategy that its host carries out as they are.
struct RunKernel {
  MixKernel kernel;
  Extent range;
  std::vector<Region> regions;
  std::vector<double> scalars;
};
struct ReserveRegions {  // kExtra0 and on: the part of the vector that each holds
  std::vector<Extent> extents;
};

}  // namespace crowdsurf::worker
