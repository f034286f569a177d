// ChunkIndex: the place of a chunk in its round (RoundSpec::chunks), from 0.
//
// All members of a round hold the same list of chunks. A chunk of a strategy on a graph (mix.h) has
// a plain number: it belongs to no round. A value; any thread.
#pragma once

#include <cstdint>

#include "base/number_of.h"

namespace crowdsurf::worker {

struct ChunkIndexTag;
using ChunkIndex = NumberOf<ChunkIndexTag, uint32_t>;

}  // namespace crowdsurf::worker
