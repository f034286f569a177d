// Reflector: one kind of object, listed and watched on a thread of its own, handed over as events.
//
// Lists item by item, then watches with bookmarks; 410 lists again; whatever does not last waits
// (watch_pace.h). A line of a watch that cannot be read is a failure, and is listed again. A watch
// asks for 20 to 25 s: the server ends it, with a bookmark, by then, so that one that is silent for
// longer has lost its connection, and no notice waits longer for it. The receiver is called on the
// reflector's thread, in order, projects what it gets and posts that to its mailbox; where it waits
// the watch is not read on. A false from it ends the reflector. Stop() joins. No exception leaves
// the thread: each is a failure. Metrics: crowdsurf_operator_watch_restarts_total{reason}.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "operator/core/observe/watch_pace.h"
#include "operator/core/observe/watch_parser.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class Reflector {
 public:
  struct Receiver {
    // Of the list, with its selectors: /apis/crowdsurf.io/v1alpha1/trainingjobs.
    std::string path;
    std::function<void()> on_begin;  // a list begins; what an earlier one left means nothing
    std::function<void(const nlohmann::json&)> on_item;
    std::function<bool(const std::string& version)> on_list;  // that was all of it
    std::function<bool(WatchEvent)> on_event;
  };
  // client outlives this.
  Reflector(KubeClient& client, Receiver receiver, Rng rng, Logger log, MetricRegistry& metrics);
  ~Reflector() { Stop(); }
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void Start();
  // The client must be stopped first, or a watch may take its time-out to end.
  void Stop();

 private:
  void Run();
  Status List(std::optional<std::string>& version);
  Status WatchFrom(std::string& version);
  Status TakeEvent(WatchEvent event, std::string& version);
  Counter& Why(const Status& ended);
  void Sleep(Duration d);  // Stop ends it

  KubeClient& client_;
  const Receiver receiver_;
  Rng rng_;
  WatchPace pace_;
  const Logger log_;
  Counter& exceptions_;
  Counter& short_;
  Counter& expired_;
  Counter& failed_;
  Counter& garbled_;
  std::mutex mutex_;  // held where Stop sets stopping_, so that no sleeper misses it
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace crowdsurf::controller
