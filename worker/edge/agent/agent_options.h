// Agent options: what the command line and the file `config` say, checked all at once.
//
// Purpose: nothing else of the agent parses text from outside. A mistake is never fatal alone:
// every violation comes back with the flag's name or the field's path and what is allowed, and
// worker_main prints them and exits with 2. Values; any thread. The file `config` is re-read while
// the agent runs; a wrong new one is refused with the same words and the old one stands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/manifest/field_defaults.h"
#include "base/status.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/view/averaging_config.h"

namespace crowdsurf::worker {

struct AgentOptions {
  std::string job, worker;
  std::string dir;          // $CROWDSURF_DIR, shared with the trainer
  std::string agent_dir;    // the agent's own
  std::string cluster_dir;  // where the cluster writes its files; empty: into agent_dir
  std::string listen = "127.0.0.1";
  std::string advertise;  // the host that peers dial; empty: `listen`
  int peer_port = 0, tensor_port = 0, http_port = 0;
  int tensor_threads = 0;  // I/O threads for tensors; 0: as many as TensorTransportOptions says
  std::string signer;      // https://host:port; empty with a certificate in place already
  std::string capacity{manifest::TextDefault("capacity.type")};
  std::string zone;
  std::string checkpoint_dir;   // empty: no checkpoints, no model file
  std::string termination_log;  // empty: none
  std::string log_level{manifest::TextDefault("agent.logLevel")};
  std::string tensor_tls{manifest::TextDefault("tls.mode")};
  bool require_memory = true;  // `dir` must be a memory file system
  double grace_period = 10;    // seconds from SIGTERM to exit: Google gives user pods 15
  double hang_after = 300;     // seconds without a step: the trainer hangs; 0: never said
  uint64_t crashes = 0;        // of the agents before this one, as the supervisor counted
};

// Every violation of the flags, each starting with the flag's name; empty when all is well.
std::vector<std::string> Violations(const AgentOptions& options);

// Makes the files that the cluster writes into cluster_dir (a read-only volume whose content
// kubelet swaps as a whole) appear in agent_dir, as links; does nothing without a cluster_dir.
// Again after a restart: no error. Error: agent_dir is not writable.
Status LinkClusterFiles(const AgentOptions& options);

// The file `config`: {"generation", "averaging", "target", "checkpoint"}, CRD field names.
struct JobConfig {
  AveragingConfig averaging;
  std::vector<LinkRole> roles = {LinkRole::kParameter};
  double checkpoint_seconds = NumberDefault("checkpoint.intervalSeconds");
  int checkpoint_retain = IntegerDefault<int>("checkpoint.retain");
};
struct ParsedJobConfig {
  JobConfig config;
  std::vector<std::string>
      violations;  // "averaging.groupSize: 1 is below 2"; empty: config is good
};
ParsedJobConfig ParseJobConfig(std::string_view json);

}  // namespace crowdsurf::worker
