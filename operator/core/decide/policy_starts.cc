#include "operator/core/decide/decision.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/job/start_cause.h"

// Workers that were placed and do not train: since when, and why, as far as anybody says.
namespace crowdsurf::controller {
namespace {

// From the start of its trainer, or of an init container: a client connects, and a first step is
// made, in less, unless it loads or compiles for long. Until then nothing is said.
constexpr Duration kStartPatience = Seconds(30);

// Since when a worker has all that it needs to begin, but for what this names; nullopt: something
// else holds it, or nothing does.
struct Wait {
  WallTime since;
  std::string_view reason;
  std::string words;
};
std::optional<Wait> WaitOf(const PodFacts& pod) {
  if (pod.ready_since || pod.trainer || pod.init || !pod.waiting_reason.empty()) return {};
  if (pod.started) {
    const StartCause* cause = FindStartCause(pod.wait.empty() ? "silent" : pod.wait);
    if (cause == nullptr) return {};
    return Wait{*pod.started, cause->reason, std::string(cause->words)};
  }
  if (!pod.init_since) return {};
  return Wait{*pod.init_since, reason::kInitContainer,
              "init container " + pod.init_name + " has not ended"};
}

}  // namespace

// Of the workers that do not train the one that has waited longest. The message has no clock in it:
// a status is not written for time's sake.
std::optional<std::pair<std::string_view, std::string>> WhyNobodySteps(const Decision& d) {
  std::optional<Wait> longest;
  const Worker* whose = nullptr;
  for (const Worker& worker : d.workers) {
    if (!worker.alive()) continue;
    const auto wait = WaitOf(*worker.pod);
    if (!wait || d.now < wait->since + kStartPatience) continue;
    if (longest && longest->since <= wait->since) continue;
    longest = wait;
    whose = &worker;
  }
  if (!longest) return {};
  return {{longest->reason,
           whose->pod->name + ": since " + FormatInstant(longest->since) + " " + longest->words}};
}

// No watch tells that a start takes long.
void LookAtStarts(Decision& d) {
  for (const Worker& worker : d.workers) {
    if (!worker.alive()) continue;
    const auto wait = WaitOf(*worker.pod);
    if (wait && d.now < wait->since + kStartPatience) d.WakeAt(wait->since + kStartPatience);
  }
}

}  // namespace crowdsurf::controller
