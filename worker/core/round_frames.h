// Frames: what members, stand-ins and witnesses of a round say to each other (round-protocol.md 3).
//
// Header of every frame: the instance. Bulk bytes (INPUT, RESULT) travel on the tensor plane; these
// are the small frames of the control plane. Codec in round_codec.h. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/witness.h"

namespace crowdsurf::worker {

struct InstanceIdTag;
// Hash of (job, view hash, averaging number, round, axis, group, ordered member list, attempt).
using InstanceId = FixedId<InstanceIdTag, 16>;
using Mask = uint64_t;  // a bit per rank of the group

}  // namespace crowdsurf::worker
