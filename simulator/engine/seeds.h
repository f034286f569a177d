// ForEachSeed: a range of seeds over a few threads, results in the order of the seeds.
//
// The only place of this room with threads: every run owns its whole world, so nothing is shared
// but the counter of the next seed. `run` is called from several threads at once and must not touch
// anything shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace crowdsurf::simulator {

// Result must be default-constructible. Pre: threads >= 1. Memory: one Result a seed.
template <class Result, class Run>
std::vector<Result> ForEachSeed(uint64_t first, uint64_t count, unsigned threads, const Run& run) {
  std::vector<Result> results(count);
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    for (uint64_t i = next++; i < count; i = next++) results[i] = run(first + i);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return results;
}

}  // namespace crowdsurf::simulator
