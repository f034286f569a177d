// SpotTrace: when a cloud gave instances and took them, as the times of a simulated job.
//
// A file of lines `milliseconds,add|remove,node`, in order of time, as the authors of Bamboo
// recorded them (Thorpe et al. 2023, NSDI). Nodes of the first instant are the job's first members;
// every later one joins. Values.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::bench {

struct SpotTrace {
  int members = 0;               // of the first instant: nodes 0 to members - 1
  std::vector<Duration> joins;   // of nodes members, members + 1, ...
  std::vector<Duration> deaths;  // in order
  std::vector<int> victims;      // the node of each death
  Duration length;               // to the last line
  double mean_living = 0;        // over the length
};

// `faster`: what the trace's times are divided by, > 0. InvalidArgument: a line that is none, out
// of order, of a node that is there already or is not there, or no line; it names the line.
StatusOr<SpotTrace> ParseSpotTrace(const std::string& text, double faster);

}  // namespace crowdsurf::bench
