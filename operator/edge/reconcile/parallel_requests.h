// ParallelRequests: several requests to the API server side by side, for a caller that waits for
// all of them.
//
// What their answers mean is settled by the caller afterwards, in order and on its own thread.
// Threads are made for the call: a request takes a thousand times as long as a thread. An exception
// of a request is thrown to the caller, when all have ended. Bound: kMaxParallelRequests threads.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "operator/edge/reconcile/cluster.h"

namespace crowdsurf::controller {

// Of the client's 16 connections; the rest are for what the certificates' port asks meanwhile.
inline constexpr size_t kMaxParallelRequests = 12;

// `ask` of 0 .. count - 1, from any thread, the caller's among them. The answers to those that were
// begun, in that order: all of them, or the first ones when it was enough, but at least one.
template <class Ask>
auto ParallelRequests(size_t count, const Ask& ask, const Enough& enough = {})
    -> std::vector<std::invoke_result_t<Ask, size_t>> {
  std::vector<std::invoke_result_t<Ask, size_t>> answers(count);
  std::mutex mutex;  // of the next three
  size_t begun = 0;
  bool ended = false;
  std::exception_ptr thrown;
  const auto begin = [&](size_t& i) {
    const std::lock_guard lock(mutex);
    if (ended || begun == count) return false;
    i = begun++;
    return true;
  };
  const auto work = [&] {
    std::exception_ptr caught;
    try {
      for (size_t i; begin(i);) {
        answers[i] = ask(i);
        if (!enough || !enough()) continue;
        const std::lock_guard lock(mutex);
        ended = true;
      }
    } catch (...) {
      caught = std::current_exception();
    }
    if (!caught) return;
    const std::lock_guard lock(mutex);
    ended = true;
    thrown = caught;
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(count, kMaxParallelRequests); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (thrown) std::rethrow_exception(thrown);
  answers.resize(begun);
  return answers;
}

}  // namespace crowdsurf::controller
