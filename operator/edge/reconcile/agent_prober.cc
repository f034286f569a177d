#include "operator/edge/reconcile/agent_prober.h"

#include <chrono>

namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxHealth = 4 << 10;  // "ok", or why not

}  // namespace

AgentProber::AgentProber(Options options, Receiver receiver)
    : options_(options), receiver_(std::move(receiver)) {
  for (size_t i = 0; i < kLanes; ++i) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.thread = std::thread([this, &lane] { Run(lane); });
  }
}

AgentProber::~AgentProber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  client_.Stop();
  for (auto& lane : lanes_) lane->waiting.Close();
  for (auto& lane : lanes_) lane->thread.join();
}

bool AgentProber::Ask(const DeathReports::Probe& probe) {
  // In turns: an agent that hangs delays only the few behind it.
  return lanes_[next_++ % kLanes]->waiting.Post(probe);
}

void AgentProber::Run(Lane& lane) {
  while (true) {
    const auto probe = lane.waiting.Take(std::chrono::steady_clock::time_point::max());
    if (!probe) return;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    // Blind: what could not be asked says nothing about whom it was asked of.
    ProbeResult result = ProbeResult::kBlind;
    try {
      result = Probe(*probe);
    } catch (const std::exception&) {
      if (options_.exceptions != nullptr) options_.exceptions->Add();
    }
    receiver_(probe->uid, result);
  }
}

ProbeResult AgentProber::Probe(const DeathReports::Probe& probe) {
  // Asked twice, because a packet that is lost is no death.
  if (Answers(probe.http) || (Pause() && Answers(probe.http))) return ProbeResult::kAnswers;
  // Silence counts only where the operator can reach the job at all.
  return Answers(probe.control) ? ProbeResult::kSilent : ProbeResult::kBlind;
}

bool AgentProber::Pause() {
  std::unique_lock lock(mutex_);
  const auto time = std::chrono::nanoseconds(options_.between.nanoseconds());
  return !wake_.wait_for(lock, time, [this] { return stopping_; });
}

bool AgentProber::Answers(const std::string& http) {
  if (http.empty()) return false;  // it never had an address
  HttpClient::Request request{.address = http, .target = "/healthz"};
  request.deadline = options_.timeout;
  request.max_body = kMaxHealth;
  return client_.Fetch(std::move(request)).ok();
}

}  // namespace crowdsurf::controller
