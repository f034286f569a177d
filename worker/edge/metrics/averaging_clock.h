// Averaging clock: reads the clock for AveragingParts, on the threads that work.
//
// The I/O threads and the host thread mark their work with AveragingWork; the agent says when an
// averaging is asked for and over. A finished averaging goes into the metrics and the totals.
// Thread-safe; a mark costs two looks at the clock and two uncontended locks, some 0.2 us.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/time.h"
#include "worker/core/averaging/averaging_parts.h"
#include "worker/edge/metrics/agent_metrics.h"

namespace crowdsurf::worker {

// Sums over the averagings of this agent that gave a mean. Seconds.
struct AveragingTotals {
  uint64_t number = 0;
  double whole = 0;
  std::array<double, kAveragingParts.size()> parts = {};
};

class AveragingClock {
 public:
  // `now` is asked under a lock, on any thread. `metrics` outlive the clock.
  AveragingClock(std::function<Time()> now, AgentMetrics& metrics)
      : now_(std::move(now)), metrics_(metrics) {}

  void OnAsked(AveragingId averaging) {
    const std::lock_guard lock(mutex_);
    parts_.OnAsked(now_(), averaging);
  }
  void OnPublished(AveragingId averaging) {
    const std::lock_guard lock(mutex_);
    parts_.OnPublished(now_(), averaging);
  }
  void OnDelivered(AveragingId averaging);
  void OnGivenUp() {
    const std::lock_guard lock(mutex_);
    parts_.OnGivenUp();
  }
  AveragingTotals totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

 private:
  friend class AveragingWork;
  void Begin(AveragingPart work) {
    const std::lock_guard lock(mutex_);
    parts_.Begin(now_(), work);
  }
  void End(AveragingPart work) {
    const std::lock_guard lock(mutex_);
    parts_.End(now_(), work);
  }

  const std::function<Time()> now_;
  AgentMetrics& metrics_;
  mutable std::mutex mutex_;
  AveragingParts parts_;
  AveragingTotals totals_;
};

// A piece of work of one thread: a scope. Without a clock: nothing.
class AveragingWork {
 public:
  AveragingWork(AveragingClock* clock, AveragingPart work) : clock_(clock), work_(work) {
    if (clock_ != nullptr) clock_->Begin(work_);
  }
  AveragingWork(const AveragingWork&) = delete;
  AveragingWork& operator=(const AveragingWork&) = delete;
  ~AveragingWork() {
    if (clock_ != nullptr) clock_->End(work_);
  }

 private:
  AveragingClock* const clock_;
  const AveragingPart work_;
};

}  // namespace crowdsurf::worker
