// Codec of the round's frames: canonical little-endian bytes, bounded on the way in.
//
// Peers exchange these bytes; garbage gives nullopt, never a crash, and allocates no more than the
// input is long (times a constant). Manifests are run-length coded over (assigned, mask); the
// 8-byte hashes dominate: 4,096 chunks stay under 64 KiB. Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker {

Bytes EncodeFrame(const Frame& frame);
std::optional<Frame> DecodeFrame(ByteView bytes);  // nullopt: garbled or over a limit
// The instance of a frame, without decoding the rest: to find the Round it belongs to.
std::optional<InstanceId> PeekInstance(ByteView bytes);
// A BEAT, without decoding it. Of use now or never: nobody keeps it for a round to come.
bool IsBeat(ByteView bytes);
std::string_view KindOf(const Frame& frame);  // "ready", "speak", ...: for counters and logs

Bytes EncodeHeldValue(const HeldValue& value);
std::optional<HeldValue> DecodeHeldValue(ByteView bytes);

}  // namespace crowdsurf::worker
