// NodeConfig: who node i of a simulated job is, for every world that runs whole agents.
//
// Names, endpoints and id follow from the node's number, the job and the seed alone, so that a seed
// is a replay. Values; no owner; nothing that others fill.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "worker/core/port/config.h"

namespace crowdsurf::simulator {

// What a node's surroundings take, in every world: the order of real ones, scaled to small models.
inline constexpr Duration kRegisterDelay = Milliseconds(5);  // the trainer's process starts too
inline constexpr Duration kProgressEvery = Milliseconds(500);
inline constexpr Duration kHashTime = Milliseconds(1);
inline constexpr Duration kFetchTime = Milliseconds(3);  // a try of one state transfer

// Everything else in it is PeerConfig's default. `start`: since the beginning of the run; seniority
// follows from it.
worker::PeerConfig NodeConfig(const std::string& job, int node, uint64_t seed, Duration start);

}  // namespace crowdsurf::simulator
