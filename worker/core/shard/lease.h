// Lease: a run of samples that one worker trains, and what members say of leases in a round.
//
// A worker's leases, one after the other as they were granted, are its *stream*. So how far it has
// come is one number, its position, and a claim that is made again says nothing new. Values; any
// thread. Bounds: below. Source: docs/shard.md.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

inline constexpr uint64_t kMaxDataSamples = 1ULL << 48;  // of a data set
inline constexpr uint64_t kMaxStreamPosition = 1ULL << 60;
inline constexpr uint64_t kMaxEpoch = 1ULL << 48;
inline constexpr size_t kMaxClaims = 4096;      // members of a job that claim in one averaging
inline constexpr uint32_t kMaxWant = 1U << 24;  // units that a member asks for at once
inline constexpr uint32_t kMaxUnit = 1U << 24;  // samples

// What the workers draw from. Equal at all workers of a job.
struct DataSpec {
  uint64_t samples = 0;  // of the data set; 0: there is none
  uint32_t unit = 0;     // samples: leases are whole units, but at the end of an epoch
  uint64_t seed = 0;     // of the epochs' orders
  auto operator<=>(const DataSpec&) const = default;
  bool none() const { return samples == 0; }
};
bool IsValid(const DataSpec& spec);  // or none

// Positions [begin, begin + count) of an epoch's order.
struct Lease {
  uint64_t epoch = 0;
  uint64_t begin = 0;
  uint64_t count = 0;
  auto operator<=>(const Lease&) const = default;
};

// How far a trainer has come.
struct StreamPosition {
  uint64_t stream = 0;    // 0: it has none
  uint64_t position = 0;  // samples of the stream that are in its parameters
  bool operator==(const StreamPosition&) const = default;
};

struct StreamProgress {
  StreamPosition at;
  bool waits = false;  // it trains nothing more until it is given leases
  bool operator==(const StreamProgress&) const = default;
};

// Which ledger a member has. The greater one is the newer.
struct LedgerMark {
  AveragingId averaging = {};  // that it was committed with; 0: none
  uint64_t hash = 0;           // of its contents
  auto operator<=>(const LedgerMark&) const = default;
};

// What a member says with its input: all of `stream` up to `position` is in it.
struct LeaseClaim {
  PeerId peer;
  StreamPosition trained;  // no stream: what this peer held is given back
  uint32_t want = 0;       // units that it would like to have beside those that it holds
  bool operator==(const LeaseClaim&) const = default;
};

// The claims behind a vector, ascending by peer. After a round: of those that count (CountedOf).
struct ClaimSet {
  DataSpec spec;    // none: this job, as far as its members know, deals no data
  LedgerMark base;  // what the claims are to be committed to: the newest that a contributor has
  std::vector<LeaseClaim> claims;
  bool operator==(const ClaimSet&) const = default;
  bool none() const { return spec.none(); }
};
bool IsValid(const ClaimSet& claims);  // in bounds and in order
// Of two data sets that of the members with a ledger stands, else the greater: the claims of the
// other are left out.
void Merge(const ClaimSet& claims, ClaimSet& sum);
void Encode(const ClaimSet& claims, ByteWriter& out);  // pre: !claims.none()
ClaimSet DecodeClaims(ByteReader& in);                 // bounded; fails the reader

void Encode(const DataSpec& spec, ByteWriter& out);
DataSpec DecodeDataSpec(ByteReader& in);
void Encode(const LedgerMark& mark, ByteWriter& out);
LedgerMark DecodeLedgerMark(ByteReader& in);

// What the trainer may train: all of it replaces what was said before. A trainer that is in another
// stream drops what it has of that one.
struct LeasesGranted {
  uint64_t stream = 0;  // 0: none
  uint64_t begin = 0;   // position of the first lease in the stream
  std::vector<Lease> leases;
  bool closed = false;  // nothing further is to be trained: this worker leaves
  DataSpec other;  // the job's leases are of this data set, not of the trainer's; none: they fit
  bool operator==(const LeasesGranted&) const = default;
};

}  // namespace crowdsurf::worker
