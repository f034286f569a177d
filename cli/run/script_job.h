// ScriptJob: the manifest of a job that is given as a command, not as a file.
//
// For `crowdsurf run -- COMMAND`, and for `crowdsurf init SCRIPT`, which writes it down.
// Pure: text from words. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace crowdsurf::cli {

inline constexpr uint64_t kScriptSamples = 1'000'000;  // the target, of all workers together

// The name of the job: that of the script, which is the first word after the program that is no
// option, in letters that Kubernetes takes. Pre: `command` is not empty.
std::string JobNameOf(const std::vector<std::string>& command);

// The manifest, with comments, for four workers. Each word of `command` reaches the trainer as it
// is. Pre: `command` is not empty.
std::string ScriptManifest(const std::vector<std::string>& command);

}  // namespace crowdsurf::cli
