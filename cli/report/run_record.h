// RunRecord: what happened in a run, and the figures of its report.
//
// Fed twice a second with what every agent says of itself and with what the cluster did; agents
// come and go and their counters with them, so counters are summed as increments seen while the
// worker was not told to leave ("a round that failed for a survivor"). Pure: instants are
// arguments, in seconds since the epoch. Single sequence. Bounds: the series are thinned to 2,000
// points.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/pods/agent_summary.h"

namespace crowdsurf::cli {

// One point of the report's charts.
struct RecordPoint {
  double at = 0;       // unix seconds
  int training = 0;    // workers
  double samples = 0;  // of the job, so far
  double rate = 0;     // samples a second, all workers
  std::optional<double> loss;
  double round_p50 = 0, round_p95 = 0;  // seconds; 0: none yet
};

// The life of one worker, for the timeline.
struct WorkerLife {
  std::string name;
  int index = 0;
  int incarnation = 0;
  double created = 0;
  std::optional<double> first_step;
  std::optional<double> noticed;
  std::optional<double> taken;  // by the market
  std::optional<double> ended;
  bool with_state = false;
};

// The figures of the report; absent ones could not be measured.
struct RunFigures {
  double duration_seconds = 0;  // of training
  std::optional<double> start_seconds;
  uint64_t samples = 0;
  double samples_per_second = 0;
  std::optional<double> goodput;
  uint64_t rounds_completed = 0, rounds_failed = 0, rounds_failed_by_peer_loss = 0;
  uint64_t rounds_repaired = 0, hash_mismatches = 0;
  double apart_seconds = 0;  // that workers trained in several lineages
  uint64_t preemptions = 0;
  std::optional<double> replacement_p50, replacement_p95;
  std::optional<double> averaging_stall_ratio;
  controller::SummaryAveragings averagings;  // sums over all workers
  int workers_min = 0, workers_max = 0;
  std::optional<double> loss;
};

// What a worker was told.
enum class Told : uint8_t { kNothing, kToLeave };

class RunRecord {
 public:
  // launched: when the program began; replicas: workers wanted.
  RunRecord(double launched, int replicas) : launched_(launched), replicas_(replicas) {}

  void Created(double at, const std::string& worker, int index, int incarnation);
  void Noticed(double at, const std::string& worker);
  void Taken(double at, const std::string& worker);
  void Ended(double at, const std::string& worker);
  // What an agent says now. The failed rounds of one that was told to leave are nobody's loss.
  void Saw(double at, const std::string& worker, const controller::AgentSummary& summary,
           Told told);
  // In how many lineages workers train since the last call (lineage_watch.h).
  void SawLineages(double at, int count);
  // After the Saw of all workers: a point of the charts.
  void Tick(double at);
  // Training is over (target met, or the run was stopped).
  void Finish(double at);

  RunFigures Figures() const;
  const std::vector<RecordPoint>& points() const { return points_; }
  std::vector<WorkerLife> lives() const;  // by index, then incarnation
  bool all_started() const { return started_at_.has_value(); }
  double launched() const { return launched_; }
  std::optional<double> training_began() const { return first_step_; }
  double rate() const { return rate_; }  // of all workers together, now

 private:
  // Of one worker, its warm-up left out.
  struct OwnPace {
    double since = 0;       // 0: not begun
    double samples = 0;     // at that time
    double per_second = 0;  // 0: not known yet
  };
  struct Seen {
    WorkerLife life;
    OwnPace pace;
    controller::AgentSummary last;
    double last_at = 0;
    bool leaving = false;
  };

  static void Pace(double at, const controller::AgentSummary& summary, Seen& seen);

  const double launched_;
  const int replicas_;
  std::map<std::string, Seen> workers_;
  std::set<int> indices_started_;
  std::optional<double> started_at_;  // the last of the first workers made its first step
  std::optional<double> first_step_;
  std::optional<double> finished_;
  std::map<int, double> waiting_;  // index -> when its worker was taken
  std::vector<double> replacements_;
  std::vector<RecordPoint> points_;
  RunFigures sums_;
  double last_loss_at_ = -1e9;
  double lineages_at_ = 0;  // of the last SawLineages; 0: none yet
  std::optional<double> first_samples_;
  double rate_ = 0;
  int min_ = 0, max_ = 0;
  size_t stride_ = 1, skipped_ = 0;
};

// Of sorted or unsorted values, nearest rank; nullopt when there are none.
std::optional<double> Percentile(std::vector<double> values, double share);

}  // namespace crowdsurf::cli
