// RunSession: one `crowdsurf run` from the manifest to the report.
//
// Wires the reconciler to the local cluster and the spot market, draws the screen, and cleans up
// after any end. The main thread does everything; only the signer and the poller have threads of
// their own, started after the reaper. Bounds are those of the parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/run/run_options.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::cli {

struct LocalJob {
  controller::TrainingJob job;
  std::vector<std::string> remarks;  // worth a line at the start
};

// Reads and checks the manifest with the flags applied; problems get "FILE:LINE: path: what".
std::optional<LocalJob> LoadJob(const RunOptions& options, std::vector<std::string>& problems);

// Returns the exit code.
int RunSession(const RunOptions& options, const LocalJob& job);

}  // namespace crowdsurf::cli
