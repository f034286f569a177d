// When those who live have come together after the faults (chaos_world.h).
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "simulator/chaos/chaos_world.h"

namespace crowdsurf::simulator {

// The view in which all of them have seats.
std::optional<worker::ViewHash> ChaosWorld::CommonView(const std::vector<PeerNode*>& living) {
  std::optional<worker::ViewHash> view;
  for (const PeerNode* node : living) {
    if (!node->started()) return std::nullopt;
    const worker::PeerSummary summary = node->Summarize();
    if (!summary.view || summary.cell.empty()) return std::nullopt;
    if (view && *view != summary.view->hash) return std::nullopt;
    view = summary.view->hash;
  }
  return view;
}

bool ChaosWorld::Together() {
  const std::vector<PeerNode*> living = Living();
  if (living.empty()) return true;
  if (scenario_.one_round && MixTogether(living)) return true;
  if (scenario_.graph && scenario_.graph->ends()) return MixTogether(living);
  const bool possible = std::any_of(after_heal_.begin(), after_heal_.end(), [&](const auto& entry) {
    return entry.second.size() >= living.size();
  });
  if (!possible) return false;  // summaries cost time
  const auto view = CommonView(living);
  if (!view) return false;
  // One averaging that all the living delivered in that view, with equal bits.
  for (const auto& [key, contents] : after_heal_) {
    if (key.first != *view) continue;
    const auto equal = [&held = contents](const PeerNode* node) {
      const auto at = held.find(node->index());
      return at != held.end() && at->second == held.begin()->second;
    };
    if (std::all_of(living.begin(), living.end(), equal)) return true;
  }
  return false;
}

// Neighbours have no average that all hold, and nor have groups that take turns. In one view all
// have counted an averaging alike, and everybody was given a result by others, where there are any.
bool ChaosWorld::MixTogether(const std::vector<PeerNode*>& living) {
  const bool possible =
      std::any_of(counted_after_heal_.begin(), counted_after_heal_.end(),
                  [&](const auto& entry) { return entry.second.size() >= living.size(); });
  if (!possible) return false;
  const auto view = CommonView(living);
  if (!view) return false;
  const auto mixes = [&](const PeerNode* node) {
    return living.size() == 1 || mixed_after_heal_[*view].contains(node->index());
  };
  if (!std::all_of(living.begin(), living.end(), mixes)) return false;
  for (const auto& [key, counts] : counted_after_heal_) {
    if (key.first != *view) continue;
    const auto equal = [&counts = counts](const PeerNode* node) {
      const auto at = counts.find(node->index());
      return at != counts.end() && at->second == counts.begin()->second;
    };
    if (std::all_of(living.begin(), living.end(), equal)) return true;
  }
  return false;
}

std::string ChaosWorld::WhyApart() {
  std::string why;
  for (const PeerNode* node : Living()) {
    absl::StrAppend(&why, " [", node->index(), ":");
    if (node->started()) {
      const worker::PeerSummary summary = node->Summarize();
      absl::StrAppend(&why, worker::NameOf(summary.state), " averaging ",
                      summary.averaging.value());
      if (summary.view)
        absl::StrAppend(&why, " view ", summary.view->hash.brief(), " epoch ", summary.view->epoch,
                        " of ", summary.view->members, summary.cell.empty() ? " no cell" : "");
    }
    for (const auto& [view, nodes] : mixed_after_heal_)
      if (nodes.contains(node->index())) absl::StrAppend(&why, " mixes in ", view.brief());
    absl::StrAppend(&why, "]");
  }
  return why;
}

}  // namespace crowdsurf::simulator
