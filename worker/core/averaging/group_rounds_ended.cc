// What open rounds ask of the host, how they end, and what is counted of them (group_rounds.h).
#include <utility>

#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kLengthsKept = 256;  // for the screen's p50 and p95

}  // namespace

void GroupRounds::Perform(Time now, Instance& instance, RoundActions& actions, Actions& out) {
  for (RoundAction& action : actions) {
    if (auto* send = std::get_if<SendFrame>(&action)) {
      SendTo(send->to, send->frame, Wrapping(instance), out);
    } else if (const auto* over = std::get_if<RoundOver>(&action)) {
      End(now, instance, *over);
    } else if (!std::holds_alternative<BranchFormed>(action)) {
      instance.flowed |=
          std::holds_alternative<SendInput>(action) || std::holds_alternative<SendResult>(action);
      if (const auto* input = std::get_if<SendInput>(&action))
        windows_.OnInput(now, input->to, input->chunk);
      instance.fed |= std::holds_alternative<FoldChunk>(action);  // its mask is fixed
      out.push_back(Chunk{instance.handle, std::move(action)});
    }
  }
  actions.clear();
  Count(instance);
}

void GroupRounds::End(Time now, Instance& instance, const RoundOver& over) {
  if (instance.reported) return;
  instance.reported = true;
  const RoundSpec& spec = instance.round.spec();
  Ended ended{.averaging = instance.opening.averaging,
              .round = instance.opening.round,
              .axis = instance.opening.axis,
              .over = over,
              .counted = Applied(over.outcome) && over.counted.Contains(spec.self),
              .flowed = instance.flowed,
              .instance = spec.instance,
              .group = {},
              .seated = {},
              .contributors = {},
              .hashes = Applied(over.outcome) ? HashesOf(instance) : nullptr,
              .to = instance.opening.to};
  for (const auto& [cell, member] : instance.seating.occupants()) ended.seated.insert(member.id);
  std::set<PeerId> counted;
  for (size_t rank = 0; rank < spec.cells.size(); ++rank) {
    const auto& member = spec.cells[rank].member;
    if (!member) continue;
    if (*member != config_.id) ended.group.push_back(*member);
    if (over.counted.Contains(rank)) counted.insert(*member);
    if (over.contributors.Contains(rank)) ended.contributors.insert(*member);
    if (Applied(over.outcome) && !over.members.Contains(rank)) metrics_.members_missing->Add();
  }
  if (Applied(over.outcome)) {
    outcomes_.emplace_back(spec.instance, std::move(counted));
    if (outcomes_.size() > kMaxOutcomes) outcomes_.pop_front();
    lengths_.push_back(now - instance.opened);
    if (lengths_.size() > kLengthsKept) lengths_.pop_front();
    metrics_.round_seconds->Observe((now - instance.opened).seconds());
  }
  Tally(instance, over.outcome);
  if (over.outcome == Outcome::kLeft)
    log_.Info("round left: others have another base", {{"averaging", ended.averaging.value()}});
  else if (!Applied(over.outcome) && !departing_)
    LogGivenUp(now, instance, over);
  log_.Debug("round over", {{"averaging", ended.averaging.value()},
                            {"round", ended.round},
                            {"outcome", NameOf(over.outcome)},
                            {"ballot", over.ballot},
                            {"weight", over.stake.weight},
                            {"members", over.members.bits()},
                            {"contributors", over.contributors.bits()}});
  ended_.push_back(std::move(ended));
}

// Short formats travel otherwise than they lie, and so do the chunks of IST. With masks a result
// may do so, too: the host knows (Deliver).
std::shared_ptr<const ResultHashes> GroupRounds::HashesOf(const Instance& instance) const {
  const Opening& opening = instance.opening;
  const RoundSpec& spec = instance.round.spec();
  if (WireOf(opening) != WireFormat::kFloat32 || opening.counting || opening.subnet != nullptr ||
      vector_.elements == 0)
    return nullptr;
  ResultHashes hashes{.key = ContentKey(spec.instance),
                      .chunk_elements = static_cast<uint32_t>(config_.chunk_elements),
                      .parts = {},
                      .of_chunk = {}};
  for (size_t i = 0; i < spec.chunks.size(); ++i) {
    if (i == 0 || spec.chunks[i].owner != spec.chunks[i - 1].owner) hashes.parts.push_back(0);
    hashes.parts.back() += spec.chunks[i].count;
    hashes.of_chunk.push_back(instance.round.slots()[i].hash);
  }
  return std::make_shared<const ResultHashes>(std::move(hashes));
}

