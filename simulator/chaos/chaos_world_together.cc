// When all who live have come together; and what is seen of jobs with `rounds: One`, where that is
// another matter (chaos_world.h).
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "simulator/chaos/chaos_world.h"

namespace crowdsurf::simulator {

bool ChaosWorld::Together() {
  const std::vector<PeerNode*> living = Living();
  if (living.empty()) return true;
  if (scenario_.one_round && HaveTurned(living)) return true;
  const bool possible = std::any_of(after_heal_.begin(), after_heal_.end(), [&](const auto& entry) {
    return entry.second.size() >= living.size();
  });
  if (!possible) return false;  // summaries cost time
  std::optional<worker::ViewHash> view;
  for (const PeerNode* node : living) {
    if (!node->started()) return false;
    const worker::PeerSummary summary = node->Summarize();
    if (!summary.view || summary.cell.empty()) return false;
    if (view && *view != summary.view->hash) return false;
    view = summary.view->hash;
  }
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
    absl::StrAppend(&why, "]");
  }
  return why;
}

void ChaosWorld::OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own) {
  peer_checkers_.OnGroupMean(node, mean);
  turn_checkers_.OnGroupMean(node, mean, own);
  if (!healed_) return;
  if (const auto summary = At(node).Summarize(); summary.view)
    mixed_after_heal_[summary.view->hash].insert(node);
}

void ChaosWorld::OnCounted(int node, const worker::JobCounted& counted) {
  // A newcomer gives up what it trained before it took the others' state, and a member that a round
  // has lost may have to give up what it cannot ask for.
  const bool whole = scenario_.mild && scenario_.deaths.empty() && scenario_.leaves.empty() &&
                     scenario_.joins.empty();
  turn_checkers_.OnCounted(node, counted.job_samples, Made(), whole);
  trace_.Add(static_cast<uint64_t>(counted.job_samples));
  if (!healed_) return;
  if (const auto summary = At(node).Summarize(); summary.view)
    counted_after_heal_[summary.view->hash].insert(node);
}

// By all trainers, those of dead nodes up to their death.
double ChaosWorld::Made() {
  double made = 0;
  for (const auto& node : nodes_) {
    const auto dead = made_at_death_.find(node->index());
    made += dead == made_at_death_.end() ? node->Made() : dead->second;
  }
  return made;
}

// All who live are in one view, and in it each of them has taken a mean and completed a count since
// the links are whole. Their values differ.
bool ChaosWorld::HaveTurned(const std::vector<PeerNode*>& living) {
  const auto all = [&](const std::set<int>& nodes) {
    return std::all_of(living.begin(), living.end(),
                       [&](const PeerNode* node) { return nodes.contains(node->index()); });
  };
  for (const auto& [view, nodes] : mixed_after_heal_) {
    if (!all(nodes) || !all(counted_after_heal_[view])) continue;
    const auto in_view = [&, &at = view](const PeerNode* node) {
      if (!node->started()) return false;
      const worker::PeerSummary summary = node->Summarize();
      return summary.view && summary.view->hash == at && !summary.cell.empty();
    };
    if (std::all_of(living.begin(), living.end(), in_view)) return true;
  }
  return false;
}

}  // namespace crowdsurf::simulator
