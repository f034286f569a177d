#include "operator/edge/controller.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <utility>

#include "base/edge/clock.h"
#include "base/text.h"
#include "operator/core/job/reasons.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

constexpr Duration kTurn = Milliseconds(100);  // between looks at stop, leadership, timers
constexpr int kAskSpacing_ms = 25;             // 40 a second of all jobs, of each two

// Of the poller: "namespace/job/uid/worker". None of them has a slash.
struct Target {
  std::string job, uid, worker;
};

Target TargetOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  return {absl::StrCat(parts[0], "/", parts[1]), parts[2], parts[3]};
}

}  // namespace

Controller::Controller(KubeCluster& cluster, ControllerOptions options, MetricRegistry& metrics,
                       Logger log)
    : cluster_(cluster),
      options_(std::move(options)),
      reconciler_(cluster, options_.decide, metrics, log),
      log_(log),
      metrics_(metrics),
      exceptions_(ExceptionsOf(metrics, "loop")),
      queue_(Rng(static_cast<uint64_t>(SteadyNow().nanoseconds()))),
      poller_exceptions_(ExceptionsOf(metrics, "poller")),
      struck_out_(metrics.AddCounter("crowdsurf_operator_agents_struck_out_total",
                                     "Agents left alone for a while because they were too slow.")) {
  if (options_.ask_agents)
    poller_ = std::make_unique<SummaryPoller>(options_.ask_every_ms, kAskSpacing_ms);
}

void Controller::RefreshMetrics() { metrics_.Refresh(SteadyNow()); }

void Controller::Run() {
  while (!stop_.IsSet()) {
    try {
      Turn();
    } catch (const std::exception& error) {
      Threw(error.what());
    } catch (...) {
      Threw("an exception of an unknown type");
    }
  }
}

// What it was about to note is lost with it: every job is looked at again.
void Controller::Threw(const std::string& what) {
  exceptions_.Add();
  log_.Error("the loop caught an exception", {{"why", ValidText(what)}});
  led_ = false;
  // A pause, so that an exception in every turn does not spin.
  stop_.WaitFor(kTurn);
}

void Controller::TakeNews(steady_clock::time_point deadline) {
  for (const std::string& key : cluster_.Await(deadline)) queue_.Add(key, SteadyNow());
}

void Controller::TellMarked() {
  const std::set<std::string> marked = cluster_.TakeMarked();
  if (!marked.empty() && options_.leading()) reconciler_.TellMarked(marked, WallNow());
}

void Controller::Turn() {
  options_.progress();
  const Time now = SteadyNow();
  const Time next = queue_.NextReady();
  steady_clock::duration wait = std::chrono::nanoseconds(kTurn.nanoseconds());
  if (!next.infinite() && led_) {
    const int64_t left = std::max<int64_t>(0, (next - now).nanoseconds());
    wait = std::min(wait, steady_clock::duration(std::chrono::nanoseconds(left)));
  }
  TakeNews(steady_clock::now() + wait);
  // Until every list is there, a pod that is missing may only not be known yet.
  if (!cluster_.synced()) return;
  ready_ = true;
  if (!options_.leading()) {
    // Two replicas that show one job would count it twice.
    if (led_) reconciler_.ForgetMetrics();  // the new leader shows the jobs
    StopAsking();
    (void)cluster_.TakeMarked();  // its leader tells them
    led_ = false;
    return;
  }
  if (!led_) {
    led_ = true;
    log_.Info("leading");
    // The last leader's timers are gone with it, so a new one looks at every job.
    const std::vector<std::string> jobs = cluster_.Jobs();
    for (const std::string& key : jobs) queue_.Add(key, SteadyNow());
    reconciler_.TellMarked({jobs.begin(), jobs.end()}, WallNow());
  }
  TellMarked();
  TakeProgress();
  while (!stop_.IsSet() && options_.leading()) {
    const auto key = queue_.Get(SteadyNow());
    if (!key) break;
    options_.progress();
    Work(*key);
    // Between two jobs, so that a job that was deleted meanwhile gets no more pods.
    TakeNews(steady_clock::now());
    TellMarked();
  }
  metrics_.Show(queue_);
}

void Controller::Work(const std::string& key) {
  metrics_.Begin(SteadyNow(), queue_.waited());
  // The back-off of a job that had the name before is not this one's.
  const std::string uid = cluster_.UidOf(key);
  if (std::exchange(uids_[key], uid) != uid) queue_.Forget(key);
  const StatusOr<Plan> plan = reconciler_.Reconcile(key, WallNow());
  queue_.Done(key);
  metrics_.End(SteadyNow());
  const Status& status = plan.status();
  if (absl::IsNotFound(status)) {
    queue_.Drop(key);
    uids_.erase(key);
    ForgetAgentsOf(key);
    return;
  }
  // Somebody else's, or faulty until it is changed, which its watch will tell.
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)) {
    queue_.Forget(key);
    log_.Info("job not reconciled", {{"job", key}, {"why", std::string(status.message())}});
    return;
  }
  // All else may pass, so the key comes back after its own growing delay.
  if (!plan.ok()) {
    const Duration delay = queue_.AddRateLimited(key, SteadyNow());
    log_.Warning("reconcile failed",
                 {{"job", key}, {"why", status.ToString()}, {"retry_seconds", delay.seconds()}});
    return;
  }
  queue_.Forget(key);
  if (plan->delete_job) {
    if (const Status deleted = cluster_.DeleteJob(key); !deleted.ok()) {
      log_.Warning("job not deleted", {{"job", key}, {"why", deleted.ToString()}});
      queue_.AddRateLimited(key, SteadyNow());
    }
  }
  if (!plan->requeue_at.infinite()) {
    queue_.AddAfter(key, SteadyNow(), std::max(Duration(), plan->requeue_at - WallNow()));
  }
  if (poller_) AskAgentOf(key);
}

