// YAML: a manifest as JSON with the line of every path, so that a complaint can name it.
//
// YAML 1.1 as kubectl reads it (yaml_scalar.h): plain scalars become null, booleans and numbers,
// quoted ones stay text, `<<` merges. What the two would read differently is refused. Exceptions
// of yaml-cpp end here. Bounds: 1 MiB of text, 100,000 nodes and 32 MiB of paths after
// aliases are expanded. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

// The only document of `text`; of several, the only one that is not of another kind than
// TrainingJob, so that a file may bring its job's claims and Secrets along. Errors: InvalidArgument
// with "line N: what", for text that is no YAML, has a key twice, several documents, or breaks a
// bound.
StatusOr<Manifest> ReadYaml(std::string_view text);

// The manifest in the file at `path`. Errors: NotFound, InvalidArgument (path and line).
StatusOr<Manifest> ReadManifest(const std::string& path);

}  // namespace crowdsurf::controller
