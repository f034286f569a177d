// What local mode does with a pod template: image, resources, volumes and env, one rule each.
//
// docs/local-mode.md says the same in words. There is no container: the command runs on this
// machine, in its own process group, with its directories beside it. Pure, any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "operator/core/job/training_job.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

// Where one worker's things lie on this machine.
struct LocalPlaces {
  std::string link;        // CROWDSURF_DIR, on tmpfs
  std::string agent;       // the agent's own directory
  std::string volumes;     // emptyDir volumes of this worker, a folder each
  std::string shared;      // claims, a folder each, shared by the workers and kept
  std::string checkpoint;  // the checkpoint volume, shared and kept
  std::string bin;         // folder of the crowdsurf programs, first in PATH
};

struct LocalCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // NAME=value
  std::string directory;                 // workingDir; empty: where crowdsurf was started
  std::vector<std::string> folders;      // to be made before the start
};

// A mount of the trainer that is a path of this machine.
struct HostMount {
  std::string path;   // of the volume
  std::string type;   // as Kubernetes names it: Directory, FileOrCreate, ...; empty: any
  std::string below;  // subPath
};

std::vector<HostMount> HostMounts(const TrainingJobSpec& spec);

// What a local run cannot do for this manifest. Pre: Validate found nothing.
std::vector<Violation> CheckLocal(const Manifest& manifest);

// What it does differently, worth a word at the start: each field of the template that has no
// effect here is named once.
std::vector<std::string> LocalRemarks(const TrainingJobSpec& spec);

// inherited: the environment of `crowdsurf run`. Pre: CheckLocal found nothing.
LocalCommand TrainerCommand(const TrainingJob& job, const std::string& worker,
                            const LocalPlaces& places, const std::vector<std::string>& inherited);

// `text` with $(NAME) replaced by its value; $$ is a dollar, unknown names stay as they are, as
// Kubernetes does it.
std::string ExpandVariables(const std::string& text,
                            const std::map<std::string, std::string>& values);

}  // namespace crowdsurf::controller
