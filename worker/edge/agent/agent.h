// Agent: one worker's `crowdsurf-worker agent` process, wired together.
//
// Purpose: runs the peer core on the host loop and executes its actions with the real things:
// identity and certificate, gRPC transport and DHT, tensor transport, trainer link, state exchange,
// checkpoints, HTTP port, the files of the agent's own directory. Decides nothing that a core could
// decide. Start opens everything and returns when the agent listens; Run is the host thread.
// Threads beside it: gRPC's, one for tensors, two of the link, one for files and signals, HTTP's,
// the certificate keeper's, one for checkpoints. All of them post to the host's bounded mailbox.
#pragma once

#include <memory>
#include <string>

#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "worker/core/strategy/strategy_factory.h"
#include "worker/edge/agent/agent_options.h"

namespace crowdsurf::worker {

class Agent {
 public:
  // `sink` outlives the agent. Errors name what could not be had (address, directory, certificate).
  // `config`: what the file `config` said at start, good. `strategies`: only tests give another.
  static StatusOr<std::unique_ptr<Agent>> Start(AgentOptions options, JobConfig config,
                                                LogSink* sink, LogLevel least,
                                                StrategyFactory strategies = BuiltStrategies());
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Until the agent has left or the job is over: 0, or 1 when something broke. Once.
  int Run();

  // ---- from any thread ----
  void AskToLeave();
  // Ends as a killed process would: nobody is told, nothing is finished. For tests.
  void Kill();

  const PeerId& id() const;
  std::string peer_endpoint() const;
  std::string http_endpoint() const;
  const MetricRegistry& metrics() const;

 private:
  class Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