// Another replica asks them now, and their addresses may be others' by the time that this one leads
// again.
void Controller::StopAsking() {
  if (!poller_) return;
  while (!asked_.empty()) ForgetAgentsOf(std::string(asked_.begin()->first));
  while (poller_->Take()) {
  }
}

void Controller::ForgetAgentsOf(const std::string& key) {
  const auto known = asked_.find(key);
  if (known == asked_.end()) return;
  for (const std::string& target : known->second.targets) poller_->Forget(target);
  asked_.erase(known);
}

// A job may be deleted and made again under its name while an answer is on its way.
void Controller::AskAgentOf(const std::string& key) {
  const auto agent = cluster_.AgentOf(key);
  if (!agent) return ForgetAgentsOf(key);
  if (const auto old = asked_.find(key); old != asked_.end() && old->second.uid != agent->job_uid)
    ForgetAgentsOf(key);
  Asked& known = asked_.try_emplace(key, Milliseconds(options_.ask_every_ms)).first->second;
  known.job = key;
  known.uid = agent->job_uid;
  known.first = agent->worker;
  const auto agents = cluster_.AgentsOf(key);
  std::vector<std::string> workers;
  workers.reserve(agents.size());
  for (const auto& [worker, other] : agents) workers.push_back(worker);
  std::map<std::string, std::string> wanted;  // addresses, by target
  const std::string job = absl::StrCat(key, "/", agent->job_uid, "/");
  wanted[job + agent->worker] = agent->http;
  if (const std::string second = known.turns.Choose(WallNow(), workers, agent->worker);
      !second.empty()) {
    wanted[job + second] = agents.at(second).http;
  }
  std::erase_if(known.targets, [&](const std::string& target) {
    if (wanted.contains(target)) return false;
    poller_->Forget(target);
    return true;
  });
  for (const auto& [target, http] : wanted) {
    known.targets.insert(target);
    poller_->SetTarget(target, http);
  }
}

// Progress is the first one's word, so that it never goes back; the second one may know what the
// first cannot.
void Controller::Hear(const SummaryNews& news) {
  const auto& [job, uid, worker] = TargetOf(news.worker);
  const auto asked = asked_.find(job);
  if (asked == asked_.end() || asked->second.uid != uid) return;
  Asked& known = asked->second;
  const AgentSummary& summary = news.summary;
  const bool first = worker == known.first;
  known.lineages.See(WallNow(), worker, summary);
  known.turns.Heard(WallNow(), worker, summary.view ? summary.view->lineage : "", first);
  if (first) {
    const int lineages = known.lineages.Look(WallNow());
    cluster_.SetProgress(job, uid,
                         {summary.job_samples, summary.step, summary.loss, summary.averaging,
                          summary.target_met, summary.samples_per_second, lineages});
  }
  const bool waits = cluster_.SetWait(job, uid, worker, WaitOf(summary));
  if (!summary.order.empty()) SeeOrder(known, worker, summary.order);
  if (first || waits) queue_.Add(job, SteadyNow());
}

void Controller::SeeOrder(Asked& known, const std::string& worker, const std::string& order) {
  const auto agents = cluster_.AgentsOf(known.job);
  const auto agent = agents.find(worker);
  if (agent == agents.end()) return;
  std::set<std::string> living;
  for (const auto& [name, other] : agents) living.insert(name);
  known.orders.Retain(living);
  const auto words = known.orders.See(worker, agent->second.index, order);
  if (!words) return;
  cluster_.Say(known.job, known.uid,
               {EventType::kWarning, reason::kSameBatches, absl::StrCat(worker, " ", *words)});
}

void Controller::TakeProgress() {
  if (!poller_) return;
  poller_exceptions_.Add(static_cast<double>(poller_->exceptions()) - poller_exceptions_.value());
  while (const auto worker = poller_->TakeStruckOut()) {
    struck_out_.Add();
    log_.Warning("an agent is too slow and is left alone for a while",
                 {{"job", TargetOf(*worker).job}, {"seconds", poller_->rest().seconds()}});
  }
  // Before the news are taken: what comes in between signals once more.
  poller_->Acknowledge();
  while (const auto news = poller_->Take()) Hear(*news);
}

}  // namespace crowdsurf::controller
