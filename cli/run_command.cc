#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/run/run_session.h"

namespace crowdsurf::cli {
namespace {

int Run(const RunFlags& flags) {
  std::vector<std::string> problems;
  const RunOptions options = CheckFlags(flags, problems);
  // Also after wrong flags: all mistakes are told at once.
  const std::optional<LocalJob> job = LoadJob(options, problems);
  if (!problems.empty() || !job) {
    for (const std::string& problem : problems) {
      std::fprintf(stderr, "%s\n", ShownText(problem).c_str());
    }
    std::fprintf(stderr, "crowdsurf: %zu mistake%s; nothing was started\n", problems.size(),
                 problems.size() == 1 ? "" : "s");
    return kBadInput;
  }
  return RunSession(options, *job);
}

}  // namespace

void RegisterRun(CLI::App& app, Action& action) {
  // The parser writes into it after this function has returned.
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", "Train a job on this machine, workers as processes.");
  run->add_option("JOB.yaml", flags->words, "the TrainingJob, or -- and the COMMAND of a trainer")
      ->required()
      ->type_name("FILE");
  run->add_option("--duration", flags->duration,
                  "train so long (20s, 5m, 1h), whatever the manifest's target")
      ->type_name("DURATION");
  run->add_option("--samples", flags->samples,
                  "train on so many of all workers together, whatever the manifest's target");
  run->add_option("--workers", flags->workers, "instead of spec.replicas");
  run->add_option("--strategy", flags->strategy, "instead of spec.averaging.strategy")
      ->type_name("NAME");
  run->add_option("--preempt-every", flags->preempt_every,
                  "the spot market takes a worker so often")
      ->type_name("DURATION");
  run->add_option("--preempt-count", flags->preempt_count, "how many it takes at once, or all")
      ->capture_default_str()
      ->type_name("N|all");
  run->add_option("--preempt-trace", flags->preempt_trace,
                  "replay a recorded market: lines of ms,add|remove,node")
      ->type_name("CSV");
  run->add_option("--speed", flags->speed, "of the trace: 2 is twice as fast")
      ->capture_default_str();
  run->add_option("--notice", flags->notice,
                  "how long before it takes a worker the market says so, or none")
      ->capture_default_str()
      ->type_name("DURATION");
  run->add_option("--hang-after", flags->hang_after,
                  "a trainer without a step for so long is ended and its worker replaced, or none; "
                  "default: spec.agent.hangAfterSeconds, else 60s")
      ->type_name("DURATION");
  run->add_option(
      "--http-port", flags->http_port,
      "of the status page and /metrics, on 127.0.0.1; default: any free one; 0: neither");
  run->add_option("--seed", flags->seed, "of the spot market and the sample")
      ->capture_default_str();
  run->add_option("--state-dir", flags->state_dir,
                  "checkpoint, logs, report; default: ~/.local/state/crowdsurf/JOB")
      ->type_name("DIR");
  run->add_option("--report", flags->report, "the report as JSON; default: in the state directory")
      ->type_name("FILE");
  run->add_flag("--fresh", flags->fresh, "forget the checkpoint of an interrupted run");
  run->callback([flags, &action] { action = [flags] { return Run(*flags); }; });
}

}  // namespace crowdsurf::cli
