#include "cli/run/run_session.h"

#include <absl/strings/match.h>
#include <openssl/rand.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/bytes.h"
#include "base/check.h"
#include "base/edge/clock.h"
#include "base/edge/inherited.h"
#include "base/text.h"
#include "cli/run/exit_codes.h"
#include "cli/run/session.h"
#include "cli/run/worker_name.h"
#include "operator/edge/local/host_paths.h"

extern char** environ;

namespace crowdsurf::cli {
namespace {

using controller::ClusterEvent;

constexpr Duration kTick = Milliseconds(500);      // of the record
constexpr Duration kLeaveGrace = Seconds(10);      // docs/signals.md: leaving fits it
constexpr Duration kMarketPatience = Seconds(15);  // then it takes workers of a job not yet whole
constexpr Duration kOverdue = Seconds(30);  // past --duration: the view has not ended the job
constexpr size_t kNewsLines = 4;
constexpr char kTmpfs[] = "/dev/shm";

std::vector<std::string> Environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::string RandomId() {
  uint8_t random[6];
  // Only runs of this machine must differ, and a pid does that.
  if (RAND_bytes(random, sizeof random) != 1) return std::to_string(getpid());
  return ToHex(random);
}

// Local mode is impatient: a person waits.
controller::DecideOptions Impatient() {
  controller::DecideOptions options;
  // First, longest, factor, jitter.
  options.crash_backoff = {Milliseconds(500), Seconds(10), 2.0, 0.2};
  options.healthy_after = Seconds(30);
  options.completion_grace = Seconds(15);
  return options;
}

}  // namespace

Session::Session(const RunOptions& options, const LocalJob& local)
    : options_(options),
      job_(local.job),
      spec_(local.job.spec),
      remarks_(local.remarks),
      launched_(WallNow()),
      market_(options.market),
      record_(WallNow().seconds(), local.job.spec.replicas),
      start_watch_(options.duration) {}

Session::~Session() {
  // In this order: each reads those below it until it is gone.
  page_.reset();
  reconciler_.reset();
  cluster_.reset();  // kills what is left
  signer_.reset();
  if (reaper_) {
    const pid_t others[] = {reaper_->pid()};
    controller::KillOrphans(others);
  }
  if (signals_ >= 0) close(signals_);
}

Status Session::SetUp() {
  std::error_code error;
  bin_dir_ = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string folder =
      options_.state_dir.empty() ? DefaultStateDir(job_.name) : options_.state_dir;
  RETURN_IF_ERROR(CheckSpace(folder, job_.spec.replicas));
  RETURN_IF_ERROR(controller::PrepareHostPaths(spec_));
  ASSIGN_OR_RETURN(StateDir state, StateDir::Open(folder));
  state_.emplace(std::move(state));
  ASSIGN_OR_RETURN(const bool resumes, state_->Prepare(options_.fresh ? OldCheckpoint::kClear
                                                                      : OldCheckpoint::kResume));
  // Keys and sockets of workers belong in memory; a container may have no such folder.
  const bool tmpfs = access(kTmpfs, W_OK) == 0;
  const std::string parent = tmpfs ? kTmpfs : state_->path();
  // Before this run's own folder is there, so that it cannot be taken for a stale one.
  controller::SweepStaleRuns(parent);
  const std::string run = RandomId();
  ASSIGN_OR_RETURN(controller::RunDirectory directory,
                   controller::RunDirectory::Create(parent, run));
  directory_.emplace(std::move(directory));
  ASSIGN_OR_RETURN(controller::Reaper reaper, controller::Reaper::Start(run, directory_->path()));
  reaper_.emplace(std::move(reaper));
  controller::AdoptOrphans();
  // After the reaper, a process that must not inherit blocked signals, and before any thread.
  CatchSignals();
  RETURN_IF_ERROR(StartServices(run));
  for (const std::string& remark : remarks_) terminal_.Print(remark);
  if (resumes) {
    terminal_.Print("resuming from the checkpoint in " + state_->checkpoint() +
                    " (--fresh starts anew" +
                    (options_.duration ? "; --duration counts what it has trained before)" : ")"));
  }
  return absl::OkStatus();
}

Status Session::StartServices(const std::string& run) {
  ASSIGN_OR_RETURN(controller::CertificateAuthority authority,
                   controller::CertificateAuthority::Create(job_.name, WallNow()));
  authority_.emplace(std::move(authority));
  ASSIGN_OR_RETURN(signer_, controller::Signer::Start(*authority_, {}, WallNow(), metrics_));
  controller::LocalClusterOptions options;
  options.pods.run = run;
  options.pods.state_dir = state_->path();
  options.pods.link_root = directory_->path();
  options.pods.link_on_disk = !absl::StartsWith(directory_->path(), kTmpfs);
  options.pods.bin_dir = bin_dir_;
  const char* agent = std::getenv("CROWDSURF_AGENT_PROGRAM");  // another agent: for tests
  options.pods.agent_program = agent != nullptr ? agent : bin_dir_ + "/crowdsurf-worker";
  if (access(options.pods.agent_program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot run the agent ", options.pods.agent_program,
                                            ": ", std::strerror(errno),
                                            "; build crowdsurf-worker"));
  }
  options.pods.signer_url = signer_->url();
  options.pods.ca_pem = authority_->pem();
  options.pods.environment = Environment();
  options.pods.hang_after = HangAfter(options_, spec_);
  options.nodes_from_market = market_.by_trace();
  cluster_ = std::make_unique<controller::LocalCluster>(options, job_, *signer_, WallNow);
  reconciler_ =
      std::make_unique<controller::Reconciler>(*cluster_, Impatient(), metrics_, Logger());
  if (options_.http_port != 0) {  // last: nothing may be added to the metrics once they are served
    ASSIGN_OR_RETURN(page_, StatusServer::Start(options_.http_port.value_or(0), metrics_));
    ShowPage();
    terminal_.Print("status     " + page_->url() + " and " + page_->url() + "metrics");
  }
  return absl::OkStatus();
}

