// Averaging words: the mean averaging of a run's workers in one line.
//
// A pure function; any thread.
#pragma once

#include <string>

#include "operator/core/pods/agent_summary.h"

namespace crowdsurf::cli {

// "0.84 s: waited 0.10 s for the trainer and 0.30 s for others; sent 0.25 s, ... (work overlaps)".
// "none was timed" where there is none.
std::string AveragingWords(const controller::SummaryAveragings& averagings);

}  // namespace crowdsurf::cli
