// PeerConfig: what a peer is told once, at its start.
//
// The agent fills it from its config file and flags; the simulator and tests by hand. A newer
// averaging section arrives as ConfigChanged (inputs.h). A plain value, validated by the edge that
// makes it (AveragingConfig's own rules: averaging_config.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/round/round_spec.h"
#include "worker/core/strategy/strategy_factory.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::worker {

struct PeerConfig {
  std::string job;
  std::string worker;  // the pod's name, for people
  PeerId id;
  std::string peer_endpoint;  // host:port of the gRPC server
  std::string tensor_endpoint;
  std::string http_endpoint;
  bool on_demand = false;
  std::string zone;
  int64_t started_unix_ms = 0;  // wall clock when the agent started: seniority in the job
  AveragingConfig averaging;    // what the config file says; a newer one comes as ConfigChanged
  // Protocol timing; the simulator shrinks or stretches them.
  Duration heartbeat = Seconds(1);
  Duration form_delay = Milliseconds(150);     // before a fresh agent forms a view of one
  Duration view_debounce = Milliseconds(100);  // joiners that come together share a view
  Duration min_silence = Milliseconds(50);     // docs/round.md: max(50 ms, median + 6 MAD)
  Duration max_silence = Seconds(1);
  size_t chunk_elements = 32'768;                  // 128 KiB of float32: reduced while in L2
  uint32_t window_chunks = kLeastWindowChunks;     // RoundSpec's; the simulator shrinks it
  StrategyFactory strategies = BuiltStrategies();  // they open rounds; only tests give others
};

}  // namespace crowdsurf::worker
