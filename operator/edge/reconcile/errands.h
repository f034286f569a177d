// Errands: what the deciding thread wants to know or to say and does not wait for, on a thread of
// its own.
//
// One after the other, in order; each posts what it found itself. No exception leaves the thread.
// Thread-safe. Bound: kMaxWaiting; what finds no room is refused and counted, and asked for again
// in a later turn. Metrics: crowdsurf_operator_errands_refused_total,
// crowdsurf_operator_errands_waiting.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/mailbox.h"
#include "base/metrics.h"

namespace crowdsurf::controller {

class Errands {
 public:
  static constexpr size_t kMaxWaiting = 256;

  explicit Errands(MetricRegistry& metrics);
  ~Errands() { Stop(); }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  bool Post(std::function<void()> errand);
  // Waits for the one that is under way; those that wait are dropped. Idempotent.
  void Stop();
  bool stopping() const { return stopping_; }

 private:
  void Run();

  Counter& refused_;
  Gauge& waits_;
  Counter& exceptions_;
  std::atomic<bool> stopping_{false};
  Mailbox<std::function<void()>> waiting_{kMaxWaiting};
  std::thread thread_;
};

}  // namespace crowdsurf::controller
