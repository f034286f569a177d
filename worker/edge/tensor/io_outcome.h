// I/O outcome: how far a call on a non-blocking socket came.
//
// A value that the streams and connections of this room share. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crowdsurf::worker {

enum class IoState : uint8_t { kDone, kWantRead, kWantWrite, kClosed, kFailed };
struct IoOutcome {
  IoState state = IoState::kFailed;
  size_t bytes = 0;  // kDone: transferred, > 0 where the call does not say otherwise
};

// What `errno` says of a call that failed. A reset, a broken pipe or a time-out ends a connection
// as a close does.
enum class IoDirection : uint8_t { kRead, kWrite };
IoOutcome OutcomeOfErrno(IoDirection direction);

}  // namespace crowdsurf::worker
