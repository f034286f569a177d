#include "worker/core/membership/lineages.h"

#include "worker/core/membership/roster.h"

namespace crowdsurf::worker {

LineageRank LineageCount::Of(const ViewHash& origin) const {
  const auto at = live_.find(origin);
  return {.members = at == live_.end() ? 0 : at->second, .origin = origin};
}

std::optional<LineageRank> LineageCount::Better(const LineageRank& own) const {
  std::optional<LineageRank> best;
  for (const auto& [origin, live] : live_) {
    const LineageRank rank{.members = live, .origin = origin};
    if (origin != own.origin && rank.Beats(best.value_or(own))) best = rank;
  }
  return best;
}

LineageCount CountLineages(const std::map<PeerId, RosterRecord>& records,
                           const std::function<bool(const PeerId&)>& sits_here) {
  LineageCount count;
  for (const auto& [peer, record] : records)
    if (record.seated && !record.leaving && !sits_here(peer)) count.Add(record.lineage.origin);
  return count;
}

}  // namespace crowdsurf::worker
