#include "operator/edge/reconcile/summary_poller.h"

#include <httplib.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

namespace crowdsurf::controller {
namespace {

constexpr int kPatience_us = 300'000;   // of one agent: it answers from memory in under 1 ms
constexpr size_t kMaxSummaries = 4096;  // two rounds of two thousand workers on one machine
constexpr size_t kMaxAnswer = size_t{256} * 1024;

void Signal(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

void Clear(int event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event, &count, sizeof count);
}

}  // namespace

SummaryPoller::SummaryPoller(int interval_ms, int spacing_ms)
    : interval_ms_(interval_ms),
      spacing_ms_(spacing_ms),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      news_(kMaxSummaries),
      thread_([this] { Run(); }) {}

SummaryPoller::~SummaryPoller() {
  stop_ = true;
  Signal(wake_);
  thread_.join();
  close(event_);
  close(wake_);
}

void SummaryPoller::SetTarget(const std::string& worker, const std::string& address) {
  {
    const std::lock_guard lock(mutex_);
    targets_[worker] = address;
  }
  Signal(wake_);
}

void SummaryPoller::Forget(const std::string& worker) {
  const std::lock_guard lock(mutex_);
  targets_.erase(worker);
}

std::optional<SummaryNews> SummaryPoller::Take() { return news_.TryTake(); }

void SummaryPoller::Acknowledge() { Clear(event_); }

void SummaryPoller::Ask(const std::string& worker, const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return;
  httplib::Client client(address.substr(0, colon), std::stoi(address.substr(colon + 1)));
  client.set_connection_timeout(0, kPatience_us);
  client.set_read_timeout(0, kPatience_us);
  client.set_write_timeout(0, kPatience_us);
  std::string body;
  const auto result = client.Get("/summary", [&](const char* data, size_t size) {
    body.append(data, size);
    return body.size() <= kMaxAnswer;
  });
  if (!result || result->status != 200) return;
  if (auto summary = ParseSummary(body)) {
    if (news_.Post({worker, std::move(*summary)})) Signal(event_);
  }
}

// A stop waits for it; a wake-up stays for the end of the turn.
bool SummaryPoller::AwaitTurn() {
  std::this_thread::sleep_until(free_);
  // From now on: a turn that was missed is not made up for.
  free_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(spacing_ms_);
  return !stop_;
}

// Asks everybody who is due, and returns how long to wait for the next, in milliseconds.
int SummaryPoller::Round(std::map<std::string, Clock::time_point>& asked) {
  std::map<std::string, std::string> targets;
  {
    const std::lock_guard lock(mutex_);
    // A copy, because asking takes long and the host must not wait for the lock.
    targets = targets_;
  }
  std::erase_if(asked, [&](const auto& entry) { return targets.count(entry.first) == 0; });
  auto next = Clock::now() + std::chrono::milliseconds(interval_ms_);
  for (const auto& [worker, address] : targets) {
    if (stop_) return 0;
    // A target that is new is asked at once.
    const auto due = asked.count(worker) ? asked[worker] + std::chrono::milliseconds(interval_ms_)
                                         : Clock::time_point::min();
    if (due <= Clock::now()) {
      if (!AwaitTurn()) return 0;
      asked[worker] = Clock::now();
      try {
        Ask(worker, address);
      } catch (const std::exception&) {
        ++exceptions_;  // an address that is none; the worker stays without news
      }
    }
    next = std::min(next, asked[worker] + std::chrono::milliseconds(interval_ms_));
  }
  return static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count());
}

void SummaryPoller::Run() {
  std::map<std::string, Clock::time_point> asked;
  while (!stop_) {
    int wait = interval_ms_;
    try {
      wait = Round(asked);
    } catch (const std::exception&) {
      ++exceptions_;
    }
    pollfd wake = {wake_, POLLIN, 0};
    if (wait > 0) poll(&wake, 1, wait);
    Clear(wake_);
  }
}

}  // namespace crowdsurf::controller
