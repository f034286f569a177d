// Table marks: tell the user which tensor of this worker's model is not that of the others.
//
// A table's hash says only that two differ. So each tensor has a short hash of its own, which peers
// compare (TrainerRegistered::marks). Pure; any thread. O(tensors).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/link/link_layout.h"
#include "worker/core/port/peer_summary.h"

namespace crowdsurf::worker {

// Of the first kMaxTableMarks tensors, of each: 32 bits of the hash of its row without its place.
std::vector<uint32_t> MarksOf(const std::vector<LinkTensor>& tensors);

// "another tensor table: 'fc.weight' (float32 [10, 64]) is not as at digits-0-1". `tensors`: those
// of the refused worker.
std::string InWords(const SeatRefusal& refusal, const std::vector<LinkTensor>& tensors);

}  // namespace crowdsurf::worker
