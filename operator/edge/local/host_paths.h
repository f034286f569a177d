// The paths of this machine that a template mounts, looked at before a worker starts.
//
// Any thread; blocking, as a file system is. Source: Kubernetes' page on volumes, hostPath.
#pragma once

#include "base/status.h"
#include "operator/core/job/local_rules.h"

namespace crowdsurf::controller {

// Each mount is what its type says, and is made where its type says so: a folder for
// DirectoryOrCreate and for no type, an empty file for FileOrCreate. Errors name the path.
Status PrepareHostPaths(const TrainingJobSpec& spec);

}  // namespace crowdsurf::controller
