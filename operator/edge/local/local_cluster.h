// LocalCluster: a Cluster whose pods are process groups on this machine and whose nodes are
// simulated spot machines.
//
// Owns every process of a run; lives on one thread (the main thread: see process.h), which calls
// Wait in a loop: there output is drained, ends are noticed, agents' news arrive, notices run out.
// What the spot market does to nodes comes in through AddNode and TakeNode. Bounds: pods by the
// job's replicas, events kept until taken (a report needs them all), output 64 KiB a process.
// Source: docs/local-mode.md, which also lists the files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "operator/core/pods/agent_summary.h"
#include "operator/core/pods/lineage_watch.h"
#include "operator/core/pods/order_watch.h"
#include "operator/edge/local/local_pod.h"
#include "operator/edge/reconcile/cluster.h"
#include "operator/edge/reconcile/summary_poller.h"
#include "operator/edge/sign/signer.h"

namespace crowdsurf::controller {

struct LocalClusterOptions {
  LocalPodOptions pods;
  // False: every pod gets a node of its own at once. True: only nodes that AddNode gave.
  bool nodes_from_market = false;
  int poll_interval_ms = 500;  // of agents' summaries
};

// Something that happened, for the screen and the report.
struct ClusterEvent {
  enum class Kind { kCreated, kReady, kNoticed, kTaken, kHung, kEnded, kLeft, kTold };
  Kind kind;
  WallTime at;
  std::string pod;     // empty for kTold
  std::string detail;  // reason, exit code (kEnded; kLeft: it was told to go), or what the
                       // operator said
  EventType type = EventType::kNormal;
};

struct LocalWorker {
  const PodFacts* facts;
  const AgentSummary* summary;  // nullptr: no news yet
  WallTime received_at;         // when those came
  std::string http;             // host:port of its agent; empty: not known yet
};

class LocalCluster : public Cluster {
 public:
  using WallClock = std::function<WallTime()>;

  LocalCluster(LocalClusterOptions options, TrainingJob job, Signer& signer, WallClock clock);
  ~LocalCluster() override;  // kills what is left

  // Cluster.
  StatusOr<JobSnapshot> Observe(const std::string& job) override;
  Status Create(const TrainingJob& job, const CreatePod& create) override;
  Status Delete(const DeletePod& pod) override;
  Status Annotate(const AnnotatePod& note) override;
  Status WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) override;
  void Record(const TrainingJob& job, const Event& event) override;

  // Until something changed that a reconcile could act upon (true), one of `others` is readable, or
  // `deadline` (false).
  bool Wait(WallTime deadline, std::span<const int> others = {});

  // The spot market.
  void AddNode(const std::string& node);
  // With notice the node is marked and gone that much later; without, everything on it is killed.
  void TakeNode(const std::string& node, std::optional<Duration> notice);
  // Nodes with a pod that is not told to leave, by pod name; on-demand nodes are not for taking.
  std::vector<std::string> TakeableNodes() const;

  // What kubectl apply does: a new spec under the next generation.
  void Apply(TrainingJobSpec spec);

  // For the screen and the report.
  std::vector<LocalWorker> Workers() const;  // by index, then incarnation
  std::vector<ClusterEvent> TakeEvents();
  const TrainingJobStatus& status() const { return status_; }
  const Progress& progress() const { return progress_; }
  // What an agent last failed to write (checkpoint, model), in its words; empty: nothing.
  const std::string& write_error() const { return write_error_; }

  // Tells every pod to go, and SIGKILLs what is left at now + grace. Wait until idle().
  void StopAll(Duration grace);
  void KillAll();
  bool idle() const { return pods_.empty(); }
  // Children of this process that it waits for.
  std::vector<pid_t> Processes() const;

 private:
  struct Entry {
    std::unique_ptr<LocalPod> pod;
    std::optional<AgentSummary> summary;
    WallTime received_at;
    std::string trouble;                 // said last
    std::optional<WallTime> hold_until;  // see HoldEnd
    PodFacts shown;                      // what Observe gives
  };

  void Say(ClusterEvent::Kind kind, const std::string& pod, std::string detail,
           EventType type = EventType::kNormal);
  Status Place(Entry& entry);
  void PlaceWaiting();
  void OnNews(const SummaryNews& news);
  void Look(Entry& entry, WallTime now);
  bool HoldEnd(Entry& entry, WallTime now);
  bool MayHaveTrained(const Entry& entry) const;
  void MeetTarget();
  void ReadTermination(const Entry& entry);
  void NameOtherTensors(const std::string& worker, const AgentSummary& told);
  void NameEqualOrder(const std::string& worker, const AgentSummary& told);
  void NameSilentPeers(const std::string& worker, const AgentSummary& told);
  void CountLineages(const std::string& worker, const AgentSummary& told);
  void NoteWriteError(const std::string& worker, const std::string& error);
  void RunTimers(WallTime now);
  void BuryGone();
  WallTime NextTimer() const;
  void UpdateLoss();

  const LocalClusterOptions options_;
  TrainingJob job_;
  Signer& signer_;
  const WallClock clock_;
  const int inotify_;
  SummaryPoller poller_;
  TrainingJobStatus status_;
  Progress progress_;
  WallTime target_met_at_;  // when it was heard of
  std::map<std::string, Entry> pods_;
  std::map<std::string, NodeFacts> nodes_;
  std::vector<ClusterEvent> events_;
  int next_node_ = 1;
  bool silent_peers_said_ = false;
  OrderWatch orders_;
  LineageWatch lineages_;
  std::string write_error_;  // what an agent could not write last; empty: all is written
  bool changed_ = false;
};

}  // namespace crowdsurf::controller
