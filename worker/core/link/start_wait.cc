#include "worker/core/link/start_wait.h"

namespace crowdsurf::worker {

std::string_view WaitsFor(const StartFacts& facts) {
  if (facts.stepped) return {};
  if (!facts.certified) return "signer";
  if (!facts.trainer) return "trainer";
  if (facts.restoring) return "volume";
  if (!facts.in_view || !facts.seated) return "peers";
  return facts.held ? "state" : "trainer";
}

void StartWait::Look(Time now, const StartFacts& facts) {
  const std::string_view cause = WaitsFor(facts);
  if (cause == cause_) return;
  cause_ = cause;
  since_ = now;
}

}  // namespace crowdsurf::worker
