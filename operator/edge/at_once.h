// AtOnce: several requests to the API server side by side, for a caller that waits for all of them.
//
// What their answers mean is settled by the caller afterwards, in order and on its own thread.
// Threads are made for the call: a request takes a thousand times as long as a thread. Bound:
// kMostAtOnce threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/status.h"

namespace crowdsurf::controller {

// Of the client's 16 connections; the rest are for what the certificates' port asks meanwhile.
inline constexpr size_t kMostAtOnce = 12;

// `ask` of 0 .. count - 1: a StatusOr<json> each, from any thread, the caller's among them.
template <class Ask>
std::vector<StatusOr<nlohmann::json>> AtOnce(size_t count, const Ask& ask) {
  std::vector<StatusOr<nlohmann::json>> answers(count);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) answers[i] = ask(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(count, kMostAtOnce); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return answers;
}

}  // namespace crowdsurf::controller
