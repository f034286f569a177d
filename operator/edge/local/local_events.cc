#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <absl/algorithm/container.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/edge/files.h"
#include "operator/core/job/failure_text.h"
#include "operator/edge/local/local_cluster.h"
#include "operator/edge/local/run_cleanup.h"

// What happens by itself: processes end, agents tell, notices run out.
namespace crowdsurf::controller {
namespace {

// A trainer that ends with 0 may have been told to (target met) before we heard of it; its agent's
// next summary, half a second away, or its termination log says so.
constexpr Duration kHoldEnd = Seconds(3);
constexpr int kMaxWait_ms = 1000;
constexpr int kSaidInPolls = 5;  // an agent that is busy may miss some

bool SaysTarget(std::string reason) {
  std::transform(reason.begin(), reason.end(), reason.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return reason.find("target") != std::string::npos;
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options, TrainingJob job, Signer& signer,
                           WallClock clock)
    : options_(std::move(options)),
      job_(std::move(job)),
      signer_(signer),
      clock_(std::move(clock)),
      inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      poller_(options_.poll_interval_ms),
      lineages_(Milliseconds(kSaidInPolls * options_.poll_interval_ms)) {}

LocalCluster::~LocalCluster() {
  KillAll();
  for (auto& [name, entry] : pods_) entry.pod.reset();  // kills, reaps
  // Children of trainers that left their group are found by their environment only.
  KillRunProcesses(options_.pods.run);
  close(inotify_);
}

void LocalCluster::OnNews(const SummaryNews& news) {
  const auto it = pods_.find(news.worker);
  if (it == pods_.end()) return;
  Entry& entry = it->second;
  PodFacts& facts = entry.pod->facts;
  if (progress_.target_met && entry.received_at < target_met_at_) changed_ = true;
  entry.summary = news.summary;
  entry.received_at = clock_();
  const AgentSummary& told = *entry.summary;
  // An answer may be older than the end of its trainer.
  const bool trains = told.state == "Training" && told.first_step_unix && !facts.trainer;
  if (trains && !facts.ready_since && nodes_.count(facts.node)) {
    facts.ready_since = clock_();
    facts.ever_ready = true;
    entry.shown = facts;
    changed_ = true;
    Say(ClusterEvent::Kind::kReady, news.worker, told.joined_with_state ? "with state" : "fresh");
  }
  if (told.trainer_hangs && !facts.trainer && !facts.deleted) {
    char pause[80];
    std::snprintf(pause, sizeof pause, "no step for %.0f s", told.seconds_since_step);
    const std::string stacks = ShownOutput(told.trainer_stacks, kMaxOutputInStatus);
    const std::string frame = MainThreadFrame(stacks);
    const std::string words = frame.empty() ? pause : pause + (", in " + frame);
    if (entry.pod->EndTrainer(words, stacks))
      Say(ClusterEvent::Kind::kHung, news.worker, words, EventType::kWarning);
  }
  // It may come and go with every averaging; one line for each kind is enough.
  if (!told.trouble.empty() && told.trouble != entry.trouble && !progress_.target_met) {
    entry.trouble = told.trouble;
    Say(ClusterEvent::Kind::kTold, news.worker, told.trouble, EventType::kWarning);
    NameOtherTensors(news.worker, told);
  }
  NameEqualOrder(news.worker, told);
  NameSilentPeers(news.worker, told);
  if (told.steward || !told.write_error.empty()) NoteWriteError(news.worker, told.write_error);
  if (told.target_met) MeetTarget();
  CountLineages(news.worker, told);
  progress_.samples = std::max(progress_.samples, told.job_samples);
  progress_.step = std::max(progress_.step, told.step);
  progress_.averaging = std::max(progress_.averaging, told.averaging);
  UpdateLoss();
}

// Who is refused a seat knows that its trainer has another tensor table than the rest, not who the
// rest are: the odd one may be the one that was first. Here all are known; said once of each
// holder.
void LocalCluster::NameOtherTensors(const std::string& worker, const AgentSummary& told) {
  for (auto& [name, entry] : pods_) {
    const std::optional<AgentSummary>& other = entry.summary;
    if (!other || other->cell.empty() || other->tensors.empty() || told.tensors.empty()) continue;
    if (other->tensors == told.tensors) continue;
    const std::string words = absl::StrCat(
        "has a seat with other tensors (", other->elements, " parameters) than ", worker, " (",
        told.elements, "), which gets none: the trainers of a job must have the same model");
    if (std::exchange(entry.trouble, "other tensors") == "other tensors") return;
    Say(ClusterEvent::Kind::kTold, name, words, EventType::kWarning);
    return;
  }
}

void LocalCluster::NameEqualOrder(const std::string& worker, const AgentSummary& told) {
  if (told.order.empty()) return;
  std::set<std::string> training;
  for (const auto& [name, entry] : pods_) {
    if (!entry.pod->facts.trainer) training.insert(name);
  }
  orders_.Retain(training);
  const int index = pods_.at(worker).pod->facts.index;
  if (const auto words = orders_.See(worker, index, told.order))
    Say(ClusterEvent::Kind::kTold, worker, *words, EventType::kWarning);
}

// A job that should join others trains alone where their addresses are wrong. One line a job: all
// workers have the same addresses.
void LocalCluster::NameSilentPeers(const std::string& worker, const AgentSummary& told) {
  const std::vector<std::string>& peers = job_.spec.bootstrap_peers;
  if (silent_peers_said_ || peers.empty()) return;
  for (const std::string& peer : peers) {
    if (!absl::c_linear_search(told.silent_seeds, peer)) return;
  }
  silent_peers_said_ = true;
  Say(ClusterEvent::Kind::kTold, worker,
      absl::StrCat("spec.discovery.bootstrapPeers: none answers (", absl::StrJoin(peers, ", "),
                   "), so the job trains without them"),
      EventType::kWarning);
}

void LocalCluster::CountLineages(const std::string& worker, const AgentSummary& told) {
  lineages_.See(clock_(), worker, told);
  const int count = lineages_.Look(clock_());
  changed_ |= count != progress_.lineages;
  progress_.lineages = count;
}

// Of the steward alone, because nobody else writes; that it is gone again is not heard of others.
void LocalCluster::NoteWriteError(const std::string& worker, const std::string& error) {
  if (error == write_error_) return;
  write_error_ = error;
  if (!error.empty()) {
    Say(ClusterEvent::Kind::kTold, worker, error, EventType::kWarning);
  }
}

void LocalCluster::UpdateLoss() {
  double sum = 0;
  int count = 0;
  for (const auto& [name, entry] : pods_) {
    if (!entry.summary || !entry.summary->loss || !entry.shown.ready_since) continue;
    sum += *entry.summary->loss;
    ++count;
  }
  if (count > 0) progress_.loss = sum / count;
}

void LocalCluster::ReadTermination(const Entry& entry) {
  const std::string path =
      options_.pods.state_dir + "/workers/" + entry.pod->facts.name + "/termination";
  const nlohmann::json log =
      nlohmann::json::parse(ReadFile(path, size_t{64} * 1024).value_or(""), nullptr,
                            /*allow_exceptions=*/false);
  if (!log.is_object()) return;
  if (log.contains("write_error") && log["write_error"].is_string()) {
    const std::string error = log["write_error"].get<std::string>();
    // One that writes nothing may end after the steward, whose error still stands.
    const bool wrote = entry.summary && entry.summary->steward;
    if (wrote || !error.empty()) NoteWriteError(entry.pod->facts.name, error);
  }
  const auto reason = log.find("reason");
  if (reason != log.end() && reason->is_string() && SaysTarget(reason->get<std::string>())) {
    MeetTarget();
  }
}

void LocalCluster::MeetTarget() {
  if (progress_.target_met) return;
  progress_.target_met = true;
  target_met_at_ = clock_();
  changed_ = true;
}

// A short job may be over before a worker was seen training. One that has not been asked since the
// target was met may have trained as well.
bool LocalCluster::MayHaveTrained(const Entry& entry) const {
  if (entry.summary && entry.summary->first_step_unix) return true;
  return progress_.target_met && entry.received_at < target_met_at_ && !entry.pod->http.empty() &&
         !entry.pod->facts.agent;
}

// True while the end of a trainer with code 0 is kept back: until it is known whether the target
// was met. A pod that is gone or told to go is not held.
bool LocalCluster::HoldEnd(Entry& entry, WallTime now) {
  const PodFacts& facts = entry.pod->facts;
  if (!facts.trainer || facts.trainer->exit_code != 0) return false;
  if (progress_.target_met || facts.agent || facts.deleted || !nodes_.count(facts.node))
    return false;
  if (job_.spec.success != SuccessCriterion::kTargetReached) return false;
  if (!entry.hold_until) entry.hold_until = now + kHoldEnd;
  return now < *entry.hold_until;
}

void LocalCluster::Look(Entry& entry, WallTime now) {
  LocalPod& pod = *entry.pod;
  pod.Drain();
  if (pod.ReadEndpoints()) {
    poller_.SetTarget(pod.facts.name, pod.http);
    entry.shown = pod.facts;
    changed_ = true;
  }
  const bool had_agent = !pod.facts.agent.has_value();
  const bool ended = pod.Reap();
  // The agent writes the file before it ends, so it is complete now.
  if (ended && had_agent && pod.facts.agent) ReadTermination(entry);
  const bool shown = entry.shown.trainer.has_value() == pod.facts.trainer.has_value() &&
                     entry.shown.agent.has_value() == pod.facts.agent.has_value();
  if (shown || HoldEnd(entry, now)) return;
  if (pod.facts.trainer && !entry.shown.trainer) {
    Say(pod.facts.deleted ? ClusterEvent::Kind::kLeft : ClusterEvent::Kind::kEnded, pod.facts.name,
        "trainer exit " + std::to_string(pod.facts.trainer->exit_code));
  }
  entry.shown = pod.facts;
  changed_ = true;
}

void LocalCluster::RunTimers(WallTime now) {
  std::vector<std::string> over;
  for (const auto& [name, node] : nodes_) {
    if (node.mark && node.mark->deadline && now >= *node.mark->deadline) over.push_back(name);
  }
  // After the walk: TakeNode removes nodes from the map.
  for (const std::string& name : over) TakeNode(name, std::nullopt);
  for (auto& [name, entry] : pods_) {
    if (entry.pod->kill_at && now >= *entry.pod->kill_at) entry.pod->Kill();
  }
}

WallTime LocalCluster::NextTimer() const {
  WallTime next = WallTime::Infinite();
  for (const auto& [name, node] : nodes_) {
    if (node.mark && node.mark->deadline) next = std::min(next, *node.mark->deadline);
  }
  for (const auto& [name, entry] : pods_) {
    if (entry.pod->kill_at) next = std::min(next, *entry.pod->kill_at);
    // It stays set when it is over, and must not make every wait zero then.
    if (entry.hold_until)
      next = std::min(next, std::max(*entry.hold_until, clock_() + Milliseconds(50)));
  }
  return next;
}

// Pods that were told to go and have gone.
void LocalCluster::BuryGone() {
  for (auto it = pods_.begin(); it != pods_.end();) {
    LocalPod& pod = *it->second.pod;
    if (!pod.facts.deleted || !pod.gone()) {
      ++it;
      continue;
    }
    pod.Bury();
    poller_.Forget(it->first);
    lineages_.Forget(it->first);
    if (!options_.nodes_from_market) nodes_.erase(pod.facts.node);
    it = pods_.erase(it);
    changed_ = true;
  }
}

bool LocalCluster::Wait(WallTime deadline, std::span<const int> others) {
  const WallTime until = std::min(deadline, NextTimer());
  std::vector<pollfd> set = {{inotify_, POLLIN, 0}, {poller_.descriptor(), POLLIN, 0}};
  for (const int other : others) set.push_back({other, POLLIN, 0});
  for (const auto& [name, entry] : pods_) {
    for (const int open : entry.pod->Descriptors()) set.push_back({open, POLLIN, 0});
    // Cheap and idempotent; a watch dies with its folder.
    if (entry.pod->facts.address.empty()) {
      inotify_add_watch(inotify_, entry.pod->agent_dir().c_str(), IN_MOVED_TO);
    }
  }
  // A millisecond more: a poll that ends too early would spin until the timer is due.
  const double left = (until - clock_()).milliseconds();
  const int wait = changed_ ? 0 : static_cast<int>(std::clamp(left + 1, 0.0, double{kMaxWait_ms}));
  poll(set.data(), set.size(), wait);

  char block[4096];
  while (read(inotify_, block, sizeof block) > 0) {
  }
  poller_.Acknowledge();
  while (auto news = poller_.Take()) OnNews(*news);
  const WallTime now = clock_();
  RunTimers(now);
  for (auto& [name, entry] : pods_) Look(entry, now);
  BuryGone();
  // A pod that has gone may leave its machine to one that waits.
  if (options_.nodes_from_market && changed_) PlaceWaiting();
  return std::exchange(changed_, false);
}

}  // namespace crowdsurf::controller
