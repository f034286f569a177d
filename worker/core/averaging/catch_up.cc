#include "worker/core/averaging/catch_up.h"

#include <utility>

namespace crowdsurf::worker {

const Committed* CatchUp::Beyond(AveragingId averaging, const Seating& seating,
                                 const std::set<PeerId>& down) const {
  if (tries_ >= kMaxTries) return nullptr;
  const Committed* best = nullptr;
  for (const auto& [peer, held] : holders_) {
    if (held.averaging <= averaging || down.contains(peer) || !seating.CellOf(peer)) continue;
    if (best == nullptr || held.averaging > best->averaging) best = &held;
  }
  return best;
}

const Committed* CatchUp::Ahead(const Committed& own, const Seating& seating,
                                const std::set<PeerId>& down) const {
  const Committed* best = nullptr;
  for (const auto& [peer, held] : holders_) {
    if (down.contains(peer) || !seating.CellOf(peer)) continue;
    if (IsLater(held, best == nullptr ? own : *best)) best = &held;
  }
  return best;
}

FetchState CatchUp::Fetch(const Committed& wanted, Region into, bool adopt) {
  stage_ = Stage::kFetching;
  ++tries_;
  state_ = wanted;
  FetchState fetch{.averaging = wanted.averaging,
                   .root = wanted.root,
                   .donors = {},
                   .region = into,
                   .adopt = adopt};
  for (const auto& [peer, held] : holders_)
    if (held.root == wanted.root && fetch.donors.size() < kMaxDonors) fetch.donors.push_back(peer);
  return fetch;
}

std::optional<Committed> CatchUp::OnFetched(const StateFetched& fetched, AveragingId own) {
  const bool waited = stage_ == Stage::kFetching;
  if (waited || stage_ == Stage::kDropped) stage_ = Stage::kIdle;
  if (!waited) return std::nullopt;
  if (!fetched.ok || fetched.averaging <= own) {
    // They said that they hold it and do not serve it: what they say next may be true again.
    std::erase_if(holders_, [&](const auto& entry) { return entry.second.root == state_.root; });
    return std::nullopt;
  }
  if (fetched.averaging > state_.averaging) {  // the donors went on while it was asked for
    TakeNewer(fetched);
    for (const auto& [peer, held] : holders_)
      if (held.averaging == state_.averaging && held.root == state_.root) state_.cells = held.cells;
  }
  stage_ = Stage::kFetched;
  return state_;
}

void CatchUp::TakeNewer(const StateFetched& fetched) {
  state_ = {
      .averaging = fetched.averaging, .root = fetched.root, .job_samples = fetched.job_samples};
}

Committed CatchUp::OnAdopted(const StateFetched& fetched) {
  stage_ = Stage::kIdle;
  if (fetched.averaging != state_.averaging) TakeNewer(fetched);
  return state_;
}

void CatchUp::OnRefused() {
  // What was fetched stays: the trainer is asked once more.
  if (stage_ == Stage::kAsked) stage_ = Stage::kFetched;
}

std::optional<Committed> CatchUp::OnSnapshot() {
  if (stage_ != Stage::kAsked) return std::nullopt;
  stage_ = Stage::kIdle;
  return state_;
}

void CatchUp::Drop() {
  const bool fetching = stage_ == Stage::kFetching || stage_ == Stage::kDropped;
  stage_ = fetching ? Stage::kDropped : Stage::kIdle;
}

}  // namespace crowdsurf::worker
