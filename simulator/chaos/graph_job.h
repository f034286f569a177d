// GraphJob: a strategy on a graph for a job under faults, and when it is switched off and on.
//
// Drawn from the scenario's seed (graph_draw.cc). A value; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/time.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::simulator {

struct GraphJob {
  worker::AveragingConfig config;    // strategy, its block, its interval
  worker::TensorViews tensors = {};  // of the model, for strategies that need shapes
  // The job's configuration changes to Moshpit and back at these times, in turn.
  std::vector<Duration> switches = {};
  bool begins = true;  // else with Moshpit, and the first switch is to the graph
  bool ends() const { return begins == (switches.size() % 2 == 0); }  // on the graph
};

// What `--strategy` takes, by the manifest's names.
inline constexpr std::string_view kGraphStrategies[] = {"Gossip", "A2CiD2", "RelaySum",
                                                        "PowerGossip"};

}  // namespace crowdsurf::simulator
