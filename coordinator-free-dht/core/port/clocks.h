// Clocks: one reading of both clocks, at which a node works off one input.
//
// A node's own deadlines are monotonic; the expiry of a record is wall time, since machines share
// no other. The host reads both once an input, so a node never sees them move meanwhile. Plain
// data; any thread.
#pragma once

#include "base/time.h"

namespace crowdsurf::dht {

struct Clocks {
  Time now;
  WallTime wall;
};

}  // namespace crowdsurf::dht
