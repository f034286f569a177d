// SummaryPoller: asks every agent for GET /summary, sixteen at a time.
//
// Who is asked when is PollPlan's; requests are HttpClient's: each ends within kPatience, however
// it drips, and holds kMaxSummary of an answer. So an agent that hangs, or answers without end,
// delays no other, and is struck out for a while when it goes on. Answers go into a bounded mailbox
// (full: the newest are lost) and a descriptor becomes readable. Any thread. No exception leaves
// its threads: each is counted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/edge/http_client.h"
#include "base/mailbox.h"
#include "operator/core/observe/poll_plan.h"
#include "operator/core/pods/agent_summary.h"

namespace crowdsurf::controller {

struct SummaryNews {
  std::string worker;
  AgentSummary summary;
};

class SummaryPoller {
 public:
  // An agent answers from memory in under 1 ms; a machine that is busy needs some hundred. Doubled:
  // sixteen agents that drip hold the others up for two seconds, until they are struck out.
  static constexpr Duration kPatience = Seconds(1);
  static constexpr size_t kMaxSummary = size_t{256} << 10;  // the stack of a trainer that hangs

  explicit SummaryPoller(int interval_ms = 500, int spacing_ms = 0);
  ~SummaryPoller();  // at once: requests that are under way are cut
  SummaryPoller(const SummaryPoller&) = delete;
  SummaryPoller& operator=(const SummaryPoller&) = delete;

  // worker -> host:port. A new worker is asked at once.
  void SetTarget(const std::string& worker, const std::string& address);
  void Forget(const std::string& worker);

  int descriptor() const { return event_; }  // readable when there are news
  std::optional<SummaryNews> Take();         // after it was; nullopt: no more
  void Acknowledge();                        // the descriptor is no longer readable
  // A worker that was struck out just now, and for how long; nullopt: no more.
  std::optional<std::string> TakeStruckOut() { return struck_out_.TryTake(); }
  Duration rest() const { return rest_; }
  uint64_t exceptions() const { return exceptions_; }

 private:
  void Run();
  void Ask(const PollPlan::Poll& poll);
  PollEnd Read(const PollPlan::Poll& poll, const StatusOr<HttpClient::Answer>& answer);

  const Duration rest_;
  const int event_;  // eventfd to the owner
  Mailbox<SummaryNews> news_;
  Mailbox<std::string> struck_out_;
  std::atomic<uint64_t> exceptions_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  PollPlan plan_;
  bool stopping_ = false;
  HttpClient client_;
  std::thread thread_;
};

}  // namespace crowdsurf::controller
