// crowdsurf-worker: `run` (supervisor, the worker's PID 1), `agent` (its child), `leave` (preStop).
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/edge/any_address.h"
#include "base/edge/descriptors.h"
#include "base/edge/files.h"
#include "base/edge/inherited.h"
#include "base/edge/log_sink.h"
#include "base/edge/private_memory.h"
#include "coordinator-free-dht/edge/grpc_log.h"
#include "worker/edge/agent/agent.h"
#include "worker/edge/agent/agent_options.h"
#include "worker/edge/agent/bus_error.h"
#include "worker/edge/agent/external_events.h"
#include "worker/edge/agent/supervisor.h"
#include "worker/edge/link/link_http.h"

namespace crowdsurf::worker {
namespace {

constexpr int kBadConfiguration = 2;

void AddFlags(CLI::App& app, AgentOptions& options) {
  app.add_option("--job", options.job, "Name of the job")->envname("CROWDSURF_JOB");
  app.add_option("--worker", options.worker, "Name of this worker")->envname("CROWDSURF_WORKER");
  app.add_option("--dir", options.dir, "Directory shared with the trainer, on memory")
      ->envname("CROWDSURF_DIR");
  app.add_option("--agent-dir", options.agent_dir, "The agent's own directory");
  app.add_option("--cluster-dir", options.cluster_dir,
                 "Where the cluster writes ca.pem, token, seeds, notice, config (default: "
                 "--agent-dir)");
  app.add_option("--listen", options.listen, "Address to bind")->capture_default_str();
  app.add_option("--advertise", options.advertise, "Host that peers dial (default: --listen)");
  app.add_option("--peer-port", options.peer_port, "gRPC; 0: any free one");
  app.add_option("--tensor-port", options.tensor_port, "Tensor bytes; 0: any free one");
  app.add_option("--tensor-threads", options.tensor_threads,
                 "Threads that send and receive tensors; 0: one, or two from four processors on");
  app.add_option("--http-port", options.http_port, "Health and metrics; 0: any free one");
  app.add_option("--signer", options.signer, "https://host:port of the certificate signer");
  app.add_option("--capacity", options.capacity, "Spot or OnDemand")->capture_default_str();
  app.add_option("--zone", options.zone, "Zone of this machine");
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "Where the steward writes");
  app.add_option("--termination-log", options.termination_log, "JSON written at the end");
  app.add_option("--log-level", options.log_level, "debug, info, warning, error")
      ->capture_default_str();
  app.add_option("--tensor-tls", options.tensor_tls, "Required, or Disabled: in the clear")
      ->capture_default_str();
  app.add_option("--grace-period", options.grace_period, "Seconds from SIGTERM to the exit")
      ->capture_default_str();
  app.add_option("--hang-after", options.hang_after,
                 "Seconds without a step after which the trainer hangs; 0: never")
      ->capture_default_str();
  app.add_flag("!--link-on-disk", options.require_memory,
               "Allow --dir on a file system that is not memory (slower)");
}

// Everything wrong with flags and config at once; empty when all is well.
std::vector<std::string> AllViolations(const AgentOptions& options, JobConfig& config) {
  std::vector<std::string> out = Violations(options);
  if (options.agent_dir.empty()) return out;
  if (const Status linked = LinkClusterFiles(options); !linked.ok()) {
    out.push_back(absl::StrCat("--agent-dir: ", linked.message()));
  }
  const auto text = ReadFile(std::filesystem::path(options.agent_dir) / "config", 1 << 20);
  if (!text.ok()) return out;  // none yet: the defaults, until it is written
  ParsedJobConfig parsed = ParseJobConfig(*text);
  for (const std::string& violation : parsed.violations) out.push_back("config: " + violation);
  config = std::move(parsed.config);
  return out;
}

int PrintViolations(const std::vector<std::string>& violations) {
  for (const std::string& violation : violations) {
    std::cerr << "crowdsurf-worker: " << violation << "\n";
  }
  return kBadConfiguration;
}

int RunAgent(AgentOptions options) {
  KeepMemoryPrivate();  // its key is the job's word
  // Before any port is opened: each has a part of what there is.
  (void)RaiseDescriptorLimit();
  options.listen = AnyAddress(options.listen);
  // From the supervisor, which counts: this process knows of itself alone.
  const char* crashes = std::getenv(kCrashesVariable);
  if (crashes != nullptr) options.crashes = std::strtoull(crashes, nullptr, 10);
  JobConfig config;
  const auto violations = AllViolations(options, config);
  if (!violations.empty()) return PrintViolations(violations);
  // Before any thread is made: threads inherit the mask.
  BlockEndSignals();
  TellOfBusErrors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is no space, not the end
  const LogLevel least = ParseLogLevel(options.log_level).value_or(LogLevel::kInfo);
  const auto sink = MakeStderrSink(least);
  dht::RouteGrpcLog(sink.get());
  int code = 1;
  if (auto agent = Agent::Start(options, config, sink.get(), least); agent.ok()) {
    code = (*agent)->Run();
  } else {
    Logger(sink.get(), "agent", least)
        .Error("agent does not start", {{"error", agent.status().ToString()}});
  }
  dht::RouteGrpcLog(nullptr);
  return code;
}

struct RunFlags {
  bool die_with_parent = false, wait_for_sigterm = false;
};

int RunSupervisor(const AgentOptions& options, const RunFlags& flags, int argc, char** argv) {
  JobConfig config;
  const auto violations = AllViolations(options, config);
  if (!violations.empty()) return PrintViolations(violations);
  SupervisorOptions supervisor;
  std::error_code error;
  // The program that runs now: argv[0] may be relative, or lead to another one by now.
  supervisor.argv.push_back(std::filesystem::read_symlink("/proc/self/exe", error).string());
  supervisor.argv.push_back("agent");
  for (int i = 2; i < argc; ++i) {  // argv[1] is "run"
    const std::string_view word = argv[i];
    // Flags of the supervisor, which the agent does not know.
    if (word != "--die-with-parent" && word != "--wait-for-sigterm")
      supervisor.argv.push_back(argv[i]);
  }
  supervisor.die_with_parent = flags.die_with_parent;
  supervisor.wait_for_sigterm = flags.wait_for_sigterm;
  const LogLevel least = ParseLogLevel(options.log_level).value_or(LogLevel::kInfo);
  const auto sink = MakeStderrSink(least);
  return Supervise(supervisor, Logger(sink.get(), "supervisor", least));
}

// Blocks until the agent has left, so that a preStop hook keeps the pod until then.
int RunLeave(const std::string& dir, double within) {
  if (dir.empty()) return PrintViolations({"--dir: is required"});
  auto client = HttpClient::Connect(dir + "/agent.sock");
  if (!client.ok()) {
    std::cerr << "crowdsurf-worker: no agent in " << dir << ", so it has left: " << client.status()
              << "\n";
    return 0;
  }
  const auto reply =
      client->Do("POST", "/v1/leave", R"({"reason": "asked to leave"})", Seconds(within));
  // An agent that is gone before its answer was read has left.
  return reply.ok() || absl::IsUnavailable(reply.status()) ? 0 : 1;
}

int Main(int argc, char** argv) {
  TakeInherited();
  CLI::App app{"The agent of a Crowdsurf worker"};
  app.require_subcommand(1);
  AgentOptions options;
  RunFlags flags;
  CLI::App& run = *app.add_subcommand("run", "Runs the agent and restarts it when it crashes");
  CLI::App& agent = *app.add_subcommand("agent", "The agent itself")->group("");
  AddFlags(run, options);
  AddFlags(agent, options);
  run.add_flag("--die-with-parent", flags.die_with_parent, "End when the parent process ends");
  run.add_flag("--wait-for-sigterm", flags.wait_for_sigterm,
               "When the agent has left, wait for SIGTERM (a sidecar)");
  CLI::App& leave = *app.add_subcommand("leave", "Tells the agent to leave, returns when it has");
  leave.add_option("--dir", options.dir, "Directory shared with the trainer")
      ->envname("CROWDSURF_DIR");
  leave.add_option("--within", options.grace_period, "Seconds to wait")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end with 0.
    return app.exit(error) == 0 ? 0 : kBadConfiguration;
  }
  if (run) return RunSupervisor(options, flags, argc, argv);
  if (agent) return RunAgent(options);
  return RunLeave(options.dir, options.grace_period);
}

}  // namespace
}  // namespace crowdsurf::worker

int main(int argc, char** argv) { return crowdsurf::worker::Main(argc, argv); }
