// KeyCollector: takes away the keys of jobs that are gone, on a thread of its own.
//
// A key costs requests to the API server, and three hundred jobs may be deleted at once: whoever
// decides hands them over and goes on. What fails is tried again kAgain later, until it works; no
// exception leaves the thread. Any thread calls it. Bound: kMaxWaiting uids. One that finds no room
// is counted, and a sweep finds its key. Metrics: crowdsurf_operator_keys_collected_total{result},
// crowdsurf_operator_keys_waiting.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::controller {

class KeyCollector {
 public:
  // Two megabytes of uids. Halved: sweeps come sooner; doubled: so much more memory.
  static constexpr size_t kMaxWaiting = 16'384;

  struct Ports {
    // Called on the thread, one at a time.
    std::function<Status(const std::string& job_uid)> forget;
    std::function<Status(const std::set<std::string>& alive)> sweep;
    Duration again = Seconds(10);  // after a try that failed: the API server is away
  };
  KeyCollector(Ports ports, MetricRegistry& metrics, Logger log);
  ~KeyCollector();  // waits for a request that is under way
  KeyCollector(const KeyCollector&) = delete;
  KeyCollector& operator=(const KeyCollector&) = delete;

  // The job of that uid is gone.
  void Forget(const std::string& job_uid);
  // These are all jobs: what is kept for others may go.
  void Sweep(std::set<std::string> alive);

 private:
  void Run();
  Status Next(std::unique_lock<std::mutex>& lock);

  const Ports ports_;
  const Logger log_;
  Counter& collected_;
  Counter& failed_;
  Counter& no_room_;
  Gauge& depth_;
  Counter& exceptions_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> waiting_;  // uids; one that failed goes to the end
  std::set<std::string> alive_;      // as of the last Sweep, less those that went since
  bool sweep_ = false;               // one is due
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace crowdsurf::controller
