// KubeCluster: a real Kubernetes behind the Cluster port.
//
// Three watches (jobs, workers' pods, nodes) run on threads of their own. Each projects an object
// as soon as it is read (observe.h) and posts that into one bounded mailbox; a watch that finds it
// full is not read on. Everything else happens on the host's thread, which calls Await and the
// port. Own writes enter the caches at once with the version that the server answered, so a
// decision never sees less than it has done (object_cache.h; expectations, as
// controllers of Kubernetes have them). A job's key is "namespace/name". Bounds: the objects of the
// server, kMaxNews and kMaxNewsBytes, 25 events a job and one more every 12 s. Source:
// docs/kubernetes.md.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/mailbox.h"
#include "base/rng.h"
#include "operator/core/decide/death_reports.h"
#include "operator/core/observe/object_cache.h"
#include "operator/core/observe/observe.h"
#include "operator/core/observe/uid_records.h"
#include "operator/core/pods/pod_builder.h"
#include "operator/edge/kube/accepted_specs.h"
#include "operator/edge/kube/job_objects.h"
#include "operator/edge/kube/job_record.h"
#include "operator/edge/kube/kube_client.h"
#include "operator/edge/kube/reflector.h"
#include "operator/edge/reconcile/cluster.h"
#include "operator/edge/reconcile/errands.h"

namespace crowdsurf::controller {

// Least time between looks at a node's Lease, which its kubelet renews every 10 s.
inline constexpr Duration kLeaseGap = Seconds(2);
// Leases read in one turn of a job, those first that were read longest ago: ten rounds of requests.
inline constexpr size_t kMaxLeases = 120;

struct KubeClusterOptions {
  PodBuilderOptions pods;
  std::string space;  // the only namespace that is looked at; empty: all
  // For notices alone, whose budget is seconds: they wait for no create and for no pause that the
  // server asked for. It outlives the cluster. nullptr: the client of all else.
  KubeClient* notices = nullptr;
  // For what nobody waits for, questions and events. It outlives the cluster. nullptr: as above.
  KubeClient* beside = nullptr;
  // What the agents of a job trust, PEM: called before its first pod is made. Errors refuse the
  // pod.
  std::function<StatusOr<std::string>(const TrainingJob&)> trust;
  std::function<WallTime()> clock;
  // A job is gone: what was kept for its uid may go. Must not wait. May be empty.
  std::function<void(const std::string& job_uid)> forget = {};
  // Asks an agent whether it lives; the result comes to PostProbe. False: no room, asked for again.
  // Without it nobody is taken for dead on peers' word.
  std::function<bool(const DeathReports::Probe&)> probe = {};
  // What was kept for jobs that are not among these uids may go, once the server says that they are
  // gone: called after each list of all jobs. Must not wait. May be empty.
  std::function<void(std::set<std::string> job_uids)> sweep = {};
};

class KubeCluster : public Cluster {
 public:
  // A list of 10,000 pods is one piece of news; events behind it wait here. Halved: watches pause
  // sooner; doubled: a stalled host holds that much more memory.
  static constexpr size_t kMaxNews = 4096;
  // Twice 4,096 pods, or some hundred jobs with long templates.
  static constexpr size_t kMaxNewsBytes = 16 << 20;

  // client outlives this and is stopped first.
  KubeCluster(KubeClient& client, KubeClusterOptions options, Rng rng, Logger log,
              MetricRegistry& metrics);
  ~KubeCluster() override;

  void Start();
  void Stop();
  // Takes what the watches told, waiting until `deadline` for the first; keys of jobs that it
  // touched.
  std::set<std::string> Await(std::chrono::steady_clock::time_point deadline);
  // Every watch has its first list: nothing may be decided before.
  bool synced() const { return listed_[0] && listed_[1] && listed_[2]; }
  std::vector<std::string> Jobs() const;
  std::string UidOf(const std::string& job) const;  // empty: there is none
  struct AskedAgent {
    std::string job_uid;
    std::string worker;
    std::string http;  // its plain port
    bool operator==(const AskedAgent&) const = default;
  };
  // Whom to ask for the job's progress: a Ready worker of this job, not of one of the same name
  // that was deleted. nullopt: there is none.
  std::optional<AskedAgent> AgentOf(const std::string& job) const;
  struct Agent {
    int index = 0;  // of its pod
    std::string http;
  };
  // All that can be asked, by worker.
  std::map<std::string, Agent> AgentsOf(const std::string& job) const;
  // What an agent of the job with that uid told; seen by the next Observe. A change of numbers
  // alone is taken once a minute; what was told of a job that has gone meanwhile is dropped.
  void SetProgress(const std::string& job, const std::string& uid, const Progress& progress);
  // What `worker` of that job waits for, as its agent says (start_cause.h); empty: nothing.
  // Whether that is news.
  bool SetWait(const std::string& job, const std::string& uid, const std::string& worker,
               const std::string& wait);
  // An event about the job of that uid, if it is there.
  void Say(const std::string& job, const std::string& uid, const Event& event);
  Status DeleteJob(const std::string& job);
  // Jobs of whose workers some came under a mark since the last call: their notices are due.
  std::set<std::string> TakeMarked() { return std::exchange(marked_, {}); }
  // Whether a worker's pod of that uid is known. From any thread.
  bool IsWorker(const std::string& pod_uid) const;
  // From any thread. False: no room. Of these two all the rest is in kube_deaths.cc.
  bool PostReport(DeathReport report);
  bool PostProbe(const std::string& uid, ProbeResult result);

