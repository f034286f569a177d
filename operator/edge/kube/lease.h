// Lease: which of several operators decides, through one coordination.k8s.io Lease.
//
// A thread of its own renews every 2 s; whoever cannot renew for 10 s no longer leads, and others
// take over when they have seen no renewal for 15 s by their own clock, or at once when it was
// given back. A follower watches the Lease, so that a clean fail-over takes as long as a request,
// and asks only when the holder's time is over; where it cannot watch it asks every 2 s. Every
// write carries the resourceVersion it is based on: two can never both win. Whoever is not `fit`
// renews no more. leading() from any
// thread. Bounds: the last event of the watch. Source: client-go tools/leaderelection (15/10/2).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/edge/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/time.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

struct LeaseOptions {
  std::string space;
  std::string name = "crowdsurf-operator";
  std::string identity;  // unique: the pod's name and a random part
  Duration duration = Seconds(15);
  Duration renew_deadline = Seconds(10);
  Duration retry = Seconds(2);
  // Asked on the lease's thread before it renews or takes: a process that cannot decide must not
  // lead.
  std::function<bool()> fit = [] { return true; };
  std::function<Time()> clock = SteadyNow;
};

class Lease {
 public:
  // client, watch_client: of its own, so that a busy controller cannot delay a renewal; they
  // outlive this, and Stop stops watch_client.
  Lease(KubeClient& client, KubeClient& watch_client, LeaseOptions options, Logger log,
        MetricRegistry& metrics);
  ~Lease() { Stop(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  void Start();
  // Gives the lease back when it is ours.
  void Stop();
  bool leading() const;
  // Has heard of the Lease by its watch, which still stands.
  bool watching() const;

 private:
  void Run();
  void Renew();
  void Watch();
  Status WatchOnce(const std::string& path);
  void TryOnce();
  bool MayTake(const nlohmann::json& lease, Time seen);
  Status Write(nlohmann::json lease, const std::string& holder);
  std::string Path() const;

  KubeClient& client_;
  KubeClient& watch_client_;
  const LeaseOptions options_;
  const Logger log_;
  Gauge& gauge_;
  Counter& exceptions_;
  std::atomic<Time> leads_until_{Time()};
  std::string seen_renewal_;  // of the holder: version and identity
  Time seen_at_;
  bool held_by_other_ = false;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool watching_ = false;               // the watch has told something since it began
  std::optional<nlohmann::json> news_;  // the Lease as the watch told last
  std::thread thread_, watcher_;
};

}  // namespace crowdsurf::controller
