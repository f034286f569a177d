// Session: the parts of one `crowdsurf run` and the loop that drives them. Private to cli/.
//
// The order of members is the order of their making; they go in reverse: the reaper and the run's
// directory last, when nothing is left to clean. Single thread (main).
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "base/metrics.h"
#include "cli/report/run_record.h"
#include "cli/run/run_metrics.h"
#include "cli/run/run_session.h"
#include "cli/run/spot_market.h"
#include "cli/run/start_watch.h"
#include "cli/run/state_dir.h"
#include "cli/screen/live_view.h"
#include "cli/screen/status_server.h"
#include "cli/screen/terminal.h"
#include "operator/edge/local/local_cluster.h"
#include "operator/edge/local/run_cleanup.h"
#include "operator/edge/reconcile/reconciler.h"

namespace crowdsurf::cli {

// What the model turned out to be, once the run is over.
struct Evaluation {
  std::optional<double> heldout, trigram, bigram, unigram;  // bits per character
  std::string sample;
};

class Session {
 public:
  Session(const RunOptions& options, const LocalJob& local);
  ~Session();

  // Everything that must be there before a worker starts. Errors in words; nothing is started.
  Status SetUp();
  // Until the job is over or the user ends it; then until every process is gone.
  void Train();
  // The model, the summary, the reports. Returns the exit code.
  int Conclude();

 private:
  Status StartServices(const std::string& run);
  void CatchSignals();
  void ReadSignals();
  void MoveMarket(Time now);
  void TellRecord();
  // A line of the news, which began `since` seconds after the launch.
  void AddNews(double since, const std::string& line);
  void WatchStart();
  void Show(Time now);
  void ShowStart(Time now);
  void ShowPage();
  Screen MakeScreen() const;
  std::vector<ScreenWorker> ScreenWorkers() const;
  void Progress(Screen& screen) const;
  void StopWorkers();
  void EndOnTime(Time now);
  void EndStart();
  void TakeEdits();
  Evaluation Evaluate();
  bool WriteReports(const Evaluation& evaluation);  // false: an error was printed
  void PrintSummary(const Evaluation& evaluation);
  std::string ModelPath() const { return state_->checkpoint() + "/model.safetensors"; }
  std::string ReportPath() const;

  const RunOptions& options_;
  const controller::TrainingJob job_;
  controller::TrainingJobSpec spec_;  // with the edits of the manifest since
  WallTime edited_;                   // when the manifest was written, as seen last
  int64_t edited_bytes_ = 0;          // and its size
  const std::vector<std::string> remarks_;
  const WallTime launched_;
  Terminal terminal_;
  std::optional<StateDir> state_;
  std::optional<controller::RunDirectory> directory_;
  std::optional<controller::Reaper> reaper_;
  std::string bin_dir_;
  MetricRegistry metrics_;
  RunMetrics run_metrics_{metrics_};
  std::optional<controller::CertificateAuthority> authority_;
  std::unique_ptr<controller::Signer> signer_;
  std::unique_ptr<controller::LocalCluster> cluster_;
  std::unique_ptr<controller::Reconciler> reconciler_;
  std::unique_ptr<StatusServer> page_;  // null: not wanted
  SpotMarket market_;
  RunRecord record_;
  StartWatch start_watch_;
  std::vector<std::string> news_;
  int signals_ = -1;  // signalfd
  int interrupts_ = 0;
  bool stopping_ = false;
  bool market_open_ = false;
  bool time_up_ = false;       // --duration is over and the workers know
  std::string never_trained_;  // why the run gave the start up; empty: it did not
  Time next_tick_, next_line_;
  std::optional<Time> training_since_;
};

}  // namespace crowdsurf::cli
