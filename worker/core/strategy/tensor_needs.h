// What a strategy needs of the trainer's tensors. Only an agent can check it: a manifest has no
// shapes.
//
// Pure function; any thread. Source: docs/strategies.
#pragma once

#include <string>

#include "worker/core/vector/tensor_view.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::worker {

// The field of the manifest and why the tensors do not fit it, for the agent's log; empty: they do.
// The strategy goes on: what cannot travel as factors travels whole. O(tensors).
std::string UnmetByTensors(const AveragingConfig& config, const TensorViews& tensors);

}  // namespace crowdsurf::worker
