// LocalLogs: the logs that a run on this machine keeps, while it runs and after.
//
// Reads the state directory of a run (docs/local-mode.md) and changes nothing in it. A follower
// looks five times a second, and holds a line and a number a worker that lives. Single thread.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/logs/line_printer.h"
#include "cli/logs/logs_options.h"

namespace crowdsurf::cli {

// Whether a run of the job has left, or has, its workers' logs in this state directory.
bool HasLocalLogs(const std::string& state_dir);

// Prints what `options` ask for. NotFound: no such worker, in words; others: a log cannot be read.
// OK as well when nobody reads the printer any more.
Status PrintLocalLogs(const LogsOptions& options, const std::string& state_dir,
                      LinePrinter& printer);

}  // namespace crowdsurf::cli
