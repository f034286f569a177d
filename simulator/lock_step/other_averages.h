// OtherAverages: how many rounds others need where Moshpit's are counted (averaging.h): all-reduce
// that starts again, gossip on a ring, and random groups.
//
// The published comparison (Ryabinin et al. 2021, section 4.1). The same peers, absences and target
// as SimulateAveraging's. Pure functions of (options, seed); any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulator/lock_step/averaging.h"

namespace crowdsurf::simulator {

enum class OtherAverage : uint8_t {
  kAllReduce,     // of all peers; whoever is absent makes it start again
  kRing,          // each present peer and its present neighbours, a third each
  kRandomGroups,  // of group_size, drawn anew of the present peers in each round
};

// Rounds to options.target; options.max_rounds when it was not met. O(rounds * peers).
size_t RoundsOf(OtherAverage kind, const AveragingOptions& options, uint64_t seed);

}  // namespace crowdsurf::simulator
