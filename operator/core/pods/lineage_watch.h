// LineageWatch: does a job train in two lineages that do not merge?
//
// Workers that do not see each other go on apart, each line with a model of its own (docs/views.md,
// Branch). Lines that meet merge within a second or two, so two count once they were there together
// for kSettled. Fed with what agents say of themselves and of the peers that they see. Owner: who
// polls the agents; single sequence. Bound: kMostWorkers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "operator/core/pods/agent_summary.h"

namespace crowdsurf::controller {

class LineageWatch {
 public:
  static constexpr Duration kSettled = Seconds(10);
  static constexpr size_t kMostWorkers = 4096;  // that say something; more of them say no more

  // What a worker said counts for `fresh`: some polls long.
  explicit LineageWatch(Duration fresh) : fresh_(fresh) {}

  void See(WallTime now, const std::string& worker, const AgentSummary& summary);
  void Forget(const std::string& worker) { said_.erase(worker); }
  // The lineages that the job trains in: two or more once they are settled. 0: none is known.
  int Look(WallTime now);

 private:
  struct Said {
    WallTime at;
    std::vector<std::string> lineages;
  };
  Duration fresh_;
  std::map<std::string, Said> said_;
  std::optional<WallTime> apart_since_;
};

}  // namespace crowdsurf::controller