// A worker keeps its own values in such a round: whoever looks for the cause needs to know whom it
// could not reach.
void GroupRounds::LogGivenUp(Time now, const Instance& instance, const RoundOver& over) const {
  std::string unheard;
  for (const RoundCell& cell : instance.round.spec().cells)
    if (cell.member && instance.round.Distrusts(*cell.member))
      unheard += (unheard.empty() ? "" : " ") + cell.member->brief();
  log_.Warning("round given up", {{"averaging", instance.opening.averaging.value()},
                                  {"round", instance.opening.round},
                                  {"outcome", NameOf(over.outcome)},
                                  {"seconds", (now - instance.opened).seconds()},
                                  {"ballot", over.ballot},
                                  {"group", instance.round.spec().cells.size()},
                                  {"unheard", unheard}});
}

void GroupRounds::Tally(const Instance& instance, Outcome outcome) {
  if (instance.broke_up) {
    ++tally_.branch;
    metrics_.rounds_branch->Add();
    return;
  }
  if (departing_ && outcome == Outcome::kKept) return metrics_.rounds_left->Add();
  metrics_.rounds.at(outcome)->Add();
  switch (outcome) {
    case Outcome::kFast:
      ++tally_.fast;
      break;
    case Outcome::kRepaired:
      ++tally_.repaired;
      break;
    case Outcome::kAdopted:
      ++tally_.adopted;
      break;
    case Outcome::kKept:
      ++tally_.kept;
      break;
    case Outcome::kAborted:
      ++tally_.aborted;
      break;
    case Outcome::kOrphaned:
      ++tally_.orphaned;
      break;
    case Outcome::kLeft:  // nothing failed: it is to fetch the base first
      break;
  }
}

// Adds to the metrics what the round has counted since the last call.
void GroupRounds::Count(Instance& instance) {
  const RoundCounts& counts = instance.round.counts();
  RoundCounts& seen = instance.counted;
  const auto grown = [](uint64_t total, uint64_t& before) {
    const auto by = static_cast<double>(total - before);
    before = total;
    return by;
  };
  for (const auto& [reason, total] : counts.refused)
    metrics_.RefuseFrame(reason, grown(total, seen.refused[reason]));
  for (const auto& [cause, total] : counts.ballots)
    metrics_.ballots.at(cause)->Add(grown(total, seen.ballots[cause]));
  metrics_.ballots_late->Add(grown(counts.ballots_late, seen.ballots_late));
  metrics_.chunks_first->Add(grown(counts.chunks_first, seen.chunks_first));
  metrics_.chunks_adopted->Add(grown(counts.chunks_adopted, seen.chunks_adopted));
  metrics_.chunks_reduced_again->Add(grown(counts.chunks_reduced_again, seen.chunks_reduced_again));
  metrics_.root_mismatch->Add(grown(counts.root_mismatch, seen.root_mismatch));
  if (const double by = grown(counts.divergence, seen.divergence); by > 0) {
    divergence_ += static_cast<uint64_t>(by);
    metrics_.divergence->Add(by);
    log_.Error(
        "members applied different results",
        {{"averaging", instance.opening.averaging.value()}, {"round", instance.opening.round}});
  }
}

std::vector<GroupRounds::Ended> GroupRounds::TakeEnded() { return std::exchange(ended_, {}); }

std::optional<bool> GroupRounds::Counted(const InstanceId& instance, const PeerId& peer) const {
  for (const auto& [id, counted] : outcomes_)
    if (id == instance) return counted.contains(peer);
  return std::nullopt;
}

}  // namespace crowdsurf::worker
