// ChunkArrived: a chunk that came on the tensor plane, as a round and its reducer see it.
//
// The bytes stay with the host; this names them. A plain value, valid during the call it is given
// to. Source: docs/data-plane.md (inputs and results of a chunk).
#pragma once

#include <cstdint>

#include "base/id.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/view/register.h"

namespace crowdsurf::worker {

using RoundHandle = uint64_t;  // local number of an open round

// What the host's reducer made of a FoldChunk.
struct FoldedChunk {
  RoundHandle round = 0;
  ChunkIndex chunk = {};
  Ballot assigned = 0;
  uint64_t hash = 0;  // ContentHash of the result's wire bytes
};

// A chunk that arrived on the tensor plane; the host holds its bytes until the call returns.
struct ChunkArrived {
  enum class Kind : uint8_t { kInput, kResult } kind;
  InstanceId instance;
  PeerId from;
  int rank = 0;  // kInput: whose values
  ChunkIndex chunk = {};
  Ballot assigned = 0;
  RankSet mask = {};   // kResult
  uint64_t hash = 0;   // kResult, verified by the host over the wire bytes
  bool finite = true;  // kInput: size is right and no NaN or Inf
};

}  // namespace crowdsurf::worker
