// Link API: the JSON bodies of agent.sock, as structs (docs/trainer-link.md).
//
// The one file of the agent's side that sees nlohmann-json for the link: its exceptions end here.
// Garbled input gives InvalidArgument with words for the trainer's author. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/shard/lease.h"
#include "worker/edge/link/link_event.h"

namespace crowdsurf::worker {

struct RegisterRequest {
  std::vector<LinkTensor> tensors;
  std::vector<std::string> metrics;  // names of the slots, at most kLinkMetrics
  bool fresh = true;                 // false: the trainer has lived before and keeps its state
  bool first = false;      // while it is held it gives its first parameters, which are its own
  bool bells = false;      // it rings trainer_bell; else its words are looked at every 20 ms
  bool gradients = false;  // it can hand over gradients in place of parameters
};
StatusOr<RegisterRequest> ParseRegister(std::string_view body);

struct RegisterAnswer {
  uint64_t session = 0;
  std::string job, worker;
  uint64_t seed = 0;
  bool hold = false;
  double hang_after = 0;
  bool gradients = false;  // are averaged in this job
  const LinkGeometry* geometry = nullptr;
};
std::string WriteRegisterAnswer(const RegisterAnswer& answer);

struct ProgressRequest {
  std::optional<double> loss;
  std::map<std::string, double> metrics;  // at most kLinkMetrics
};
StatusOr<ProgressRequest> ParseProgress(std::string_view body);

// {"samples": n, "unit": n, "seed": n}; without a seed it is `seed`, the job's.
StatusOr<DataSpec> ParseData(std::string_view body, uint64_t seed);
std::string WriteLeases(const LeasesGranted& granted);

// {"seconds": x}, 0 to kMaxBusySeconds.
inline constexpr double kMaxBusySeconds = 7 * 86400;  // longer is a typo, and would hide a hang
StatusOr<double> ParseBusy(std::string_view body);

// {"reason": "..."}; an empty body is an empty reason.
StatusOr<std::string> ParseLeave(std::string_view body);

struct LinkNotice {
  bool leaving = false;
  int64_t deadline_unix_ns = 0;
  std::string reason;
};
std::string WriteNotice(const LinkNotice& notice);

struct LinkStateAnswer {
  std::string job, worker;
  LinkCounters counters;
  const LinkGeometry* geometry = nullptr;  // nullptr: no trainer has registered yet
  std::vector<LinkRole> roles;             // that the job averages
  bool hold = false, stop = false;
  uint64_t averaging = 0;
  double job_samples = 0;
  LinkNotice notice;
};
std::string WriteState(const LinkStateAnswer& state);

std::string WriteError(std::string_view words);  // {"error": words}

}  // namespace crowdsurf::worker
