// EventuallyHolds: waits for what no event tells a test of, with pauses.
//
// Tests that can wait for an event do that instead. One that only looks, again and again, takes the
// processor from what it waits for. Any thread.
#pragma once

#include <chrono>
#include <thread>

namespace crowdsurf {

// Looks until it holds, for a minute at most: a test fails by it and never waits for it.
template <class Condition>
bool EventuallyHolds(Condition condition) {
  using Clock = std::chrono::steady_clock;
  for (const auto until = Clock::now() + std::chrono::seconds(60); Clock::now() < until;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks; see `until`
  }
  return condition();
}

}  // namespace crowdsurf
