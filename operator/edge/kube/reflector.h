// Reflector: one kind of object, listed and watched on a thread of its own, handed over as events.
//
// List from any version, watch with bookmarks and a random time-out of 5-10 minutes; 410 lists
// again; every failure backs off 0.8 s to 30 s, doubling, jittered, reset by two healthy minutes
// (client-go's reflector). A line of a watch that cannot be read is a failure, and is listed again.
// The receiver gets a whole list (Replace) or single events, in order, on the reflector's thread,
// and posts them to its mailbox; a false from it ends the reflector. Stop() joins. Metrics:
// crowdsurf_operator_watch_restarts_total{reason}.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "operator/core/observe/watch_parser.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

class Reflector {
 public:
  struct Receiver {
    std::function<bool(KubeList)> on_list;
    std::function<bool(WatchEvent)> on_event;
  };
  // path: the list's path with its selectors, e.g. /apis/crowdsurf.io/v1alpha1/trainingjobs. client
  // outlives this.
  Reflector(KubeClient& client, std::string path, Receiver receiver, Rng rng, Logger log,
            MetricRegistry& metrics);
  ~Reflector() { Stop(); }
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void Start();
  // The client must be stopped first, or a watch may take its time-out to end.
  void Stop();

 private:
  void Run();
  Status WatchFrom(std::string& resource_version);
  bool Sleep(Duration d);

  KubeClient& client_;
  const std::string path_;
  const Receiver receiver_;
  Rng rng_;
  const Logger log_;
  Counter& expired_;
  Counter& failed_;
  Counter& garbled_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace crowdsurf::controller
