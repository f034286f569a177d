// RunOptions: the flags of `crowdsurf run`, parsed and checked.
//
// Every mistake is reported at once, one line a flag, as for the manifest. Pure but for reading the
// trace file and looking at where the report is to go: said before the training, not after it. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "cli/run/spot_market.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::cli {

// As they stand on the command line.
struct RunFlags {
  std::vector<std::string> words;  // the manifest, or the words of a command
  std::string duration, preempt_every, preempt_trace, notice = "10s", preempt_count = "1";
  std::string state_dir, report, strategy;
  std::string hang_after;  // empty: as the manifest says
  std::optional<int> http_port;
  std::optional<int> workers;
  std::optional<uint64_t> samples;
  double speed = 1;
  uint64_t seed = 1;
  bool fresh = false;
};

struct RunOptions {
  std::string manifest;              // empty: there is a command
  std::vector<std::string> command;  // of the trainers of a job without a manifest
  std::optional<Duration> duration;  // replaces the manifest's target, and so does `samples`
  std::optional<uint64_t> samples;
  std::optional<int> workers;
  std::string strategy;
  MarketOptions market;
  std::optional<Duration> notice;  // absent: machines go without a word
  std::string state_dir, report;
  std::optional<Duration> hang_after;  // infinite: never; absent: as the manifest says
  std::optional<int> http_port;        // 0: no status page; absent: any free one
  bool fresh = false;
};

// "5s", "100ms", "1.5m", "2h"; a bare number is seconds. Error: InvalidArgument.
StatusOr<Duration> ParseDuration(const std::string& text);

// After so many seconds without a step a trainer hangs; 0: never. The flag comes before
// spec.agent.hangAfterSeconds, and this before kHangAfter.
double HangAfter(const RunOptions& options, const controller::TrainingJobSpec& spec);
inline constexpr double kHangAfter = 60;  // a person waits: less than in a pod

// The page that is written beside the report: its name, ending in .html.
std::string PageOf(const std::string& report);

// problems: what is wrong, one line each; the options are usable only when it stays empty.
RunOptions CheckFlags(const RunFlags& flags, std::vector<std::string>& problems);

}  // namespace crowdsurf::cli
