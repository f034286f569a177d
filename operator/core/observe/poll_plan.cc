#include "operator/core/observe/poll_plan.h"

#include <algorithm>

namespace crowdsurf::controller {

void PollPlan::SetTarget(const std::string& name, const std::string& address, Time now) {
  Target& target = targets_[name];
  if (target.number != 0 && target.address == address) return;
  target = {address, ++numbers_, now};
}

std::optional<PollPlan::Poll> PollPlan::Next(Time now) {
  if (under_way_ >= kAtOnce || now < free_at_) return std::nullopt;
  auto first = targets_.end();
  for (auto it = targets_.begin(); it != targets_.end(); ++it) {
    if (it->second.under_way || it->second.due > now) continue;
    if (first == targets_.end() || it->second.due < first->second.due) first = it;
  }
  if (first == targets_.end()) return std::nullopt;
  Target& target = first->second;
  target.under_way = true;
  target.due = now + interval_;
  // From now on: a turn that was missed is not made up for.
  free_at_ = now + spacing_;
  ++under_way_;
  return Poll{first->first, target.address, target.number};
}

bool PollPlan::Ended(const Poll& poll, PollEnd how, Time now) {
  --under_way_;
  const auto it = targets_.find(poll.name);
  // It was forgotten meanwhile, or has another address.
  if (it == targets_.end() || it->second.number != poll.target) return false;
  Target& target = it->second;
  target.under_way = false;
  target.strikes = how == PollEnd::kSlow ? target.strikes + 1 : 0;
  if (target.strikes < kStrikes) return false;
  target.strikes = 0;
  target.due = now + rest();
  return true;
}

Time PollPlan::NextDue() const {
  if (under_way_ >= kAtOnce) return Time::Infinite();
  Time first = Time::Infinite();
  for (const auto& [name, target] : targets_) {
    if (!target.under_way) first = std::min(first, target.due);
  }
  return first.infinite() ? first : std::max(first, free_at_);
}

}  // namespace crowdsurf::controller
