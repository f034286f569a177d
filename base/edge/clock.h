// The two clocks of this machine, as the values cores are given (base/time.h).
//
// Only edges and programs read clocks; cores are told the time. Any thread; some 30 ns a call.
// SteadyNow never goes back and means nothing on another machine; WallNow is UTC and may jump.
#pragma once

#include <chrono>

#include "base/time.h"

namespace crowdsurf {

inline Time SteadyNow() {
  return Time::FromNanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

inline WallTime WallNow() {
  return WallTime::FromNanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::system_clock::now().time_since_epoch())
                                       .count());
}

}  // namespace crowdsurf
