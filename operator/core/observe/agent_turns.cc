#include "operator/core/observe/agent_turns.h"

#include <algorithm>

namespace crowdsurf::controller {

std::string AgentTurns::Choose(WallTime now, const std::vector<std::string>& workers,
                               const std::string& first) {
  const bool there =
      current_ != first && std::binary_search(workers.begin(), workers.end(), current_);
  if (there && now - since_ < (keeps_ ? gap_ * kPatience : gap_)) return current_;
  auto next = std::upper_bound(workers.begin(), workers.end(), current_);
  for (size_t looked = 0; looked < workers.size(); ++looked, ++next) {
    if (next == workers.end()) next = workers.begin();
    if (*next != first) break;
  }
  if (workers.empty() || next == workers.end() || *next == first) {
    current_.clear();
    return current_;
  }
  current_ = *next;
  since_ = now;
  keeps_ = false;
  return current_;
}

void AgentTurns::Heard(WallTime now, const std::string& worker, const std::string& lineage,
                       bool is_first) {
  if (is_first) first_lineage_ = lineage;
  if (worker != current_ || is_first) return;
  keeps_ = !lineage.empty() && !first_lineage_.empty() && lineage != first_lineage_;
  if (keeps_) since_ = now;
}

}  // namespace crowdsurf::controller
