// Agent: progress of the trainer, gauges, and the summary that others read.
#include <absl/strings/str_split.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "worker/core/membership/membership.h"
#include "worker/core/peer/peer.h"
#include "worker/edge/agent/agent_impl.h"
#include "worker/edge/agent/table_marks.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kProgressEvery = Milliseconds(500);
// Until the first step, so that its instant is known well.
constexpr Duration kFirstStepEvery = Milliseconds(20);
constexpr double kRateWindow = 3;  // seconds over which own speed is measured
constexpr std::chrono::milliseconds kSummaryPatience{1000};
constexpr size_t kMaxStackLines = 60;  // the last ones are the main thread's

}  // namespace

Progress Agent::Impl::ReadProgress() {
  const LinkCounters now = link_->counters();
  // A trainer that registers again counts from zero.
  const auto grown = [](auto to, auto from) {
    return static_cast<double>(to < from ? to : to - from);
  };
  metrics_.steps.Add(grown(now.steps, counters_.steps));
  metrics_.samples.Add(grown(now.samples, counters_.samples));
  metrics_.stall_seconds.Add(grown(now.stall_seconds, counters_.stall_seconds));
  if (std::isfinite(now.loss)) metrics_.loss.Set(now.loss);
  counters_ = now;
  Progress progress;
  progress.step = now.steps;
  progress.samples = static_cast<double>(now.samples);
  if (std::isfinite(now.loss)) progress.loss = now.loss;
  progress.leases = now.leases;
  progress.gathered = static_cast<double>(now.gathered);
  progress.gathered_at = AveragingId(now.step);
  progress.metrics = now.metrics;
  return progress;
}

void Agent::Impl::SampleProgress(Time now, WallTime wall) {
  const LinkCounters before = counters_;
  Progress progress = ReadProgress();
  if (progress.step > 0 && !first_step_unix_) {
    first_step_unix_ = static_cast<double>(wall.nanoseconds()) * 1e-9;
  }
  progress_at_ = trainer_ || stop_raised_
                     ? now + (first_step_unix_ ? kProgressEvery : kFirstStepEvery)
                     : Time::Infinite();
  // Not begun yet counts as a whole window, so that this look begins one.
  const double elapsed = rate_.since.unset() ? kRateWindow : (now - rate_.since).seconds();
  if (elapsed >= kRateWindow) {
    if (!rate_.since.unset()) rate_.per_second = (progress.samples - rate_.samples) / elapsed;
    rate_.since = now;
    rate_.samples = progress.samples;
  }
  const PeerSummary summary = peer_->Summarize();
  UpdateGauges(summary);
  ReportLost(now, summary);
  // Patience with the trainer ends without an input: this look finds it.
  EndWhenJobIsOver(now);
  const bool changed = counters_.steps != before.steps || counters_.samples != before.samples ||
                       counters_.metrics != before.metrics;
  if (changed) FeedLocal(now, wall, std::move(progress));
  WatchTrainer(now, wall);
}

void Agent::Impl::UpdateGauges(const PeerSummary& summary) {
  metrics_.view_epoch.Set(summary.view ? static_cast<double>(summary.view->epoch) : 0);
  metrics_.branch.Set(summary.view && summary.view->branch ? 1 : 0);
  ready_ = summary.state == PeerState::kTraining;
  trainer_hangs_ = pulse_.state() == TrainerPulse::State::kHung;
  metrics_.ready.Set(ready_ ? 1 : 0);
  // Counted when the reason changes, not at each look.
  if (summary.seat_refused == seat_refused_) return;
  seat_refused_ = summary.seat_refused;
  if (!seat_refused_) return;
  const bool tensors = seat_refused_->reason == Membership::kAnotherTable;
  (tensors ? metrics_.seats_refused_tensors : metrics_.seats_refused_other).Add();
}

// Who leaves says so or is told to: at the end of a job everybody goes, and nobody is dead.
void Agent::Impl::ReportLost(Time now, const PeerSummary& summary) {
  if (!deaths_ || stop_raised_ || leaving_) return;
  const auto lost = lost_members_.Look(now, options_.worker, summary);
  using Reporter = LossReportSchedule::Reporter;
  const Reporter reporter = summary.witness ? Reporter::kWitness : Reporter::kMember;
  deaths_->Report(loss_reports_.Look(now, lost, reporter));
  metrics_.deaths_dropped.Add(
      static_cast<double>(loss_reports_.dropped() + lost_members_.dropped()) -
      metrics_.deaths_dropped.value());
}

