// LocalPod: a worker of local mode, two process groups and their directories.
//
// The agent and the trainer start together, as containers of a pod do (the trainer waits for the
// agent's socket by itself). What the cluster writes and what the agent writes are files of one
// directory; the names are those of the process contract (docs/local-mode.md). Owned and called by
// LocalCluster, on the thread that owns all processes. Bounded: 64 KiB of output a process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/job/local_rules.h"
#include "operator/core/port/plan.h"
#include "operator/core/port/snapshot.h"
#include "operator/edge/local/kept_log.h"
#include "operator/edge/local/process.h"

namespace crowdsurf::controller {

struct LocalPodOptions {
  std::string run;            // CROWDSURF_RUN of every process
  std::string state_dir;      // STATE_DIR
  std::string link_root;      // the run's directory, on tmpfs where there is one
  std::string bin_dir;        // of the crowdsurf programs
  std::string agent_program;  // "crowdsurf-worker"
  std::string signer_url;
  std::string ca_pem;
  std::vector<std::string> environment;  // of `crowdsurf run`
  double hang_after = 60;                // seconds without a step, then a trainer hangs; 0: never
  bool link_on_disk = false;             // link_root is not in memory
};

class LocalPod {
 public:
  LocalPod(const LocalPodOptions& options, const TrainingJob& job, const CreatePod& create,
           WallTime now);

  PodFacts facts;
  std::string http;                 // host:port of the agent's HTTP port, once known
  std::optional<WallTime> kill_at;  // SIGKILL then, if it has not ended

  // Makes the directories, writes the files, starts both processes. A trainer that cannot be run is
  // an end with code 127, not an error; errors are this machine's (disk, processes).
  Status Start(const TrainingJob& job, const std::string& token);

  void Annotate(std::string_view key, const std::string& value);
  // Reads `endpoints` if it is there; true when the address became known by this call.
  bool ReadEndpoints();
  // SIGTERM to both, SIGKILL at `at`.
  void Stop(WallTime at);
  // SIGKILL to both groups at once.
  void Kill();
  // SIGKILLs the trainer, which hangs; `stacks`, where it is, and `why` stand at the end of its
  // output, and its end has the reason "Hung". False when that was done already.
  bool EndTrainer(const std::string& why, const std::string& stacks);
  // Takes note of processes that ended; true when one did.
  bool Reap();
  // Nothing of it runs any more.
  bool gone() const;
  // Kills what escaped its groups, keeps the logs, removes the directories. Pre: gone().
  void Bury();

  // Of agent and trainer, those that were started.
  std::vector<pid_t> Processes() const;
  // For poll(): those that are open.
  std::vector<int> Descriptors() const;
  void Drain();  // to the logs, too

  const std::string& agent_dir() const { return places_.agent; }

 private:
  Status WriteFiles(const TrainingJob& job, const std::string& token);
  Status StartAgent(const TrainingJob& job);
  Status StartTrainer(const TrainingJob& job);
  // True when it has ended just now.
  bool Note(std::optional<Process>& process, std::optional<ContainerEnd>& end);

  const LocalPodOptions& options_;
  LocalPlaces places_;
  std::string folder_;  // STATE_DIR/workers/NAME
  KeptLog agent_log_, trainer_log_;
  std::optional<Process> agent_;
  std::optional<Process> trainer_;
  std::string hung_;    // why the trainer was ended; empty: it was not
  std::string stacks_;  // where it was then
  bool buried_ = false;
};

}  // namespace crowdsurf::controller
