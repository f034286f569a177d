// Planted faults of RoundWorld that need more than a changed field: forged answers of witnesses,
// frames that a member should not have sent, plan rules. All from outside: nothing in Round knows.
#include "tests/model/world/round_world.h"

namespace crowdsurf::worker::testing {

// True: the frame is swallowed.
bool RoundWorld::TamperMore(const PeerId& from, const PeerId& to, Frame& frame) {
  const Bug bug = options_.bug;
  if (auto* ready = std::get_if<Ready>(&frame.body)) {
    const bool lies = bug == Bug::kTwoWeights || bug == Bug::kRootWithoutWeights;
    if (lies && from == rank_of_.begin()->first && to == rank_of_.rbegin()->first)
      ready->stake.weight = 2 * ready->stake.weight + 1;
  } else if (const auto* accept = std::get_if<Accept>(&frame.body)) {
    if (bug == Bug::kNoWitnesses) CommitAtOnce(from, *accept);
  } else if (const auto* have = std::get_if<Have>(&frame.body)) {
    if (bug == Bug::kRootWithoutWeights && have->ballot == 0)
      return CompareWithoutWeights(from, to, *have);
  }
  return false;
}

// ACCEPT goes out when all of the plan hold the value: they are told at once that it is decided.
void RoundWorld::CommitAtOnce(const PeerId& coordinator, const Accept& accept) {
  const Frame forged{instance_, Accepted{accept.ballot, Sha256(accept.value)}};
  std::set<PeerId> learners(accept.learners.begin(), accept.learners.end());
  learners.insert(coordinator);
  At(1, [this, forged, learners] {
    for (const PeerId& witness : witnesses_)
      for (const PeerId& learner : learners) Deliver(witness, learner, forged);
  });
}

// When exactly half of the witnesses have answered, another one seems to. Meant for worlds whose
// witnesses are no members: a member's answers to itself are not on the wire.
void RoundWorld::MakeHalfEnough(const PeerId& from, const PeerId& to, const Frame& frame) {
  const auto witness = std::find(witnesses_.begin(), witnesses_.end(), from);
  const auto* promise = std::get_if<Promise>(&frame.body);
  const auto* accepted = std::get_if<Accepted>(&frame.body);
  if (witness == witnesses_.end() || (promise == nullptr && accepted == nullptr)) return;
  const Ballot ballot = promise != nullptr ? promise->ballot : accepted->ballot;
  auto& present = answered_[{to, ballot, promise != nullptr ? Digest() : accepted->value}];
  if (!present.insert(from).second || 2 * present.size() != witnesses_.size()) return;
  const auto absent = std::find_if(witnesses_.begin(), witnesses_.end(),
                                   [&](const PeerId& peer) { return present.count(peer) == 0; });
  FrameBody body = frame.body;
  if (promise != nullptr) body = Promise{ballot, 0, {}};
  At(0, [this, as = *absent, to, forged = Frame{instance_, std::move(body)}] {
    if (dead_.count(to) > 0) return;
    RoundActions out;
    RoundHost& host = HostAt(rank_of_.at(to));
    host.round.OnFrame(as, forged, out);
    Run(host, out);
  });
}

// What a member holds, when it is all: its answers to FETCH name the masks.
std::optional<RoundValue> RoundWorld::HeldBy(const RoundHost& host) const {
  std::vector<ChunkIndex> all(chunks_.size());
  for (uint32_t c = 0; c < all.size(); ++c) all[c] = ChunkIndex(c);
  Round copy = host.round;
  RoundActions fetched;
  const PeerId asker = rank_of_.begin()->second == host.self() ? std::next(rank_of_.begin())->first
                                                               : rank_of_.begin()->first;
  copy.OnFrame(asker, {instance_, Fetch{all}}, fetched);
  if (fetched.size() != chunks_.size()) return std::nullopt;
  RoundValue value;
  for (const RoundAction& action : fetched) {
    const auto& result = std::get<SendResult>(action);
    value.chunks.push_back({result.assigned, result.mask, result.hash});
  }
  value.stakes.assign(cells_.size(), {});
  for (size_t rank = 0; rank < cells_.size(); ++rank)
    if (ContributorsOf(value).Contains(rank)) value.stakes[rank].weight = weights_[rank];
  return value;
}

// Its STATUS said that HAVE(0) had not been sent, and so it must never be.
void RoundWorld::HaveAfterStatus(const RoundHost& host) {
  if (host.round.over() || host.round.ballot() == 0 || have0_.count(host.self()) > 0) return;
  const std::optional<RoundValue> value = HeldBy(host);
  if (!value) return;
  for (const ChunkValue& chunk : value->chunks)
    if (chunk.assigned != 0) return;
  for (const auto& [peer, rank] : rank_of_)
    if (rank != host.self())
      Post(TestPeer(host.self()), peer, Frame{instance_, Have{0, RootOf(*value)}});
}

// A receiver with the same chunks, whatever the weights, reads its own root.
bool RoundWorld::CompareWithoutWeights(const PeerId& from, const PeerId& to, const Have& have) {
  own_root_[from] = have.root;
  if (auto value = HeldBy(HostAt(rank_of_.at(from)))) {
    value->stakes.assign(cells_.size(), {});
    bare_root_[from] = RootOf(*value);
  }
  const auto compare = [this, from, to, root = have.root] {
    if (bare_root_.count(to) == 0) return;
    const bool same = bare_root_.at(from) == bare_root_.at(to);
    Deliver(from, to, Frame{instance_, Have{0, same ? own_root_.at(to) : root}});
  };
  for (const uint64_t delay : {1U, 20U, 100U, 300U}) At(delay, compare);
  return true;
}

// ---- plan rules -------------------------------------------------------------------------------
std::optional<Plan> RuleIgnoringComplete(const PlanQuestion& question) {
  PlanQuestion forgetful = question;
  for (auto& [rank, status] : forgetful.statuses) {
    status.complete.reset();
    status.held.assign(status.held.size(), ChunkValue());
  }
  std::optional<Plan> plan = MakePlan(forgetful);
  return plan;
}

PlanRule RuleOf(Bug bug) {
  if (bug == Bug::kPlanIgnoresComplete) return RuleIgnoringComplete;
  return MakePlan;
}

}  // namespace crowdsurf::worker::testing
