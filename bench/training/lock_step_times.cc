#include "bench/training/lock_step_times.h"

#include <algorithm>
#include <numeric>

namespace crowdsurf::bench {
namespace {

double DrawDelay(const Surroundings& around, Rng& rng) {
  if (around.mean_extra_delay <= 0) return around.min_delay;
  return around.min_delay + rng.Exponential(around.mean_extra_delay);
}

}  // namespace

std::vector<double> AllReduceTimes(const Surroundings& around, const Restarts& restarts,
                                   uint64_t steps, Rng rng) {
  const auto n = static_cast<double>(around.step_seconds.size());
  const double slowest = *std::max_element(around.step_seconds.begin(), around.step_seconds.end());
  std::vector<double> done;
  double now = 0, saved_at = 0;
  size_t saved = 0, death = 0;  // steps in the checkpoint; deaths seen
  while (done.size() < steps) {
    double delay = 0;
    // All wait for the last of n messages.
    for (size_t i = 0; i < around.step_seconds.size(); ++i)
      delay = std::max(delay, DrawDelay(around, rng));
    // A ring sends 2 (n - 1) / n of the vector.
    const double end = now + slowest + delay + 2 * (n - 1) / n * around.vector_seconds;
    if (death < restarts.deaths.size() && restarts.deaths[death] < end) {
      now = std::max(now, restarts.deaths[death]) + restarts.restart_seconds;
      // Those that die meanwhile cost nothing more.
      while (death < restarts.deaths.size() && restarts.deaths[death] < now) ++death;
      // Back to the last checkpoint: the steps after it are done again.
      done.resize(saved);
      saved_at = now;
      continue;
    }
    now = end;
    done.push_back(now);
    if (restarts.checkpoint_seconds > 0 && now - saved_at >= restarts.checkpoint_seconds) {
      saved_at = now;
      saved = done.size();
    }
  }
  return done;
}

std::vector<double> PushSumTimes(const Surroundings& around, uint32_t messages, uint64_t steps,
                                 Rng rng) {
  const size_t n = around.step_seconds.size();
  size_t offset = 1;
  std::vector<double> now(n), done;
  for (uint64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < n; ++i) now[i] += around.step_seconds[i];
    for (uint32_t message = 0; message < messages; ++message) {
      // From copies, because all send at once.
      const std::vector<double> sent = now;
      for (size_t i = 0; i < n; ++i) {
        const double arrives =
            sent[(i + n - offset % n) % n] + around.vector_seconds + DrawDelay(around, rng);
        now[i] = std::max(now[i], arrives);
      }
      // 1, 2, 4, ... below n in turn: the directed exponential graph.
      offset = 2 * offset >= n ? 1 : 2 * offset;
    }
    done.push_back(std::accumulate(now.begin(), now.end(), 0.0) / static_cast<double>(n));
  }
  return done;
}

}  // namespace crowdsurf::bench
