// AgentProber: asks an agent that its peers report dead whether it lives, GET /healthz.
//
// Any answer of its plain port (docs/agent.md) is a sign of life. It is asked twice, a second
// apart, because a supervisor restarts an agent in 100 ms. Silence counts only when a control, an
// agent that reported it, answers meanwhile: else it is the operator that is cut off. A question
// ends with its time-out, however the agent drips (http_client.h), and sixteen threads ask, so that
// neither a machine's dead nor agents that answer without end hold others up. Results come on those
// threads. Bounds: kLanes threads, kMaxWaiting each; what finds no room is refused, and asked for
// again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/edge/http_client.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "operator/core/decide/death_reports.h"

namespace crowdsurf::controller {

class AgentProber {
 public:
  static constexpr size_t kLanes = 16;
  static constexpr size_t kMaxWaiting = 64;
  using Receiver = std::function<void(const std::string& uid, ProbeResult result)>;

  struct Options {
    Duration timeout =
        Milliseconds(1500);  // of one request: 1 ms of work, on a machine that is busy
    Duration between = Seconds(1);
    Counter* exceptions = nullptr;  // counts probes that one ended; their result is kBlind
  };
  AgentProber(Options options, Receiver receiver);
  ~AgentProber();  // cuts what is under way

  // Thread-safe. False: no room.
  bool Ask(const DeathReports::Probe& probe);

 private:
  struct Lane {
    Mailbox<DeathReports::Probe> waiting{kMaxWaiting};
    std::thread thread;
  };
  void Run(Lane& lane);
  ProbeResult Probe(const DeathReports::Probe& probe);
  bool Answers(const std::string& http);
  bool Pause();  // false: stopping

  const Options options_;
  const Receiver receiver_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<size_t> next_{0};
  HttpClient client_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace crowdsurf::controller
