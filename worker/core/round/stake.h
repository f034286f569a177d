// Stake: what stands behind a vector, and travels with it from round to round.
//
// A value; any thread. Source: docs/averaging.md.
#pragma once

#include <compare>
#include <cstdint>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/shard/lease.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/model_age.h"

namespace crowdsurf::worker {

// The job-wide sample count after an averaging, as one peer knows it.
struct JobCount {
  AveragingId averaging = {};
  double samples = 0;
  auto operator<=>(const JobCount&) const = default;
};

// What stands behind a vector and travels with it, from round to round of an averaging. After a
// round: weights are summed over the contributors, `before` is the latest of theirs, `base` is
// theirs if all have the same, ages are added. Samples are summed, and claims united, of those that
// count (CountedOf, round_frames.h). Equal stakes stand behind equal bits.
struct Stake {
  double weight = 0;   // in the mean; >= 0, finite
  double samples = 0;  // by which the job's count grows; >= 0, finite; the weight unless weighting
                       // is Equal
  JobCount before;     // the job's count before this averaging
  Digest holds = {};   // root of the vector: the value of round t-1; none in round 0
  Digest base = {};    // root of what the outer optimizer steps from; none: there is no such step
  ModelAge age = {};   // RelaySum, where averagings count; none elsewhere
  ClaimSet claims = {};  // which leases are in the vector; none where the job deals no data
  bool operator==(const Stake&) const = default;
};
bool IsValid(const Stake& stake);  // finite and in bounds; only an age may be negative
void Encode(const Stake& stake, ByteWriter& out);
Stake DecodeStake(ByteReader& in);

}  // namespace crowdsurf::worker
