// What Explorer asks of a state: the statements, who may be orphaned, and a state in words.
#include "tests/model/world/explorer.h"

namespace crowdsurf::worker::testing {

std::string Explorer::Check(const State& state) const {
  const auto members = static_cast<size_t>(options_.members);
  std::optional<Digest> applied;
  std::optional<Digest> fast;
  size_t have0 = 0;
  std::map<std::pair<Ballot, Digest>, uint64_t> votes;
  for (size_t i = 0; i < members; ++i) {
    const Facts& facts = graph_.facts(state[i]);
    if (facts.applied) {
      if (applied && *applied != *facts.applied) return "S1 two members applied different results";
      applied = facts.applied;
    }
    if (facts.have0 && (!fast || *fast == *facts.have0)) ++have0;
    if (facts.have0) fast = facts.have0;
    for (const auto& accepted : facts.accepted) votes[accepted] |= uint64_t{1} << i;
  }
  std::optional<Digest> decided;
  const bool fast_decided = have0 == members || (options_.fast_on_majority && 2 * have0 > members);
  for (const auto& [accepted, voters] : votes) {
    if (!IsQuorumOf(members, voters)) continue;
    const std::optional<HeldValue>& held = graph_.Proposed(accepted.second);
    if (!held) return "S3 garbage decided";
    const Digest root = RootOf(held->value);
    if (decided && *decided != root) return "S3 two values decided";
    decided = root;
    if (std::string bad = CheckDecided(state, *held); !bad.empty()) return bad;
  }
  if (!fast_decided) return "";
  if (decided && *decided != *fast) return "S3 two values decided";
  // The fast value, as whoever sent HAVE(0) holds it: all live members must hold one and the same.
  std::optional<Digest> held;
  for (size_t i = 0; i < members; ++i) {
    const Facts& facts = graph_.facts(state[i]);
    if (facts.dead) continue;
    if (held && *held != facts.held) return "S4 the fast value is not held by all live members";
    held = facts.held;
  }
  return "";
}

// S4: every live member of the deciding ballot holds all of it.
std::string Explorer::CheckDecided(const State& state, const HeldValue& held) const {
  if (held.value.abort) return "L1 the round is given up: its ballots are spent";
  const Digest root = LocalGraph::HeldRoot(held.value.chunks);
  for (int i = 0; i < options_.members; ++i) {
    const Facts& facts = graph_.facts(state[static_cast<size_t>(i)]);
    if (!held.members.Contains(i) || facts.dead) continue;
    if (facts.held != root) return "S4 a member of the deciding ballot does not hold the value";
  }
  return "";
}

// One line a member: what it is and what it has sent.
std::string Explorer::Describe(const State& state) const {
  std::string text;
  for (int i = 0; i < options_.members; ++i) {
    const NodeId node = state[static_cast<size_t>(i)];
    const Facts& facts = graph_.facts(node);
    absl::StrAppend(&text, "\n  ", i, facts.dead ? " dead" : "", facts.over ? " over" : "",
                    facts.applied ? " applied" : "", " ballot ", facts.ballot, " suspects ",
                    facts.suspects.bits(), ":");
    for (const MessageId id : graph_.sent(node)) {
      const Wire& wire = graph_.wire(id);
      const auto* frame = std::get_if<Frame>(&wire.payload);
      std::string kind = wire.payload.index() == 1 ? "INPUT" : "RESULT";
      if (frame != nullptr) kind = std::string(KindOf(*frame).begin(), KindOf(*frame).end());
      absl::StrAppend(&text, " ", kind, ">", wire.to);
      if (frame == nullptr) continue;
      std::visit(
          [&text](const auto& body) {
            if constexpr (requires { body.ballot; }) absl::StrAppend(&text, "/", body.ballot);
          },
          frame->body);
    }
  }
  return text;
}

// A value must be kept of which no live member of its ballot is left: the decided one, or while
// nothing is decided any that a witness accepted.
bool Explorer::Orphaned(const State& state) const {
  std::map<std::pair<Ballot, Digest>, uint64_t> votes;
  for (int i = 0; i < options_.members; ++i)
    for (const auto& accepted : graph_.facts(state[static_cast<size_t>(i)]).accepted)
      votes[accepted] |= uint64_t{1} << i;
  RankSet accepted, decided, live;
  for (const auto& [vote, voters] : votes) {
    const RankSet members = graph_.Proposed(vote.second)->members;
    accepted |= members;
    if (IsQuorumOf(static_cast<size_t>(options_.members), voters)) decided |= members;
  }
  for (int i = 0; i < options_.members; ++i)
    if (!Dead(state, i)) live.Insert(i);
  const RankSet kept = !decided.empty() ? decided : accepted;
  return !kept.empty() && !kept.Meets(live);
}

}  // namespace crowdsurf::worker::testing
