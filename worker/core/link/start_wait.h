// StartWait: what a worker waits for between its start and its first step, and since when.
//
// One cause at a time, the first in the order of a start: so that whoever looks at a job that does
// not train sees why. Words are a closed set, which the operator and `crowdsurf run` read
// (docs/agent.md). Owner: the agent's host thread. Pure: (now, facts) in, a word out.
#pragma once

#include <string_view>

#include "base/time.h"

namespace crowdsurf::worker {

struct StartFacts {
  bool certified = false;  // the signer has answered
  bool trainer = false;    // one is registered
  bool restoring = false;  // a checkpoint is read
  bool in_view = false;    // the job's other members, if any, have answered
  bool seated = false;
  bool held = false;     // the trainer waits for the job's state
  bool stepped = false;  // a trainer of this worker has made a step
};

// "signer", "volume" (a checkpoint is read), "trainer" (none has registered, or it makes no first
// step), "peers" (a view or a seat), "state"; empty once it has trained.
std::string_view WaitsFor(const StartFacts& facts);

class StartWait {
 public:
  explicit StartWait(Time now) : since_(now) {}

  void Look(Time now, const StartFacts& facts);
  std::string_view cause() const { return cause_; }
  Duration waited(Time now) const { return cause_.empty() ? Duration() : now - since_; }

 private:
  std::string_view cause_ = "signer";
  Time since_;  // of the cause
};

}  // namespace crowdsurf::worker
