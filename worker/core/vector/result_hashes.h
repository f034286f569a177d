// Result hashes: what a round has decided of each chunk, in place of a pass over the values.
//
// All members of a round know the hash of each chunk's result. Where results lie as they travel,
// these are hashes of the region's bytes. A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace crowdsurf::worker {

struct ResultHashes {
  uint64_t key = 0;                // of each ContentHash
  uint32_t chunk_elements = 0;     // the last chunk of a part may have fewer
  std::vector<uint64_t> parts;     // elements of each run of chunks, in order; none is 0
  std::vector<uint64_t> of_chunk;  // in the order of the region
  bool operator==(const ResultHashes&) const = default;
};

}  // namespace crowdsurf::worker
