// Slow work: what would hold the host thread too long (hashing and reading files), elsewhere.
//
// One thread takes jobs in their order; what a job returns is posted to the host and runs there.
// Owner: the agent. Run from the host thread; a job touches nothing that the host changes
// meanwhile. Bounds: kMax jobs wait; a further one is refused, and counted.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/edge/host_loop.h"
#include "base/mailbox.h"
#include "base/metrics.h"

namespace crowdsurf::worker {

class SlowWork {
 public:
  static constexpr size_t kMax = 16;
  using Job = std::function<HostLoop::Closure()>;

  // `host` outlives it.
  SlowWork(HostLoop& host, MetricRegistry& registry);
  ~SlowWork();  // ends after the job in hand; what waits is dropped

  [[nodiscard]] bool Run(Job job);

 private:
  void Loop();

  HostLoop& host_;
  Counter& refused_;
  Mailbox<Job> jobs_{kMax};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace crowdsurf::worker
