#include "operator/edge/local/local_pod.h"

#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/edge/files.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/local/run_cleanup.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr int kCannotRun = 127;  // what a shell says of a program that is not there

// The file of the agent's directory that an annotation becomes.
std::string_view FileOf(std::string_view annotation) {
  if (annotation == kNoticeAnnotation) return "notice";
  if (annotation == kConfigAnnotation) return "config";
  if (annotation == kSeedsAnnotation) return "seeds";
  return {};
}

std::string TextOf(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

LocalPod::LocalPod(const LocalPodOptions& options, const TrainingJob& job, const CreatePod& create,
                   WallTime now)
    : options_(options),
      folder_(options.state_dir + "/workers/" + create.name),
      agent_log_(folder_ + "/agent.log"),
      trainer_log_(folder_ + "/trainer.log") {
  facts.name = create.name;
  facts.uid = options.run + "/" + create.name;
  facts.index = create.index;
  facts.incarnation = create.incarnation;
  facts.capacity = create.capacity;
  facts.created = now;
  facts.grace = job.spec.disruption.grace;
  facts.annotations = {{std::string(kConfigAnnotation), create.config},
                       {std::string(kSeedsAnnotation), create.seeds}};
  places_.link = options.link_root + "/" + create.name;
  places_.agent = folder_ + "/agent";
  places_.volumes = folder_ + "/volumes";
  places_.shared = options.state_dir + "/volumes";
  places_.checkpoint = options.state_dir + "/checkpoint";
  places_.bin = options.bin_dir;
}

Status LocalPod::WriteFiles(const TrainingJob& job, const std::string& token) {
  RETURN_IF_ERROR(MakeFolders(folder_));
  // Keys and link are for this user alone.
  RETURN_IF_ERROR(MakeFolders(places_.agent, 0700));
  RETURN_IF_ERROR(MakeFolders(places_.link, 0700));
  RETURN_IF_ERROR(MakeFolders(places_.checkpoint));
  RETURN_IF_ERROR(WriteFileAtomically(places_.agent + "/ca.pem", options_.ca_pem));
  RETURN_IF_ERROR(WriteFileAtomically(places_.agent + "/token", token, {.mode = 0600}));
  for (const auto& [key, value] : facts.annotations) {
    RETURN_IF_ERROR(WriteFileAtomically(places_.agent + "/" + std::string(FileOf(key)), value));
  }
  for (const std::string& folder :
       TrainerCommand(job, facts.name, places_, options_.environment).folders) {
    std::error_code unknown;
    // A hostPath may be a file, or a folder whose mode is its owner's.
    if (std::filesystem::exists(folder, unknown)) continue;
    RETURN_IF_ERROR(MakeFolders(folder));
  }
  return absl::OkStatus();
}

Status LocalPod::StartAgent(const TrainingJob& job) {
  ProcessOptions process;
  process.argv = {options_.agent_program,
                  "run",
                  "--job",
                  job.name,
                  "--worker",
                  facts.name,
                  "--dir",
                  places_.link,
                  "--agent-dir",
                  places_.agent,
                  "--listen",
                  "127.0.0.1",
                  "--peer-port",
                  "0",
                  "--tensor-port",
                  "0",
                  "--http-port",
                  "0",
                  "--signer",
                  options_.signer_url,
                  "--capacity",
                  facts.capacity == CapacityType::kOnDemand ? "OnDemand" : "Spot",
                  "--checkpoint-dir",
                  places_.checkpoint,
                  "--termination-log",
                  folder_ + "/termination",
                  "--hang-after",
                  std::to_string(options_.hang_after),
                  "--die-with-parent",
                  "--tensor-tls",
                  job.spec.tensors_in_clear ? "Disabled" : "Required"};
  if (const std::string level = TextAt(job.spec.agent, "logLevel"); !level.empty())
    process.argv.insert(process.argv.end(), {"--log-level", level});
  if (options_.link_on_disk) process.argv.emplace_back("--link-on-disk");
  process.environment = options_.environment;
  for (std::string& entry : process.environment) {
    if (entry.compare(0, 5, "PATH=") == 0)
      entry = "PATH=" + options_.bin_dir + ":" + entry.substr(5);
  }
  // Children that leave the process group are found by these (run_cleanup.cc).
  process.environment.push_back(std::string(kRunVariable) + "=" + options_.run);
  process.environment.push_back(std::string(kWorkerVariable) + "=" + facts.name);
  StatusOr<Process> started = Process::Start(process);
  if (!started.ok()) return started.status();
  agent_.emplace(std::move(*started));
  return absl::OkStatus();
}

Status LocalPod::StartTrainer(const TrainingJob& job) {
  LocalCommand command = TrainerCommand(job, facts.name, places_, options_.environment);
  command.environment.push_back(std::string(kRunVariable) + "=" + options_.run);
  StatusOr<Process> started =
      Process::Start({command.argv, command.environment, command.directory});
  if (started.ok()) {
    trainer_.emplace(std::move(*started));
    return absl::OkStatus();
  }
  // The machine is full, which passes: the pod is tried again. A bad command ends like a trainer.
  if (absl::IsResourceExhausted(started.status())) return started.status();
  facts.trainer = ContainerEnd{kCannotRun, "CannotRun", std::string(started.status().message())};
  return absl::OkStatus();
}

Status LocalPod::Start(const TrainingJob& job, const std::string& token) {
  RETURN_IF_ERROR(WriteFiles(job, token));
  // A pod's order: a sidecar starts before the containers.
  RETURN_IF_ERROR(StartAgent(job));
  RETURN_IF_ERROR(StartTrainer(job));
  facts.phase = PodPhase::kRunning;
  return absl::OkStatus();
}

void LocalPod::Annotate(std::string_view key, const std::string& value) {
  facts.annotations[std::string(key)] = value;
  const std::string_view file = FileOf(key);
  if (file.empty() || agent_ == std::nullopt) return;
  // The annotation must say what the agent has read.
  // A full disk must not take the cluster down; the agent keeps the old content.
  const Status status = WriteFileAtomically(places_.agent + "/" + std::string(file), value);
  if (!status.ok()) facts.annotations[std::string(key)] = "";
}

bool LocalPod::ReadEndpoints() {
  if (!facts.address.empty() || !agent_) return false;
  const std::string text = ReadFile(places_.agent + "/endpoints", size_t{64} * 1024).value_or("");
  if (text.empty()) return false;
  const json endpoints = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!endpoints.is_object()) return false;
  http = TextOf(endpoints, "http");
  facts.address = TextOf(endpoints, "peer");
  return !facts.address.empty();
}