  // Besides the port's errors: FailedPrecondition, somebody else manages the job; InvalidArgument,
  // its spec (its status then says so).
  StatusOr<JobSnapshot> Observe(const std::string& job) override;
  StatusOr<JobSnapshot> Glance(const std::string& job) override;
  Status Create(const TrainingJob& job, const CreatePod& create) override;
  // At most kMaxParallelRequests requests at once; the caller waits for all.
  std::vector<Status> CreateAll(const TrainingJob& job, std::span<const CreatePod> creates,
                                const Enough& enough) override;
  Status Delete(const DeletePod& pod) override;
  std::vector<Status> DeleteAll(std::span<const DeletePod> pods, const Enough& enough) override;
  Status Annotate(const AnnotatePod& note) override;
  // As CreateAll: kubelet misses fewer when it hears of them all in one look (policy_agents.cc).
  std::vector<Status> AnnotateAll(std::span<const AnnotatePod> notes,
                                  const Enough& enough) override;
  // Of this and of all that Observe asks the rest is in kube_questions.cc.
  void AskPods(const TrainingJob& job, std::span<const std::string> names) override;
  Status WriteStatus(const TrainingJob& job, const TrainingJobStatus& status) override;
  // Events are written on a thread of their own; what finds no room is dropped, and counted.
  void Record(const TrainingJob& job, const Event& event) override;
  void RecordAll(const TrainingJob& job, std::span<const Event> events) override;
  Status ShowError(const std::string& job, const std::string& what) override;

 private:
  enum Kind { kJobs, kPods, kNodes };
  using Probed = std::pair<std::string, ProbeResult>;  // by uid
  struct Said {                                        // by the events of a late worker
    std::string job, job_uid, pod_uid, message;
  };
  struct PodAnswers {  // of the pods that AskPods named
    std::string job, job_uid;
    std::vector<std::string> gone;
    std::vector<Sighting<PodEntry>> seen;
    bool all = true;  // each has an answer
  };
  struct NodeAnswers {
    std::vector<std::string> gone;
  };
  struct LeaseAnswers {
    std::vector<std::string> read;                             // nodes, also where that failed
    std::vector<std::pair<std::string, std::string>> renewed;  // by node; when, as it says
  };
  using News = std::variant<Listing<JobEntry>, Listing<PodEntry>, Listing<NodeEntry>,
                            Sighting<JobEntry>, Sighting<PodEntry>, Sighting<NodeEntry>,
                            DeathReport, Probed, Said, PodAnswers, NodeAnswers, LeaseAnswers>;
  struct WatchedLease {
    LeaseAge age;
    WallTime asked;
  };
  struct Silent {  // of a node that is not Ready: its Lease as it was read last
    std::string renewed;
    std::optional<WallTime> renewed_at;  // by our clock
    WallTime asked;
    WallTime answered;  // also by a read that failed
    bool awaited() const { return asked.unset() || answered < asked; }
  };
  std::string PathOf(Kind kind) const;
  template <class T>
  using Project = std::optional<T> (*)(const nlohmann::json& object);
  template <class T>
  std::optional<Sighting<T>> See(Kind kind, Project<T> project, const nlohmann::json& object);
  template <class T>
  Reflector::Receiver ReceiverOf(Kind kind, Project<T> project);
  void Take(Listing<JobEntry> list, std::set<std::string>& touched);
  void Take(Listing<PodEntry> list, std::set<std::string>& touched);
  void Take(Listing<NodeEntry> list, std::set<std::string>& touched);
  void Take(Sighting<JobEntry> seen, std::set<std::string>& touched);
  void Take(Sighting<PodEntry> seen, std::set<std::string>& touched);
  void Take(Sighting<NodeEntry> seen, std::set<std::string>& touched);
  void Take(const DeathReport& report, std::set<std::string>& touched) {
    TakeReport(report, touched);
  }
  void Take(const Probed& probed, std::set<std::string>& touched) {
    TakeProbe(probed.first, probed.second, touched);
  }
  void Take(const Said& said, std::set<std::string>& touched);
  void Take(PodAnswers answers, std::set<std::string>& touched);
  void Take(const NodeAnswers& answers, std::set<std::string>& touched);
  void Take(const LeaseAnswers& answers, std::set<std::string>& touched);
  void Touch(const ObjectCache<JobEntry>::Change& change, std::set<std::string>& touched);
  void EndOf(const std::string& key, const std::string& uid);
  void Touch(const ObjectCache<PodEntry>::Change& change, std::set<std::string>& touched);
  void Touch(const ObjectCache<NodeEntry>::Change& change, std::set<std::string>& touched);
  void ListenToNodes(std::set<std::string>& touched);
  void CountOn(const PodEntry& pod, int change);
  void Assume(Sighting<PodEntry> pod);
  std::optional<ObjectCache<JobEntry>::Change> AssumeJob(const nlohmann::json& job);
  Status PatchStatus(const std::string& key, const nlohmann::json& diff);
  void ShowCaches();
  void Hear(const PodEntry& pod);
  static void AddHeard(const JobRecord& record, JobSnapshot& snapshot);
  std::set<std::string> AddPods(const JobEntry& entry, JobSnapshot& snapshot);
  void AddGone(const JobEntry& entry, JobRecord& record, JobSnapshot& snapshot) const;
  void LookBeside(JobSnapshot& snapshot);
  Status ChooseSpec(const JobEntry& entry, JobSnapshot& snapshot);
  void Sweep();
  bool HasPods(const TrainingJob& job) const;
  StatusOr<Sighting<PodEntry>> Patch(const AnnotatePod& note) const;
  StatusOr<Sighting<PodEntry>> Post(const TrainingJob& job, const CreatePod& create,
                                    const PodBuilderOptions& options);
  Status Settle(const TrainingJob& job, const CreatePod& create,
                const StatusOr<Sighting<PodEntry>>& made);
  Status Remove(const DeletePod& pod);
  bool MaySay(const TrainingJob& job);
  Status RefuseSpec(const JobEntry& entry);
  void AskForNodes(const std::set<std::string>& names);
  KubeClient& beside() { return options_.beside != nullptr ? *options_.beside : client_; }
  void AskForLeases(const std::string& job, const JobRecord& record);
  std::vector<std::string> LeasesDue(const std::string& job, const JobRecord& record);
  std::optional<WallTime> RenewedAt(const std::string& node, const NodeFacts& facts);
  void ExplainWaiting(const std::string& job, JobRecord& record, JobSnapshot& snapshot);
  bool AskWhatItsEventsSay(const std::string& job, const JobSnapshot& snapshot,
                           const std::string& pod_uid);
  void CountDeaths(MetricRegistry& metrics);
  bool HasRoom() const;
  void TakeReport(const DeathReport& report, std::set<std::string>& touched);
  void TakeProbe(const std::string& uid, ProbeResult result, std::set<std::string>& touched);
  void LookAtDeaths(std::set<std::string>& touched);
  void JudgeDeaths(const std::string& job, JobRecord& record, JobSnapshot& snapshot);
  bool LeaseIsStale(const std::string& node) const;
  void Suspect(JobSnapshot& snapshot) const;
  Status AdoptExisting(const TrainingJob& job, const CreatePod& create, const Status& refusal);

