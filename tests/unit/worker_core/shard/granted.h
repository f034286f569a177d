// Granted: what an agent grants a trainer, for tests of both sides.
//
// Values; any thread. Source: docs/trainer-link.md, section 10.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/core/shard/lease.h"

namespace crowdsurf::worker {

// begin: position of the first lease in the stream.
inline LeasesGranted Granted(uint64_t stream, uint64_t begin, std::vector<Lease> leases) {
  LeasesGranted granted;
  granted.stream = stream;
  granted.begin = begin;
  granted.leases = std::move(leases);
  return granted;
}

}  // namespace crowdsurf::worker
