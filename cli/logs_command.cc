// `crowdsurf logs JOB [WORKER]`: what the workers of a job print.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/logs/cluster_logs.h"
#include "cli/logs/local_logs.h"
#include "cli/run/state_dir.h"
#include "cli/screen/terminal.h"

namespace crowdsurf::cli {
namespace {

struct LogsFlags {
  std::string job, worker, space, state_dir;
  bool follow = false, previous = false, agent = false;
  std::optional<int> tail;
};

constexpr int kTailOfEach = 10;  // of several workers, as kubectl has it

int Fail(const Status& status) {
  std::fprintf(stderr, "crowdsurf: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) ? kBadInput : kFailed;
}

// A job that is neither here nor there: says where was looked, and which jobs are there.
Status NoSuchJob(const std::string& job, const std::string& cluster) {
  return absl::NotFoundError(absl::StrCat(NoLocalJob(job).message(), "; ", cluster));
}

Status FromCluster(const LogsOptions& options, const LogsFlags& flags, LinePrinter& printer) {
  auto endpoint = controller::LoadDefaultKubeEndpoint();
  if (!endpoint.ok() && flags.space.empty()) {
    return NoSuchJob(options.job, std::string(endpoint.status().message()));
  }
  RETURN_IF_ERROR(endpoint.status());
  const std::string space = flags.space.empty() ? endpoint->default_namespace : flags.space;
  controller::KubeClient::Options client_options;
  client_options.connections = 2;  // a watch has one of its own
  controller::KubeClient client(*std::move(endpoint), client_options);
  const Status printed = PrintClusterLogs(
      options, space, client, printer,
      [](const std::string& words) { std::fprintf(stderr, "crowdsurf: %s\n", words.c_str()); });
  const bool here = flags.space.empty() && options.worker.empty();
  if (!absl::IsNotFound(printed) || !here) return printed;
  return NoSuchJob(options.job, std::string(printed.message()));
}

int Logs(const LogsFlags& flags) {
  signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is an error of one write
  LogsOptions options;
  options.job = flags.job;
  options.worker = flags.worker;
  options.of = flags.agent ? LogOf::kAgent : LogOf::kTrainer;
  options.follow = flags.follow ? Follow::kYes : Follow::kNo;
  options.which = flags.previous ? Which::kPrevious : Which::kNewest;
  options.tail = flags.tail.value_or(flags.worker.empty() ? kTailOfEach : -1);
  if (!flags.space.empty() && !flags.state_dir.empty()) {
    return Fail(absl::InvalidArgumentError(
        "--namespace is of a cluster, --state-dir of a run on this machine: give one of them"));
  }
  if (flags.job.find('/') != std::string::npos || flags.job.ends_with(".yaml")) {
    return Fail(absl::InvalidArgumentError(
        flags.job + " is no name of a job: JOB is the metadata.name of the manifest"));
  }
  LinePrinter printer(STDOUT_FILENO, !flags.worker.empty()       ? Prefix::kNone
                                     : TakesColor(STDOUT_FILENO) ? Prefix::kColoredName
                                                                 : Prefix::kName);
  const std::string folder = flags.state_dir.empty() ? DefaultStateDir(flags.job) : flags.state_dir;
  const bool local = flags.space.empty() && HasLocalLogs(folder);
  Status printed;
  if (local) {
    printed = PrintLocalLogs(options, folder, printer);
  } else if (!flags.state_dir.empty()) {
    printed = absl::NotFoundError(folder + " is not the state directory of a run");
  } else {
    printed = FromCluster(options, flags, printer);
  }
  if (!printed.ok()) return Fail(printed);
  if (printer.error() == 0 || printer.error() == EPIPE) return kSucceeded;
  std::fprintf(stderr, "crowdsurf: cannot write: %s\n", std::strerror(printer.error()));
  return kFailed;
}

}  // namespace

void RegisterLogs(CLI::App& app, Action& action) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* logs = app.add_subcommand(
      "logs", "Print what a job's workers print, of a run on this machine or of pods.");
  logs->add_option("JOB", flags->job, "its name")->required();
  logs->add_option("WORKER", flags->worker,
                   "its name (JOB-3-1) or its index (3); default: the newest of each index");
  logs->add_flag("-f,--follow", flags->follow, "go on with what is printed from now on");
  logs->add_option("--tail", flags->tail,
                   "so many lines of each at first, -1: all; default: all of one WORKER, else 10")
      ->check(CLI::Range(-1, 1'000'000'000))
      ->type_name("N");
  logs->add_flag("-p,--previous", flags->previous, "of the worker's predecessor");
  logs->add_flag("--agent", flags->agent, "of the agent, not of the trainer");
  logs->add_option("-n,--namespace", flags->space, "of the cluster; default: as kubectl has it");
  logs->add_option("--state-dir", flags->state_dir, "of the run, where it was given one")
      ->type_name("DIR");
  logs->callback([flags, &action] { action = [flags] { return Logs(*flags); }; });
}

}  // namespace crowdsurf::cli