  KubeClient& client_;
  const KubeClusterOptions options_;
  const Logger log_;
  Counter& events_dropped_;
  Gauge* cached_[3];        // crowdsurf_operator_cache_objects, by Kind
  Counter* unreadable_[3];  // crowdsurf_operator_objects_unreadable_total
  Counter& news_waits_;
  Gauge& news_bytes_;
  Counter& exceptions_;  // of projections
  Mailbox<News> news_;
  std::atomic<bool> stopping_{false};
  bool listed_[3] = {};
  // Infinite at first: whoever was silent before this operator began gets its full time, too.
  WallTime nodes_heard_since_ = WallTime::Infinite();
  ObjectCache<JobEntry> jobs_;
  ObjectCache<PodEntry> pods_;
  ObjectCache<NodeEntry> nodes_;
  std::map<std::string, std::set<std::string>> pods_of_;  // job -> keys of its pods
  mutable std::mutex uids_mutex_;                         // of who writes the next and IsWorker
  std::map<std::string, std::string> pod_of_uid_;         // uid -> key
  std::map<std::string, std::map<std::string, int>> pods_on_;  // node -> job -> how many
  std::map<std::string, Silent> silent_;                       // nodes that are not Ready
  std::set<std::string> gone_nodes_;                           // as their watch or the server says
  std::map<std::string, WallTime> asked_nodes_;  // unknown ones, and when they were asked for
  std::set<std::string> marked_;                 // jobs: TakeMarked
  JobObjects objects_;
  AcceptedSpecs specs_;
  std::set<std::string> assumed_;                // jobs that our own writes touched
  UidRecords<JobRecord> records_;                // one of each job in jobs_
  std::map<std::string, WallTime> pod_gone_at_;  // by namespace: when a worker's pod last went
  DeathReports deaths_;
  WallTime deaths_looked_at_;
  std::map<std::string, WatchedLease> leases_;  // of nodes of open cases, and of the suspect
  std::map<ReportFate, Counter*> death_reports_;
  std::map<ProbeResult, Counter*> death_probes_;
  std::vector<std::unique_ptr<Reflector>> reflectors_;
  Errands errands_;  // these end first: they post news
  Errands events_;
};

}  // namespace crowdsurf::controller
