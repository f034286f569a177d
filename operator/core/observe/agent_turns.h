// AgentTurns: which agent of a job is asked beside the first one.
//
// One agent alone may not see that others train in another line, what holds them up, or that two
// draw the same batches. So a second one is asked, each in turn, by name. Who trains in another
// lineage than the first keeps its turn: the two lines are seen together until they merge. At most
// one agent in `gap`, so a job of any size costs the same. Time is an argument. Owner: who polls;
// single sequence. Bound: two names.
#pragma once

#include <string>
#include <vector>

#include "base/time.h"

namespace crowdsurf::controller {

class AgentTurns {
 public:
  // Silence after which an agent that keeps its turn loses it.
  static constexpr int kPatience = 3;  // gaps

  explicit AgentTurns(Duration gap) : gap_(gap) {}

  // Of `workers`, which are sorted, the one to ask beside `first`; empty: there is none.
  std::string Choose(WallTime now, const std::vector<std::string>& workers,
                     const std::string& first);
  // What a worker that was asked says of itself. An empty lineage: it has none yet.
  void Heard(WallTime now, const std::string& worker, const std::string& lineage, bool is_first);

 private:
  Duration gap_;
  std::string current_, first_lineage_;
  WallTime since_;      // of current_'s turn, or its last word
  bool keeps_ = false;  // its turn
};

}  // namespace crowdsurf::controller
