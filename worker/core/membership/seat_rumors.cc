#include "worker/core/membership/seat_rumors.h"

#include <algorithm>

namespace crowdsurf::worker {

bool SeatRumors::Hold(Time now, const std::set<PeerId>& tellers, const Item& item) {
  // Full: items that are held already still take further tellers.
  if (rumors_.size() >= kMax && !rumors_.contains(item)) return false;
  Rumor& rumor = rumors_[item];
  // From the first telling on: repeats do not prolong it.
  if (rumor.since.unset()) rumor.since = now;
  for (const PeerId& teller : tellers)
    if (rumor.tellers.size() < kMaxTellers) rumor.tellers.insert(teller);
  return true;
}

std::vector<SeatRumors::Item> SeatRumors::Take(
    Time now, const std::function<bool(const Item&, const Rumor&)>& believes) {
  std::vector<Item> taken;
  std::erase_if(rumors_, [&](const auto& entry) {
    const bool believed = believes(entry.first, entry.second);
    if (believed) taken.push_back(entry.first);
    return believed || now - entry.second.since >= kForget;
  });
  return taken;
}

void SeatRumors::Withdraw(const PeerId& teller) {
  for (auto& [item, rumor] : rumors_) rumor.tellers.erase(teller);
}

Time SeatRumors::oldest() const {
  Time oldest = Time::Infinite();
  for (const auto& [item, rumor] : rumors_) oldest = std::min(oldest, rumor.since);
  return oldest;
}

}  // namespace crowdsurf::worker
