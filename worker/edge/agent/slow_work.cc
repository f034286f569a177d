#include "worker/edge/agent/slow_work.h"

#include <chrono>

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::milliseconds kHostFull{10};  // until its mailbox is looked at again

}  // namespace

SlowWork::SlowWork(HostLoop& host, MetricRegistry& registry)
    : host_(host),
      refused_(registry.AddCounter("crowdsurf_worker_slow_work_refused_total",
                                   "Hashes and reads left out because too many waited.")),
      thread_([this] { Loop(); }) {}

SlowWork::~SlowWork() {
  stopped_ = true;
  jobs_.Close();
  thread_.join();
}

bool SlowWork::Run(Job job) {
  const bool taken = jobs_.Post(std::move(job));
  if (!taken) refused_.Add();
  return taken;
}

void SlowWork::Loop() {
  while (!stopped_) {
    // Close ends the wait. What is still queued is then dropped, because stopped_ is set first.
    const auto job = jobs_.Take(std::chrono::steady_clock::time_point::max());
    if (!job) return;
    const HostLoop::Closure after = (*job)();
    // Somebody waits for it: a full mailbox is a matter of time.
    while (!stopped_ && !host_.Post(after)) std::this_thread::sleep_for(kHostFull);
  }
}

}  // namespace crowdsurf::worker