// Blocked here, before any thread starts, and read from a descriptor in the loop.
void Session::CatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  for (const int signal : {SIGINT, SIGHUP}) {
    // nohup, or a background job of a script: blocked it would arrive although it is ignored.
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void Session::ReadSignals() {
  signalfd_siginfo info;
  // Different signals may come together; each counts, for the second one ends the run at once.
  while (read(signals_, &info, sizeof info) == sizeof info) {
    ++interrupts_;
    if (interrupts_ == 1) {
      terminal_.Print("stopping; once more ends it at once");
      StopWorkers();
    } else {
      cluster_->KillAll();
    }
  }
}

void Session::StopWorkers() {
  if (stopping_) return;
  stopping_ = true;
  record_.Finish(WallNow().seconds());
  cluster_->StopAll(kLeaveGrace);
}

void Session::MoveMarket(Time now) {
  if (!market_open_) {
    // A trace gives the machines, so it begins at once; a rate waits until the job is whole.
    const bool whole =
        record_.all_started() || (training_since_ && now - *training_since_ >= kMarketPatience);
    if (!market_.by_trace() && !whole) return;
    market_.Open(now);
    market_open_ = true;
  }
  if (now < market_.next()) return;
  for (const MarketMove& move : market_.Moves(now, cluster_->TakeableNodes())) {
    if (move.add) {
      cluster_->AddNode(move.node);
    } else {
      cluster_->TakeNode(move.node, options_.notice);
    }
  }
}

void Session::TellRecord() {
  for (const ClusterEvent& event : cluster_->TakeEvents()) {
    const double at = event.at.seconds();
    std::string line = event.pod.empty() ? event.detail : event.pod + " ";
    switch (event.kind) {
      case ClusterEvent::Kind::kCreated: {
        const std::optional<WorkerName> name = ParseWorkerName(event.pod);
        CHECK(name);  // the operator gave it
        record_.Created(at, event.pod, name->index, name->incarnation);
        if (event.detail == controller::reason::kFirstWorker) continue;
        line += "is created: " + event.detail;
        break;
      }
      case ClusterEvent::Kind::kReady:
        line += "trains, " + event.detail;
        break;
      case ClusterEvent::Kind::kNoticed:
        record_.Noticed(at, event.pod);
        line += "is told that its machine goes";
        break;
      case ClusterEvent::Kind::kTaken:
        record_.Taken(at, event.pod);
        line += "is taken by the spot market";
        break;
      case ClusterEvent::Kind::kHung:
        run_metrics_.trainers_hung.Add();
        line += "hangs: " + event.detail + "; its trainer is ended";
        break;
      case ClusterEvent::Kind::kEnded:
        record_.Ended(at, event.pod);
        line += "ended: " + event.detail;
        break;
      case ClusterEvent::Kind::kLeft:  // as it was told to
        record_.Ended(at, event.pod);
        continue;
      case ClusterEvent::Kind::kTold:
        // What the operator says of one worker repeats what the market did to it.
        if (event.type == controller::EventType::kNormal &&
            line.compare(0, job_.name.size() + 1, job_.name + "-") == 0)
          continue;
        if (!event.pod.empty()) line += event.detail;
        break;
    }
    AddNews(at - launched_.seconds(), line);
  }
  for (const controller::LocalWorker& worker : cluster_->Workers()) {
    if (worker.summary == nullptr) continue;
    const bool leaving = worker.facts->deleted.has_value() || stopping_ ||
                         !worker.facts->Annotation(controller::kNoticeAnnotation).empty();
    record_.Saw(worker.received_at.seconds(), worker.facts->name, *worker.summary,
                leaving ? Told::kToLeave : Told::kNothing);
  }
}

void Session::AddNews(double since, const std::string& line) {
  news_.push_back(Span(since) + "  " + ShownText(line));
  // The screen shows the last few; without a terminal all are printed.
  if (!terminal_.interactive()) terminal_.Print(news_.back());
  if (news_.size() > kNewsLines) news_.erase(news_.begin());
}

// --duration counts from the first step of the job, whoever has been replaced since; a steward only
// knows its own age. So the time's end is a new target that is met already, and the view ends the
// job as ever, with a model.
void Session::EndOnTime(Time now) {
  if (!options_.duration || stopping_) return;
  if (!training_since_) return EndStart();
  const Duration trained = now - *training_since_;
  if (trained >= *options_.duration && !time_up_ && !cluster_->progress().target_met) {
    controller::TrainingJobSpec spec = spec_;
    // A job that has made a step has trained one sample at least.
    spec.target = {{"samples", 1}};
    cluster_->Apply(std::move(spec));
    time_up_ = true;
  }
  // No view ended it, for want of a steward, say: it ends without a model rather than never.
  if (trained > *options_.duration + kOverdue && !cluster_->progress().target_met) StopWorkers();
}

void Session::Train() {
  // The reconciler counts by the wall clock, as in a cluster; all else here by the steady one.
  WallTime reconcile_at = WallNow();
  bool over = false;
  while (true) {
    const Time now = SteadyNow();
    const Duration until_tick = std::max(Duration(), next_tick_ - now);
    const Duration until_market = market_.next() - now;
    const WallTime wake =
        std::min(reconcile_at, WallNow() + std::min({until_tick, until_market, kTick}));
    const int others[] = {signals_};
    const bool changed = cluster_->Wait(stopping_ || over ? WallNow() + kTick : wake, others);
    std::vector<pid_t> ours = cluster_->Processes();
    ours.push_back(reaper_->pid());
    controller::ReapOrphans(ours);
    ReadSignals();
    if (!stopping_ && (changed || WallNow() >= reconcile_at)) {
      const StatusOr<controller::Plan> plan = reconciler_->Reconcile(job_.name, WallNow());
      // A cluster that failed is asked again, as an API server would be.
      reconcile_at = plan.ok() ? plan->requeue_at : WallNow() + Seconds(1);
    }
    if (cluster_->progress().target_met) record_.Finish(WallNow().seconds());
    if (record_.training_began() && !training_since_) {
      training_since_ = SteadyNow();
      next_line_ = Time();  // the first line of the training at once
    }
    over = cluster_->status().finished();
    if (!stopping_ && !over && !cluster_->progress().target_met) MoveMarket(SteadyNow());
    if (SteadyNow() >= next_tick_) {
      TellRecord();
      WatchStart();
      TakeEdits();
      record_.SawLineages(WallNow().seconds(), cluster_->progress().lineages);
      record_.Tick(WallNow().seconds());
      ShowPage();
      next_tick_ = SteadyNow() + kTick;
    }
    Show(SteadyNow());
    if (over && !stopping_) StopWorkers();  // what cleanPodPolicy would keep does not outlive us
    EndOnTime(SteadyNow());
    // Not before: a process that is left behind would go on using the machine.
    if (stopping_ && cluster_->idle()) break;
  }
  TellRecord();
  terminal_.Release();
}

int RunSession(const RunOptions& options, const LocalJob& job) {
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of one write, here and in the workers
  Session session(options, job);
  const Status ready = session.SetUp();
  if (!ready.ok()) {
    std::fprintf(stderr, "crowdsurf: %s\n", ShownText(std::string(ready.message())).c_str());
    return kBadInput;
  }
  session.Train();
  return session.Conclude();
}

}  // namespace crowdsurf::cli
