#include <algorithm>

#include "base/edge/clock.h"
#include "cli/run/session.h"
#include "cli/screen/status_page.h"

// What the session shows: the screen's content from what the cluster and the record know.
namespace crowdsurf::cli {
namespace {

constexpr Duration kLineEvery = Seconds(5);

double TargetNumber(const nlohmann::json& target, const char* name) {
  const auto it = target.find(name);
  return it != target.end() && it->is_number() ? it->get<double>() : 0;
}

}  // namespace

std::vector<ScreenWorker> Session::ScreenWorkers() const {
  std::vector<ScreenWorker> workers;
  for (const controller::LocalWorker& worker : cluster_->Workers()) {
    const controller::PodFacts& facts = *worker.facts;
    ScreenWorker shown;
    shown.name = facts.name;
    shown.index = facts.index;
    shown.state = facts.node.empty() ? "Waiting" : "Starting";
    shown.http = worker.http;
    if (worker.summary != nullptr) {
      const controller::AgentSummary& told = *worker.summary;
      shown.state = told.state;
      shown.cell = told.cell;
      shown.samples_per_second = told.samples_per_second;
      const double trained =
          told.first_step_unix ? worker.received_at.seconds() - *told.first_step_unix : 0;
      // Only as long as it has told no samples: this average holds all waiting for peers.
      if (trained > 0) shown.steps_per_second = static_cast<double>(told.step) / trained;
      if (told.samples > 0 && told.samples_per_second > 0) {
        shown.steps_per_second = told.samples_per_second * static_cast<double>(told.step) /
                                 static_cast<double>(told.samples);
      }
      shown.loss = told.loss;
      shown.steward = told.steward;
      if (told.trainer_hangs) shown.state = "Hung";
    }
    if (!facts.Annotation(controller::kNoticeAnnotation).empty()) shown.state = "Leaving";
    if (facts.deleted) shown.state = "Leaving";
    // One of its processes has ended, which says more than its last words.
    if (facts.trainer || facts.agent) {
      shown.state = facts.trainer && facts.trainer->exit_code == 0 ? "Done" : "Taken";
    }
    workers.push_back(std::move(shown));
  }
  return workers;
}

void Session::Progress(Screen& screen) const {
  const nlohmann::json& target = job_.spec.target;
  const RunFigures figures = record_.Figures();
  const controller::Progress& progress = cluster_->progress();
  double share = 0, left = -1;
  const auto consider = [&](const char* unit, double done, double rate) {
    const double wanted = TargetNumber(target, unit);
    // Of several targets the job ends at the first, so the one nearest to its end is shown.
    if (wanted <= 0 || done / wanted < share) return;
    share = done / wanted;
    left = rate > 0 ? std::max(0.0, wanted - done) / rate : -1;
    screen.target = Short(done) + " of " + Short(wanted) + " " + unit;
  };
  consider("samples", static_cast<double>(progress.samples), figures.samples_per_second);
  consider("steps", static_cast<double>(progress.step),
           figures.duration_seconds > 0
               ? static_cast<double>(progress.step) / figures.duration_seconds
               : 0);
  consider("seconds", figures.duration_seconds, 1);
  if (screen.target.empty()) return;
  screen.progress = std::min(1.0, share);
  if (left >= 0 && share > 0) screen.seconds_left = left;
}

Screen Session::MakeScreen() const {
  Screen screen;
  const RunFigures figures = record_.Figures();
  screen.job = job_.name;
  screen.strategy = spec_.averaging.value("strategy", "");
  screen.elapsed = record_.training_began() ? figures.duration_seconds
                                            : WallNow().seconds() - launched_.seconds();
  screen.workers = ScreenWorkers();
  for (const controller::LocalWorker& worker : cluster_->Workers()) {
    if (worker.summary == nullptr || !worker.summary->view || worker.facts->deleted) continue;
    // Agents differ for a moment after a change of the view; one without a grid must not hide it.
    if (worker.summary->view->radices.size() >= screen.radices.size()) {
      screen.radices = worker.summary->view->radices;
    }
  }
  screen.wanted = job_.spec.replicas;
  // Counted from the rows, so that the number and the rows never differ.
  screen.training = static_cast<int>(
      std::count_if(screen.workers.begin(), screen.workers.end(),
                    [](const ScreenWorker& worker) { return worker.state == "Training"; }));
  screen.samples_per_second = record_.rate();
  screen.loss = cluster_->progress().loss;
  screen.rounds = figures.rounds_completed;
  screen.repaired = figures.rounds_repaired;
  screen.failed = figures.rounds_failed;
  screen.preemptions = figures.preemptions;
  screen.news = news_;
  Progress(screen);
  if (interrupts_ > 0) {
    screen.ending = "stopping; once more ends it at once";
  } else if (cluster_->progress().target_met) {
    screen.ending = "the target is met; workers are finishing";
  }
  return screen;
}

void Session::ShowPage() {
  const Screen screen = MakeScreen();
  run_metrics_.Show(screen);
  if (page_) page_->Show(StatusHtml(screen));
}

// Why workers do not train, once a cause; before and after the job has begun.
void Session::WatchStart() {
  if (stopping_ || cluster_->progress().target_met) return;
  std::vector<StartingWorker> starting;
  for (const controller::LocalWorker& worker : cluster_->Workers()) {
    const controller::PodFacts& facts = *worker.facts;
    const bool there = !facts.node.empty() && !facts.deleted && !facts.trainer && !facts.agent;
    const controller::AgentSummary* told = worker.summary;
    if (!there || (told != nullptr && told->first_step_unix)) continue;
    StartingWorker shown{.name = facts.name, .agent_up = told != nullptr};
    if (told != nullptr) {
      shown.wait = controller::WaitOf(*told);
      shown.waiting_seconds = told->waiting_seconds;
    }
    starting.push_back(std::move(shown));
  }
  const double now = WallNow().seconds();
  for (const std::string& line : start_watch_.Look(now, starting)) {
    AddNews(now - launched_.seconds(), line);
  }
}

// --duration counts from the first step, which may never come.
void Session::EndStart() {
  const double now = WallNow().seconds();
  if (!start_watch_.Over(now, launched_.seconds())) return;
  never_trained_ = absl::StrCat("no worker has made a step in ", Span(now - launched_.seconds()),
                                ": ", start_watch_.why());
  StopWorkers();
}

// Many workers on few cores take a while; who waits shall see that something happens.
void Session::ShowStart(Time now) {
  // The first seconds of every start are silent; only a slow one is talked about.
  if (next_line_ == Time()) next_line_ = now + kLineEvery;
  if (now < next_line_) return;
  next_line_ = now + kLineEvery;
  const std::vector<controller::LocalWorker> workers = cluster_->Workers();
  const auto up = std::count_if(
      workers.begin(), workers.end(),
      [](const controller::LocalWorker& worker) { return !worker.facts->address.empty(); });
  terminal_.Print(absl::StrCat(Span(WallNow().seconds() - launched_.seconds()), "  0/",
                               job_.spec.replicas, " workers train yet, ", up, " agents are up"));
}

void Session::Show(Time now) {
  if (terminal_.interactive()) {
    if (terminal_.DueAt(now)) {
      const auto rows = static_cast<size_t>(std::max(1, terminal_.height() - 1));
      terminal_.Draw(
          now, FitRows(DrawScreen(MakeScreen(), {terminal_.width() - 1, terminal_.color()}), rows));
    }
  } else if (!record_.training_began() && !stopping_) {
    ShowStart(now);
  } else if (now >= next_line_ && !stopping_) {
    Screen screen = MakeScreen();
    // Lines stand among the news, whose clock began at the launch.
    screen.elapsed = WallNow().seconds() - launched_.seconds();
    terminal_.Print(PlainLine(screen));
    next_line_ = now + kLineEvery;
  }
}

}  // namespace crowdsurf::cli
