// LostMembers: workers that were members of the view and are none any more, for whatever reason.
//
// Owner: the agent's host loop, single sequence, twice a second. A peer's own sense of death covers
// those it was connected to; of the others it only hears, from the steward, that their cells are
// empty. Both are here: PeerSummary::lost, and who has vanished from PeerSummary::members. Who left
// politely is among them: the operator knows that its pod goes, or it answers the operator's probe
// (operator/core/decide/death_reports.h). Who sits again is lost no more. Bounds: kMaxKnown names,
// kKept.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker/core/port/peer_summary.h"

namespace crowdsurf::worker {

class LostMembers {
 public:
  static constexpr size_t kMaxKnown = 4096;
  static constexpr Duration kKept = Seconds(180);  // longer than LossReportSchedule insists

  // Ascending. Nobody while this peer has no seat itself. O(members log members).
  std::vector<std::string> Look(Time now, const std::string& self, const PeerSummary& summary);
  size_t known() const { return seen_.size(); }
  uint64_t dropped() const { return dropped_; }  // beyond kMaxKnown; a name at each look

 private:
  std::map<std::string, Time> seen_;  // as a member, last
  uint64_t dropped_ = 0;
};

}  // namespace crowdsurf::worker
