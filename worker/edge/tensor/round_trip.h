// Round trip: what the kernel knows of the delay of a connection.
//
// Stateless; any thread. Apart from the connection, because the kernel's header and the C library's
// both declare tcp_info.
#pragma once

#include <optional>

#include "base/time.h"

namespace crowdsurf::worker {

// The least round trip of a TCP connection in the last minutes: no queue, and no time that a busy
// processor takes, is in it. nullopt: `fd` is no TCP socket, or the kernel does not say. About 1
// us.
std::optional<Duration> LeastRoundTripOf(int fd);

}  // namespace crowdsurf::worker
