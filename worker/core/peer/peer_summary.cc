#include "worker/core/port/peer_summary.h"

#include <algorithm>
#include <set>

#include "worker/core/peer/peer.h"

namespace crowdsurf::worker {
namespace {

std::optional<double> Quantile(const std::deque<Duration>& lengths, double q) {
  if (lengths.empty()) return std::nullopt;
  std::vector<Duration> sorted(lengths.begin(), lengths.end());
  std::sort(sorted.begin(), sorted.end());
  // The sample at or below the quantile: no interpolation.
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))].seconds();
}

}  // namespace

const char* NameOf(PeerState state) {
  switch (state) {
    case PeerState::kStarting:
      return "Starting";
    case PeerState::kJoining:
      return "Joining";
    case PeerState::kTraining:
      return "Training";
    case PeerState::kLeaving:
      return "Leaving";
    case PeerState::kStopped:
      return "Stopped";
  }
  return "Starting";
}

// An agent that restarts is a new peer of the same worker: the old one's death is not the worker's.
std::vector<std::string> Peer::LostWorkers() const {
  const std::vector<PeerId> peers = membership_.Lost();
  if (peers.empty()) return {};
  std::set<std::string> lost;
  for (const PeerId& peer : peers) lost.insert(roster_.WorkerOf(peer));
  // A worker lives if any of its peers does.
  const auto lives = [&](const PeerId& peer) {
    if (!membership_.down().contains(peer)) lost.erase(roster_.WorkerOf(peer));
  };
  for (const auto& [peer, record] : roster_.live()) lives(peer);
  if (membership_.seating()) {
    for (const auto& [cell, member] : membership_.seating()->occupants()) lives(member.id);
  }
  lost.erase("");  // nobody was told its name
  lost.erase(config_.worker);
  return {lost.begin(), lost.end()};
}

// Two of them that last are two jobs: each has a model of its own. Members of a view that broke up
// take each other for down; their records say that they live.
std::vector<ViewHash> Peer::Lineages() const {
  std::set<ViewHash> lineages;
  if (membership_.seated()) lineages.insert(membership_.lineage().origin);
  for (const auto& [peer, record] : roster_.live()) {
    if (lineages.size() == PeerSummary::kMaxLineages) break;
    if (record.seated && !record.leaving) lineages.insert(record.lineage.origin);
  }
  return {lineages.begin(), lineages.end()};
}

PeerSummary Peer::Summarize() const {
  PeerSummary summary;
  const Progress& progress = averaging_.progress();
  summary.step = progress.step;
  summary.samples = progress.samples;
  summary.loss = progress.loss;
  summary.metrics = progress.metrics;
  summary.averaging = averaging_.job().averaging;
  summary.job_samples = averaging_.job().job_samples;
  summary.job_seconds = membership_.job_seconds();
  summary.target_met = membership_.target_met();
  summary.steward = membership_.is_steward();
  summary.rounds = averaging_.rounds().tally();
  summary.averagings_delivered = averaging_.deliveries();
  summary.averagings_abandoned = averaging_.abandoned();
  summary.divergence = averaging_.rounds().divergence();
  summary.round_seconds_p50 = Quantile(averaging_.rounds().lengths(), 0.5);
  summary.round_seconds_p95 = Quantile(averaging_.rounds().lengths(), 0.95);
  summary.joined_with_state = membership_.joined_with_state();
  summary.seat_refused = membership_.seat_refused();
  summary.witness = IsWitness();
  summary.lost = LostWorkers();
  // The first that fits: a peer that has stopped may still hold a seat.
  if (membership_.left() || membership_.target_met())
    summary.state = PeerState::kStopped;
  else if (membership_.leaving())
    summary.state = PeerState::kLeaving;
  else if (membership_.seated())
    summary.state = PeerState::kTraining;
  else if (averaging_.trainer())
    summary.state = PeerState::kJoining;
  summary.lineages = Lineages();
  if (!membership_.seated()) return summary;
  const Seating& seating = *membership_.seating();
  const View& view = seating.view();
  summary.view = PeerSummary::ViewSummary{.epoch = view.epoch,
                                          .hash = seating.hash(),
                                          .lineage = OriginOf(view, seating.hash()),
                                          .members = seating.occupants().size(),
                                          .radices = view.grid.radices,
                                          .branch = view.branch};
  summary.cell = Coordinates(view.grid, *seating.CellOf(config_.id));
  for (const auto& [cell, member] : seating.occupants())
    summary.members.push_back({.id = member.id,
                               .worker = roster_.WorkerOf(member.id),
                               .cell = Coordinates(view.grid, cell)});
  return summary;
}

}  // namespace crowdsurf::worker
