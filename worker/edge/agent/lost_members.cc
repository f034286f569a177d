#include "worker/edge/agent/lost_members.h"

#include <algorithm>
#include <set>

namespace crowdsurf::worker {

std::vector<std::string> LostMembers::Look(Time now, const std::string& self,
                                           const PeerSummary& summary) {
  if (!summary.view) return {};
  std::set<std::string> lost(summary.lost.begin(), summary.lost.end());
  for (const PeerSummary::SeatedMember& member : summary.members) {
    if (member.worker.empty() || member.worker == self || lost.contains(member.worker)) continue;
    if (seen_.size() < kMaxKnown || seen_.contains(member.worker)) {
      seen_[member.worker] = now;
    } else {
      ++dropped_;
    }
  }
  std::erase_if(seen_, [&](const auto& seen) { return now - seen.second > kKept; });
  // Seen at this very look: a member. Seen only before: it has vanished.
  for (const auto& [worker, at] : seen_) {
    if (at < now) lost.insert(worker);
  }
  return {lost.begin(), lost.end()};
}

}  // namespace crowdsurf::worker
