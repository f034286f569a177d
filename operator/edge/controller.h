// Controller: the operator's loop: what the watches tell becomes keys, keys become reconciles.
//
// One thread owns the cluster's caches, the queue and the reconciler; nothing else touches them.
// While this process does not lead, it keeps its caches warm and decides nothing; when it begins to
// lead, every job is looked at. Between two jobs it takes the watches' news and gives the notices
// of all jobs, so that a notice waits for one job's turn at most. Errors come again after the key's
// own back-off; after an exception every job is looked at again. Bounds: a key a job. Source:
// controller-runtime's contract.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/log.h"
#include "base/metrics.h"
#include "operator/core/observe/agent_turns.h"
#include "operator/core/observe/work_queue.h"
#include "operator/core/pods/lineage_watch.h"
#include "operator/core/pods/order_watch.h"
#include "operator/edge/kube/kube_cluster.h"
#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/reconciler.h"
#include "operator/edge/reconcile/stop_event.h"
#include "operator/edge/reconcile/summary_poller.h"

namespace crowdsurf::controller {

struct ControllerOptions {
  DecideOptions decide;
  std::function<bool()> leading = [] { return true; };  // any thread's view; asked every turn
  std::function<void()> progress = [] {};               // called in every turn and before every job
  bool ask_agents = true;     // for progress; false where pods have no network (tests)
  int ask_every_ms = 10'000;  // two agents a job (pod-lifecycle 8.5: 10-60 s)
};

class Controller {
 public:
  // cluster is started by the caller and outlives this.
  Controller(KubeCluster& cluster, ControllerOptions options, MetricRegistry& metrics, Logger log);

  // Until Stop; on the caller's thread.
  void Run();
  void Stop() { stop_.Set(); }           // any thread, a signal handler too
  bool ready() const { return ready_; }  // caches are filled; any thread
  void RefreshMetrics();                 // before a scrape; any thread
  const StopEvent& stop() const { return stop_; }

 private:
  void Turn();
  void Threw(const std::string& what);
  void TakeNews(std::chrono::steady_clock::time_point deadline);
  void TellMarked();
  void Work(const std::string& key);
  void AskAgentOf(const std::string& key);
  void StopAsking();
  void ForgetAgentsOf(const std::string& key);
  void TakeProgress();

  KubeCluster& cluster_;
  const ControllerOptions options_;
  Reconciler reconciler_;
  const Logger log_;
  ControllerMetrics metrics_;
  Counter& exceptions_;
  WorkQueue queue_;
  Counter& poller_exceptions_;
  Counter& struck_out_;
  std::unique_ptr<SummaryPoller> poller_;
  struct Asked {  // of a job
    explicit Asked(Duration gap) : turns(gap) {}
    std::string job, uid;
    std::string first;                   // worker whose word counts for the job's progress
    std::set<std::string> targets;       // of the poller
    LineageWatch lineages{Seconds(30)};  // three polls
    AgentTurns turns;                    // of who is asked beside the first
    OrderWatch orders;
  };
  void Hear(const SummaryNews& news);
  void SeeOrder(Asked& known, const std::string& worker, const std::string& order);
  std::map<std::string, Asked> asked_;       // by job
  std::map<std::string, std::string> uids_;  // of the jobs worked on, by key
  bool led_ = false;
  StopEvent stop_;
  std::atomic<bool> ready_{false};
};

}  // namespace crowdsurf::controller
