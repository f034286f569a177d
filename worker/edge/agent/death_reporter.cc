#include "worker/edge/agent/death_reporter.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/edge/files.h"

namespace crowdsurf::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxToken = 64 << 10, kMaxCa = 1 << 20;
// Of two replicas one leads: the Service misses it six times in a row once in 64.
constexpr int kMaxTries = 6;
constexpr int kMaxUnanswered = 3;  // a replica that died a moment ago is still among them

// 404: a signer that takes no reports, as in local mode. 421: a replica that does not lead.
constexpr int kTaken = 202, kUnknownPath = 404, kAnotherLeads = 421;

}  // namespace

DeathReporter::DeathReporter(DeathReporterOptions options, uint64_t seed, MetricRegistry& metrics,
                             Logger log)
    : options_(std::move(options)), log_(log), metrics_(metrics), rng_(seed), thread_([this] {
        Run();
      }) {}

DeathReporter::~DeathReporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  client_.Stop();
  thread_.join();
}

void DeathReporter::Report(std::vector<std::string> dead) {
  if (dead.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) metrics_.held_back.Add();
    waiting_ = std::move(dead);
  }
  wake_.notify_all();
}

void DeathReporter::Run() {
  int failures = 0;
  Clock::time_point silent_until{};
  while (true) {
    std::vector<std::string> dead;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      dead = std::exchange(waiting_, {});
    }
    // Dropped, not kept: a worker that is still lost is named again (loss_report_schedule.h).
    if (Clock::now() < silent_until) {
      metrics_.held_back.Add();
      continue;
    }
    const Answer answer = Send(dead);
    if (answer == Answer::kNobodyListens) {
      silent_until = Clock::time_point::max();
      log_.Info("nobody takes reports of lost workers here");
      continue;
    }
    if (answer == Answer::kTaken) {
      failures = 0;
      metrics_.taken.Add();
      log_.Info("lost workers reported", {{"workers", dead.size()}, {"first", dead.front()}});
      continue;
    }
    (answer == Answer::kRefused ? metrics_.refused : metrics_.unreachable).Add();
    // The silence grows with failures in a row, and is jittered: all members of a job report at
    // once.
    const Duration delay = options_.backoff.Delay(failures++, rng_);
    silent_until = Clock::now() + std::chrono::nanoseconds(delay.nanoseconds());
    log_.Warning("lost workers not reported",
                 {{"workers", dead.size()},
                  {"why", answer == Answer::kRefused ? "refused" : "unreachable"},
                  {"silent_seconds", delay.seconds()}});
  }
}

DeathReporter::Answer DeathReporter::Send(const std::vector<std::string>& dead) {
  // At each report: the cluster renews the token in its file.
  auto token = ReadFile(options_.agent_dir / "token", kMaxToken);
  if (!token.ok()) return Answer::kUnreachable;
  while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
  const std::string body =
      nlohmann::json{{"dead", dead}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  int status = 0;
  for (int tries = 0, unanswered = 0; tries < kMaxTries && unanswered < kMaxUnanswered; ++tries) {
    status = Ask(*token, body);
    unanswered += status == 0;
    if (status != 0 && status != kAnotherLeads) break;
  }
  if (status == kTaken) return Answer::kTaken;
  if (status == kUnknownPath) return Answer::kNobodyListens;
  return status == 0 ? Answer::kUnreachable : Answer::kRefused;
}

int DeathReporter::Ask(const std::string& token, const std::string& body) {
  const auto pem = ReadFile(options_.agent_dir / "ca.pem", kMaxCa);
  const auto trust = pem.ok() ? HttpTrust::FromPem(*pem) : pem.status();
  // Without them anybody could be the operator.
  if (!trust.ok()) return 0;
  // A connection for each try: the Service picks a replica for each.
  HttpClient::Request request{.address = std::string(absl::StripPrefix(options_.url, "https://")),
                              .method = "POST",
                              .target = "/v1/deaths"};
  request.headers = {{"Authorization", absl::StrCat("Bearer ", token)},
                     {"Content-Type", "application/json"}};
  request.body = body;
  request.deadline = options_.timeout;
  request.trust = *trust;
  const auto answer = client_.Fetch(std::move(request));
  return answer.ok() ? answer->status : 0;
}

}  // namespace crowdsurf::worker