void Agent::Impl::WatchTrainer(Time now, WallTime wall) {
  // A trainer of bad snapshots comes back at a time of its own (TakeSeatAgain).
  if (!trainer_ || !seat_again_.infinite()) return;
  using State = TrainerPulse::State;
  const State before = pulse_.state();
  const bool excused = counters_.waits_for_agent || stop_raised_ || leaving_;
  const State after = pulse_.Look(
      now, counters_.steps, excused ? TrainerPulse::Duty::kExcused : TrainerPulse::Duty::kSteps);
  if (after == before) return;
  const double seconds = pulse_.since_step(now).seconds();
  if (after == State::kStepping) {
    log_.Info("the trainer makes steps again", {{"step", counters_.steps}});
    TrainerRegistered trainer = ForCore();
    trainer.fresh = false;
    trainer.counted = static_cast<double>(counters_.published_samples);
    return FeedTrainer(now, wall, std::move(trainer));
  }
  if (after == State::kSilent) {
    metrics_.trainer_silences.Add();
    log_.Warning("the trainer makes no steps: its seat is given back until it does",
                 {{"seconds", seconds}, {"step", counters_.steps}});
  } else {
    metrics_.trainer_hangs.Add();
    log_.Error("the trainer hangs: it has a connection and makes no steps",
               {{"seconds", seconds}, {"step", counters_.steps}});
    LogStacks();
  }
  // Silent, then hung, is one absence.
  if (before == State::kStepping) FeedLocal(now, wall, TrainerGone{});
}

// A line each, so that a log is read as the stack is.
void Agent::Impl::LogStacks() {
  const std::vector<std::string> lines = absl::StrSplit(link_->Stacks(), '\n', absl::SkipEmpty());
  const size_t skipped = lines.size() - std::min(lines.size(), kMaxStackLines);
  for (size_t i = skipped; i < lines.size(); ++i) {
    log_.Error("where the trainer is", {{"stack", lines[i]}});
  }
}

std::string Agent::Impl::SummaryText(Time now) {
  EdgeSummary edge;
  edge.job = options_.job;
  edge.worker = options_.worker;
  edge.peer = identity_->id();
  edge.samples_per_second = rate_.per_second;
  edge.stall_seconds = counters_.stall_seconds;
  edge.averagings = clock_.totals();
  edge.write_error = write_error_;
  edge.trouble = bad_snapshot_;
  edge.silent_seeds = dht_->SilentSeeds(now);
  edge.trainer = NameOf(pulse_.state());
  if (pulse_.state() == TrainerPulse::State::kHung) edge.trainer_stacks = link_->Stacks();
  if (trainer_) {
    edge.seconds_since_step = pulse_.since_step(now).seconds();
    edge.tensors = trainer_->schema.brief();
    edge.elements = trainer_->elements;
    edge.order = counters_.order;
  }
  edge.started_unix = started_unix_;
  edge.first_step_unix = first_step_unix_;
  PeerSummary summary = peer_->Summarize();
  if (summary.seat_refused && trainer_)
    edge.trouble = "gets no seat: " + InWords(*summary.seat_refused, trainer_->tensors);
  if (ended_ || (stop_raised_ && (stop_acknowledged_ || !trainer_)))
    summary.state = PeerState::kStopped;
  UpdateGauges(summary);
  LookAtStart(now, summary);
  edge.waiting_for = start_wait_.cause();
  edge.waiting_seconds = start_wait_.waited(now).seconds();
  return SummaryJson(summary, edge);
}

void Agent::Impl::LookAtStart(Time now, const PeerSummary& summary) {
  start_wait_.Look(now, {.certified = true,
                         .trainer = trainer_.has_value(),
                         .restoring = restoring_,
                         .in_view = summary.view.has_value(),
                         .seated = !summary.cell.empty(),
                         .held = link_->counters().waits_for_agent,
                         .stepped = first_step_unix_.has_value()});
}

HttpServer::Reply Agent::Impl::ServeSummary() {
  if (!started_) {
    EdgeSummary edge;
    edge.job = options_.job;
    edge.worker = options_.worker;
    edge.started_unix = started_unix_;
    edge.waiting_for = "signer";
    edge.waiting_seconds = HostLoop::Wall().seconds() - started_unix_;
    return {200, StartingJson(edge), "application/json"};
  }
  // On a thread of the HTTP pool. Shared, because the host may answer when this has given up.
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> text = promise->get_future();
  const bool posted =
      host_.Post([this, promise](Time now, WallTime) { promise->set_value(SummaryText(now)); });
  if (!posted || text.wait_for(kSummaryPatience) != std::future_status::ready) {
    return {503, "the agent does not answer\n"};
  }
  return {200, text.get(), "application/json"};
}

}  // namespace crowdsurf::worker
