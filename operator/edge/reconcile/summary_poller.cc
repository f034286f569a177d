#include "operator/edge/reconcile/summary_poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/edge/clock.h"

namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxSummaries = 4096;        // two rounds of two thousand workers on one machine
constexpr size_t kMaxStruckOut = 256;         // of them some are said, and all are counted
constexpr Duration kLookAgain = Seconds(60);  // where nothing is due, which a wake-up ends

void Signal(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

}  // namespace

SummaryPoller::SummaryPoller(int interval_ms, int spacing_ms)
    : rest_(PollPlan(Milliseconds(interval_ms), Milliseconds(spacing_ms)).rest()),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      news_(kMaxSummaries),
      struck_out_(kMaxStruckOut),
      plan_(Milliseconds(interval_ms), Milliseconds(spacing_ms)),
      thread_([this] { Run(); }) {}

SummaryPoller::~SummaryPoller() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  client_.Stop();
  close(event_);
}

void SummaryPoller::SetTarget(const std::string& worker, const std::string& address) {
  {
    const std::lock_guard lock(mutex_);
    plan_.SetTarget(worker, address, SteadyNow());
  }
  wake_.notify_all();
}

void SummaryPoller::Forget(const std::string& worker) {
  const std::lock_guard lock(mutex_);
  plan_.Forget(worker);
}

std::optional<SummaryNews> SummaryPoller::Take() { return news_.TryTake(); }

void SummaryPoller::Acknowledge() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_, &count, sizeof count);
}

void SummaryPoller::Ask(const PollPlan::Poll& poll) {
  HttpClient::Request request{.address = poll.address, .target = "/summary"};
  request.deadline = kPatience;
  request.max_body = kMaxSummary;
  client_.Ask(std::move(request), [this, poll](const StatusOr<HttpClient::Answer>& answer) {
    PollEnd how = PollEnd::kNobody;
    try {
      how = Read(poll, answer);
    } catch (const std::exception&) {
      ++exceptions_;  // the worker stays without news
    }
    {
      const std::lock_guard lock(mutex_);
      if (plan_.Ended(poll, how, SteadyNow())) (void)struck_out_.Post(poll.name);
    }
    wake_.notify_all();
  });
}

PollEnd SummaryPoller::Read(const PollPlan::Poll& poll,
                            const StatusOr<HttpClient::Answer>& answer) {
  const Status& status = answer.status();
  if (!status.ok()) {
    const bool bad = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) ||
                     absl::IsDataLoss(status);
    return bad ? PollEnd::kSlow : PollEnd::kNobody;
  }
  if (answer->status != 200) return PollEnd::kAnswered;
  if (auto summary = ParseSummary(answer->body)) {
    if (news_.Post({poll.name, std::move(*summary)})) Signal(event_);
  }
  return PollEnd::kAnswered;
}

void SummaryPoller::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Time now = SteadyNow();
    if (const auto poll = plan_.Next(now)) {
      lock.unlock();
      Ask(*poll);
      lock.lock();
      continue;
    }
    const Duration wait = std::min(plan_.NextDue() - now, kLookAgain);
    wake_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(0, wait.nanoseconds())));
  }
}

}  // namespace crowdsurf::controller
