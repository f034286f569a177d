#include "worker/edge/agent/agent_options.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/endpoint.h"
#include "base/manifest/fields.h"
#include "base/text.h"

namespace crowdsurf::worker {
namespace {

constexpr int kMaxTensorThreads = 16;  // no link of today fills more; each has buffers of its own

void CheckPort(const char* flag, int port, std::vector<std::string>& out) {
  if (port < 0 || port > 65535) {
    out.push_back(absl::StrCat(flag, ": ", port, " is not a port (0..65535; 0: any free one)"));
  }
}

void CheckOneOf(const char* flag, const std::string& value, std::string_view allowed,
                std::vector<std::string>& out) {
  if (manifest::IndexOf(value, allowed) >= 0) return;
  out.push_back(
      absl::StrCat(flag, ": \"", value, "\" is none of ", manifest::ListOfChoices(allowed)));
}

// Names become parts of file names, so they have no slash.
void CheckName(const char* flag, const std::string& value, std::vector<std::string>& out) {
  if (value.empty()) {
    out.push_back(absl::StrCat(flag, ": is required"));
  } else if (value.size() > 253 || value.find('/') != std::string::npos) {
    out.push_back(absl::StrCat(flag, ": \"", CutText(value, 40),
                               "\" is no name (at most 253 characters, no slash)"));
  }
}

void CheckFolder(const char* flag, const std::string& path, std::vector<std::string>& out) {
  std::error_code error;
  if (path.empty()) {
    out.push_back(absl::StrCat(flag, ": is required"));
  } else if (!std::filesystem::is_directory(path, error)) {
    out.push_back(absl::StrCat(flag, ": ", path, " is not a directory"));
  }
}

}  // namespace

std::vector<std::string> Violations(const AgentOptions& options) {
  std::vector<std::string> out;
  CheckName("--job", options.job, out);
  CheckName("--worker", options.worker, out);
  CheckFolder("--dir", options.dir, out);
  CheckFolder("--agent-dir", options.agent_dir, out);
  if (!options.cluster_dir.empty()) CheckFolder("--cluster-dir", options.cluster_dir, out);
  if (options.listen.empty()) out.push_back("--listen: is required");
  // As peers will read it, who dial nothing else.
  const bool v6 = options.advertise.find(':') != std::string::npos;
  if (!options.advertise.empty() &&
      !ParseEndpoint(absl::StrCat(v6 ? "[" : "", options.advertise, v6 ? "]" : "", ":1"))) {
    out.push_back(absl::StrCat("--advertise: \"", options.advertise,
                               "\" is no address and no name of a host"));
  }
  CheckPort("--peer-port", options.peer_port, out);
  CheckPort("--tensor-port", options.tensor_port, out);
  CheckPort("--http-port", options.http_port, out);
  if (options.tensor_threads < 0 || options.tensor_threads > kMaxTensorThreads)
    out.push_back(absl::StrCat("--tensor-threads: must be 0 (what suits the machine), or 1 to ",
                               kMaxTensorThreads));
  if (!options.signer.empty() && options.signer.rfind("https://", 0) != 0) {
    out.push_back(absl::StrCat("--signer: \"", options.signer, "\" does not start with https://"));
  }
  CheckOneOf("--capacity", options.capacity, "Spot OnDemand", out);
  CheckOneOf("--log-level", options.log_level, manifest::RowOf("agent.logLevel").choices, out);
  CheckOneOf("--tensor-tls", options.tensor_tls, manifest::RowOf("tls.mode").choices, out);
  // Negated, so that NaN is refused, too.
  if (!(options.grace_period > 0) || options.grace_period > 3600) {
    out.push_back("--grace-period: must be more than 0 and at most 3600 seconds");
  }
  if (!(options.hang_after == 0 || (options.hang_after >= 1 && options.hang_after <= 1e7))) {
    out.push_back("--hang-after: must be 0 (never), or 1 to 10000000 seconds");
  }
  return out;
}

Status LinkClusterFiles(const AgentOptions& options) {
  if (options.cluster_dir.empty()) return absl::OkStatus();
  for (const char* name : {"ca.pem", "token", "seeds", "notice", "config"}) {
    const auto link = std::filesystem::path(options.agent_dir) / name;
    std::error_code error;
    // Of an earlier agent: its folder outlives it.
    if (std::filesystem::is_symlink(link, error)) continue;
    std::filesystem::create_symlink(std::filesystem::path(options.cluster_dir) / name, link, error);
    if (error) {
      return absl::FailedPreconditionError(absl::StrCat(link.string(), ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace crowdsurf::worker