void LocalPod::Stop(WallTime at) {
  // A stop can be hastened and never put off.
  if (kill_at && *kill_at <= at) return;
  if (!kill_at) {
    if (agent_) agent_->Signal(SIGTERM);  // the supervisor alone: it tells its child
    if (trainer_) trainer_->SignalGroup(SIGTERM);
  }
  kill_at = at;
}

void LocalPod::Kill() {
  if (agent_) agent_->SignalGroup(SIGKILL);
  if (trainer_) trainer_->SignalGroup(SIGKILL);
  kill_at.reset();
}

bool LocalPod::EndTrainer(const std::string& why, const std::string& stacks) {
  // Its agent reports the hang until the process has gone.
  if (!trainer_ || !hung_.empty()) return false;
  hung_ = why;
  stacks_ = stacks;
  trainer_->SignalGroup(SIGKILL);
  return true;
}

bool LocalPod::Note(std::optional<Process>& process, std::optional<ContainerEnd>& end) {
  if (!process || end || !process->Reap()) return false;
  const int code = *process->exit_code();
  end = ContainerEnd{code, code == 0 ? "Completed" : "Error", process->kept_output()};
  return true;
}

bool LocalPod::Reap() {
  bool changed = Note(agent_, facts.agent);
  const bool ran = !facts.trainer;
  changed = Note(trainer_, facts.trainer) || changed;
  if (ran && facts.trainer && !hung_.empty()) {
    facts.trainer->reason = "Hung";
    if (!stacks_.empty()) facts.trainer->output += "\n" + stacks_;
    facts.trainer->output += "\n(crowdsurf: it hung, " + hung_ + ", and was ended)";
  }
  if (changed) facts.ready_since.reset();
  if (changed && facts.agent && facts.trainer) {
    facts.phase = facts.agent->exit_code == 0 && facts.trainer->exit_code == 0
                      ? PodPhase::kSucceeded
                      : PodPhase::kFailed;
  }
  return changed;
}

bool LocalPod::gone() const { return (!agent_ || facts.agent) && (!trainer_ || facts.trainer); }

void LocalPod::Bury() {
  if (buried_) return;
  buried_ = true;
  // Children of the trainer that left its group die here.
  if (agent_ || trainer_) KillRunProcesses(options_.run, facts.name);
  Drain();
  for (const auto& [log, process] : {std::pair(&agent_log_, &agent_), {&trainer_log_, &trainer_}}) {
    // A full disk keeps no logs.
    if (*process && !log->Finish((*process)->kept_output(), (*process)->head()).ok()) break;
  }
  std::error_code error;
  std::filesystem::remove_all(places_.link, error);
  std::filesystem::remove_all(places_.agent, error);  // keys do not outlive their worker
  std::filesystem::remove_all(places_.volumes, error);
}

std::vector<pid_t> LocalPod::Processes() const {
  std::vector<pid_t> started;
  for (const auto* process : {&agent_, &trainer_}) {
    if (*process) started.push_back((*process)->pid());
  }
  return started;
}

std::vector<int> LocalPod::Descriptors() const {
  std::vector<int> open;
  for (const auto* process : {&agent_, &trainer_}) {
    if (!*process) continue;
    if ((*process)->pidfd() >= 0) open.push_back((*process)->pidfd());
    if ((*process)->output() >= 0) open.push_back((*process)->output());
  }
  return open;
}

void LocalPod::Drain() {
  for (const auto& [log, process] : {std::pair(&agent_log_, &agent_), {&trainer_log_, &trainer_}}) {
    if (!*process) continue;
    (*process)->Drain();
    log->Append((*process)->printed(), (*process)->kept_output(), (*process)->head());
  }
}

}  // namespace crowdsurf::controller
