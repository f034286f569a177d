// DeathReports: what workers of a job say about others of it, and when that is believed.
//
// Peers see a silent death in seconds; a kubelet's silence takes 46. A worker counts as dead when
// two others of its job say so (or all others, where there are fewer), each of them lately, and it
// is confirmed: the operator's own probe of its agent goes unanswered, or its node's Lease has not
// been renewed for 15 s. An agent that answers the probe lives, whatever else is said. A worker can
// only speak of others of its own job; saying it often is saying it once. Owner: KubeCluster, host
// thread. Bounds: kMaxCases, kMaxReporters of each, kKept since they were last said. Source:
// docs/pod-lifecycle.md 3.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/observe/observe.h"

namespace crowdsurf::controller {

// As it comes from a worker; whose it is, the API server has said.
struct DeathReport {
  std::string reporter_uid;
  std::string space;              // of the reporter, and so of its job
  std::vector<std::string> dead;  // names of pods of that job
};

// What became of one name of it, and the label of its counter.
enum class ReportFate { kTaken, kStranger, kItself, kOtherJob, kUnknown, kGone, kFull };
std::string_view Name(ReportFate fate);

enum class ProbeResult {
  kAnswers,
  kSilent,
  kBlind  // another agent that must be alive did not answer either: the prober is cut off
};
std::string_view Name(ProbeResult result);

// A Lease as its node renews it. Compared with itself only, by our own clock: the kubelet's may
// differ.
class LeaseAge {
 public:
  static constexpr Duration kStale = Seconds(15);  // a kubelet renews it every 10 s
  // A read that failed says nothing, and what was read before it ages no further.
  void Saw(WallTime now, const std::string& renewed);
  bool Stale() const { return last_ - since_ > kStale; }
  // It was seen to change after `at`: there is a kubelet behind it.
  bool RenewedAfter(WallTime at) const { return changed_ > at; }

 private:
  std::string renewed_;
  WallTime since_, last_;
  WallTime changed_;  // unset: one value was seen so far
};

class DeathReports {
 public:
  static constexpr size_t kMaxCases = 4096;
  static constexpr size_t kMaxReporters = 16;
  static constexpr Duration kKept = Seconds(30);  // an agent repeats itself every 5 s
  static constexpr Duration kProbeAgain = Seconds(10);
  static constexpr Duration kProbeHolds = Seconds(20);  // longer than until the next one is back

  // reporter, subject: as the caches have them; nullptr: not there.
  ReportFate Take(WallTime now, const PodEntry* reporter, const PodEntry* subject);

  struct Probe {
    std::string uid;      // whose agent is to be asked
    std::string http;     // host:port; empty: it has none yet
    std::string control;  // of a worker that said so, and so must be alive
  };
  struct Finding {
    bool dead = false;
    bool lease_stale = false;  // evidence that is in the API
  };
  struct Review {
    std::map<std::string, Finding> findings;  // by uid: of every open case of the job
    std::vector<Probe> probes;                // to be made now; their results come to Probed
  };
  // pods: all of one job. lease_stale: of a node; asked only for those of open cases. Cases of pods
  // that are told to go, or are not among them, are closed. O(pods + cases of the job).
  Review Look(WallTime now, const std::string& job, const std::vector<const PodEntry*>& pods,
              const std::function<bool(const std::string& node)>& lease_stale);
  // The job whose case it is; empty: closed meanwhile.
  std::string Probed(WallTime now, const std::string& uid, ProbeResult result);

  // Jobs with open cases: to be looked at now and then, because time passes.
  std::set<std::string> Jobs() const;
  size_t cases() const { return cases_.size(); }
  bool Open(const std::string& uid) const { return cases_.contains(uid); }
  void Forget(const std::string& job_uid);  // it is gone

 private:
  struct Case {
    std::string job, job_uid;
    std::map<std::string, WallTime> said;  // by the reporter's uid: when last
    std::optional<WallTime> asked;         // a probe is under way, or was
    std::optional<ProbeResult> result;
    WallTime result_at;
  };
  void Expire(WallTime now);
  std::map<std::string, Case> cases_;  // by the subject's uid
};

}  // namespace crowdsurf::controller
