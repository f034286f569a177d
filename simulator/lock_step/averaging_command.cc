#include "simulator/lock_step/averaging_command.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <vector>

#include "simulator/engine/seeds.h"

namespace crowdsurf::simulator {
namespace {

// All mistakes at once, a line each.
std::string Mistakes(const AveragingCommand& command) {
  const AveragingOptions& o = command.averaging;
  std::string wrong;
  if (o.peers < 1 || o.peers > worker::kMaxCells)
    absl::StrAppend(&wrong, "--peers: ", o.peers, " is not in 1..", worker::kMaxCells, "\n");
  if (o.group_size < 2 || o.group_size > 64)
    absl::StrAppend(&wrong, "--group-size: ", o.group_size, " is not in 2..64\n");
  if (!(o.failure_rate >= 0 && o.failure_rate < 1))
    absl::StrAppend(&wrong, "--failure-rate: ", o.failure_rate, " is not in [0, 1)\n");
  if (!(o.target > 0)) absl::StrAppend(&wrong, "--target: ", o.target, " is not above 0\n");
  if (command.seeds < 1) absl::StrAppend(&wrong, "--seeds: 0 is below 1\n");
  return wrong;
}

}  // namespace

AveragingSummary Summarize(const AveragingCommand& command) {
  const std::vector<AveragingRun> runs = ForEachSeed<AveragingRun>(
      command.first_seed, command.seeds, command.threads,
      [&](uint64_t seed) { return SimulateAveraging<double>(command.averaging, seed); });
  AveragingSummary summary{runs.front().grid, 0, 0, 0, 0};
  for (const AveragingRun& run : runs) {
    summary.rounds += static_cast<double>(run.rounds);
    summary.rounds_loose += static_cast<double>(run.rounds_loose);
    summary.rounds_max = std::max(summary.rounds_max, run.rounds);
    summary.error = std::max(summary.error, run.error);
  }
  summary.rounds /= static_cast<double>(runs.size());
  summary.rounds_loose /= static_cast<double>(runs.size());
  return summary;
}

int RunSimulateAveraging(const AveragingCommand& command, std::string& output) {
  if (std::string wrong = Mistakes(command); !wrong.empty()) {
    output = wrong;
    return 2;
  }
  const AveragingSummary summary = Summarize(command);
  const AveragingOptions& o = command.averaging;
  const std::string grid = absl::StrJoin(summary.grid.radices, command.json ? "," : "x");
  if (command.json) {
    output = absl::StrFormat(
        "{\"peers\":%d,\"group_size\":%d,\"failure_rate\":%g,\"target\":%g,\"seeds\":%d,"
        "\"grid\":[%s],\"rounds\":%.4f,\"rounds_max\":%d,\"rounds_to_1e-4\":%.4f,\"error\":%.3g}\n",
        o.peers, o.group_size, o.failure_rate, o.target, command.seeds, grid, summary.rounds,
        summary.rounds_max, summary.rounds_loose, summary.error);
  } else {
    output = absl::StrFormat(
        "%d peers in a %s grid, absent with probability %g, %d seeds:\n"
        "  rounds to %g: %.2f (most %d); to 1e-4: %.2f; error of the mean %.1e\n",
        o.peers, grid, o.failure_rate, command.seeds, o.target, summary.rounds, summary.rounds_max,
        summary.rounds_loose, summary.error);
  }
  return 0;
}

}  // namespace crowdsurf::simulator
