// NodeConfig: who node i of a simulated job is, for every world that runs whole agents.
//
// Names, endpoints and id follow from the node's number, the job and the seed alone, so that a seed
// is a replay. Values; no owner; nothing that others fill.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "worker/core/peer.h"

namespace crowdsurf::simulator {

// Everything else in it is PeerConfig's default. `start`: since the beginning of the run; seniority
// follows from it.
worker::PeerConfig NodeConfig(const std::string& job, int node, uint64_t seed, Duration start);

}  // namespace crowdsurf::simulator
