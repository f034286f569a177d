// SummaryPoller: asks every agent for GET /summary twice a second, on one thread of its own.
//
// Requests to an agent that hangs are cut off after 300 ms and do not delay the others by more.
// With a spacing there is at most one request in that time, and who is due waits for the others.
// Answers go into a bounded mailbox (full: the oldest news are lost and counted) and a descriptor
// becomes readable. Targets are set by the owner; any thread. No exception leaves the thread: each
// is counted, and what it was about is asked again in its turn.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/mailbox.h"
#include "operator/core/pods/agent_summary.h"

namespace crowdsurf::controller {

struct SummaryNews {
  std::string worker;
  AgentSummary summary;
};

class SummaryPoller {
 public:
  explicit SummaryPoller(int interval_ms = 500, int spacing_ms = 0);
  ~SummaryPoller();
  SummaryPoller(const SummaryPoller&) = delete;
  SummaryPoller& operator=(const SummaryPoller&) = delete;

  // worker -> host:port. A new worker is asked at once.
  void SetTarget(const std::string& worker, const std::string& address);
  void Forget(const std::string& worker);

  int descriptor() const { return event_; }  // readable when there are news
  std::optional<SummaryNews> Take();         // after it was; nullopt: no more
  void Acknowledge();                        // the descriptor is no longer readable
  uint64_t exceptions() const { return exceptions_; }

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  int Round(std::map<std::string, Clock::time_point>& asked);
  void Ask(const std::string& worker, const std::string& address);

  bool AwaitTurn();  // false: stopped

  const int interval_ms_;
  const int spacing_ms_;
  std::chrono::steady_clock::time_point free_;  // the next request may be made; the thread's
  const int event_;                             // eventfd to the owner
  const int wake_;                              // eventfd to the thread
  Mailbox<SummaryNews> news_;
  std::mutex mutex_;
  std::map<std::string, std::string> targets_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> exceptions_{0};
  std::thread thread_;
};

}  // namespace crowdsurf::controller
