#include "operator/edge/reconcile/key_collector.h"

#include <chrono>
#include <utility>

#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/no_escape.h"

namespace crowdsurf::controller {
namespace {

Counter& Collected(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_operator_keys_collected_total",
                            "Keys of deleted jobs, by what became of a try to delete them.",
                            {{"result", result}});
}

}  // namespace

KeyCollector::KeyCollector(Ports ports, MetricRegistry& metrics, Logger log)
    : ports_(std::move(ports)),
      log_(log),
      collected_(Collected(metrics, "collected")),
      failed_(Collected(metrics, "failed")),
      no_room_(Collected(metrics, "no_room")),
      depth_(metrics.AddGauge("crowdsurf_operator_keys_waiting",
                              "Keys of deleted jobs that wait to be deleted.")),
      exceptions_(ExceptionsOf(metrics, "keys")),
      thread_([this] { Run(); }) {}

KeyCollector::~KeyCollector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void KeyCollector::Forget(const std::string& job_uid) {
  {
    const std::lock_guard lock(mutex_);
    alive_.erase(job_uid);
    if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back(job_uid);
    } else {
      no_room_.Add();
      sweep_ = true;
    }
    depth_.Set(static_cast<double>(waiting_.size()));
  }
  wake_.notify_all();
}

void KeyCollector::Sweep(std::set<std::string> alive) {
  {
    const std::lock_guard lock(mutex_);
    alive_ = std::move(alive);
    sweep_ = true;
  }
  wake_.notify_all();
}

// One key, or a sweep when no key waits. Without the lock while it asks.
Status KeyCollector::Next(std::unique_lock<std::mutex>& lock) {
  if (waiting_.empty()) {
    sweep_ = false;
    const std::set<std::string> alive = alive_;
    lock.unlock();
    const Status swept = NoEscape(&exceptions_, [&] { return ports_.sweep(alive); });
    lock.lock();
    if (!swept.ok()) sweep_ = true;
    return swept;
  }
  const std::string uid = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  const Status gone = NoEscape(&exceptions_, [&] { return ports_.forget(uid); });
  lock.lock();
  (gone.ok() ? collected_ : failed_).Add();
  if (!gone.ok()) waiting_.push_back(uid);
  depth_.Set(static_cast<double>(waiting_.size()));
  return gone;
}

void KeyCollector::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || sweep_ || !waiting_.empty(); });
    if (stopping_) return;
    const Status done = Next(lock);
    if (done.ok()) continue;
    log_.Warning("keys of deleted jobs are kept", {{"why", done.ToString()}});
    wake_.wait_for(lock, std::chrono::nanoseconds(ports_.again.nanoseconds()),
                   [this] { return stopping_; });
  }
}

}  // namespace crowdsurf::controller
