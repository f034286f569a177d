#include "tests/model/world/explorer.h"

#include <algorithm>
#include <set>

namespace crowdsurf::worker::testing {
namespace {

constexpr NodeId kNobody = ~NodeId{0};
constexpr int kMaxNudges = 12;  // of a healed group; each opens at most one ballot

std::vector<RoundSpec> Specs(const ModelOptions& options) {
  std::vector<RoundSpec> specs;
  for (int self = 0; self < options.members; ++self) {
    RoundSpec spec;
    spec.instance = *InstanceId::From(Sha256(AsBytes("model")).view().first(InstanceId::kBytes));
    spec.self = self;
    for (int rank = 0; rank < options.members; ++rank) {
      spec.cells.push_back({TestPeer(rank), {}});
      spec.witnesses.push_back(TestPeer(rank));
    }
    const int owners = options.owners > 0 ? options.owners : options.members;
    for (int c = 0; c < options.chunks; ++c)
      spec.chunks.push_back(
          {static_cast<uint16_t>((options.first_owner + c % owners) % options.members),
           static_cast<uint64_t>(c), 1});
    if (options.window > 0) spec.window_chunks = spec.max_window_chunks = options.window;
    spec.stake.weight = 1;
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace

Explorer::Explorer(ModelOptions options)
    : options_(options), graph_(Specs(options), {options.apply_early, options.witness_forgets}) {}

Explorer::Visited::Visited(size_t n) : members(n), table(1 << 20) {
  for (auto& entry : table) entry.fill(kNobody);
}

bool Explorer::Visited::Add(const State& state) {
  if ((count + 1) * 10 > table.size() * 6) {
    std::vector<State> old(table.size() * 2);
    for (auto& entry : old) entry.fill(kNobody);
    old.swap(table);
    count = 0;
    for (const State& entry : old)
      if (entry[0] != kNobody) Add(entry);
  }
  const uint64_t hash =
      ContentHash({reinterpret_cast<const uint8_t*>(state.data()), sizeof(State)}, 3);
  size_t i = hash & (table.size() - 1);
  while (table[i][0] != kNobody) {
    if (table[i] == state) return false;
    i = (i + 1) & (table.size() - 1);
  }
  table[i] = state;
  ++count;
  return true;
}

// All messages on the wire: visit(member it is for, message).
template <class Visit>
void Explorer::Messages(const State& state, Senders senders, Visit visit) const {
  for (int from = 0; from < options_.members; ++from) {
    if (senders == Senders::kLiving && Dead(state, from)) continue;
    if (Unopened(state, from)) continue;
    const NodeId node = state[static_cast<size_t>(from)];
    for (const auto* ids : {&graph_.sent(node), &graph_.told(node)}) {
      for (const MessageId id : *ids) {
        const int to = graph_.wire(id).to;
        if (!Dead(state, to) && !Unopened(state, to)) visit(to, id);
      }
    }
  }
}

// Healing has ballots of its own; the exploration at most `ballots`.
bool Explorer::WithinBallots(const State& state) const {
  std::set<Ballot> ballots;
  for (int i = 0; i < options_.members; ++i) {
    const Ballot ballot = graph_.facts(state[static_cast<size_t>(i)]).ballot;
    if (ballot > 0) ballots.insert(ballot);
    for (const MessageId id : graph_.sent(state[static_cast<size_t>(i)]))
      if (const auto* frame = std::get_if<Frame>(&graph_.wire(id).payload))
        if (const auto* status = std::get_if<StatusFrame>(&frame->body))
          ballots.insert(status->ballot);
  }
  return ballots.size() <= static_cast<size_t>(options_.ballots);
}

// HAVE(0) of a majority counts for all: those of the others are forged.
void Explorer::Forge(const State& state, std::vector<std::pair<int, MessageId>>& soup) {
  int have = 0;
  std::optional<Digest> root;
  for (int i = 0; i < options_.members; ++i) {
    const auto& sent = graph_.facts(state[static_cast<size_t>(i)]).have0;
    have += sent ? 1 : 0;
    if (sent) root = sent;
  }
  if (2 * have <= options_.members) return;
  const InstanceId instance = Specs(options_).front().instance;
  for (int from = 0; from < options_.members; ++from)
    for (int to = 0; to < options_.members; ++to)
      if (from != to && !Dead(state, to))
        soup.emplace_back(to, graph_.Intern({from, to, Frame{instance, Have{0, *root}}}));
}

// Nothing of the step can be seen by others or by the checkers, so it may as well happen just
// before the member's next step that can.
bool Explorer::Silent(NodeId from, NodeId to) const {
  const Facts& a = graph_.facts(from);
  const Facts& b = graph_.facts(to);
  return graph_.sent(from) == graph_.sent(to) && a.applied == b.applied && a.over == b.over &&
         a.ballot == b.ballot && a.dead == b.dead;
}

Explorer::Around Explorer::AroundOf(const State& state, int member) const {
  Around around{member};
  for (int other = 0; other < options_.members; ++other) {
    const bool missing = Dead(state, other) || other == options_.late_member;
    if (other != member && (options_.mistakes || missing)) around.suspects.push_back(other);
  }
  return around;
}

// `node` and all that silent steps make of it.
std::vector<NodeId> Explorer::SilentClosure(NodeId node, const Around& around) {
  std::vector<NodeId> closure = {node};
  std::set<NodeId> seen = {node};
  for (size_t k = 0; k < closure.size(); ++k) {
    const NodeId from = closure[k];
    const auto add = [&](NodeId to) {
      if (to != from && Silent(from, to) && seen.insert(to).second) closure.push_back(to);
    };
    for (const MessageId id : around.soup) add(graph_.Deliver(from, id));
    if (graph_.facts(from).over) continue;
    for (const int other : around.suspects)
      if (!graph_.facts(from).suspects.Contains(other)) add(graph_.Suspect(from, other));
  }
  return closure;
}

// The READYs of `from` arrive at all that have opened the round.
void Explorer::TakeReadys(State& state, int from) {
  const std::vector<MessageId> sent = graph_.sent(state[static_cast<size_t>(from)]);
  for (const MessageId id : sent) {
    const Wire& wire = graph_.wire(id);
    const auto* frame = std::get_if<Frame>(&wire.payload);
    if (frame == nullptr || !std::holds_alternative<Ready>(frame->body)) continue;
    NodeId& node = state[static_cast<size_t>(wire.to)];
    if (!Dead(state, wire.to) && !Unopened(state, wire.to)) node = graph_.Deliver(node, id);
  }
}

// The late member opens the round.
void Explorer::Open(State& state) {
  state.back() = 1;
  TakeReadys(state, options_.late_member);
}

// visit(state) for every state that one step leads to.
template <class Visit>
void Explorer::Steps(const State& state, Visit visit) {
  std::vector<std::pair<int, MessageId>> wire;
  Messages(state, Senders::kAll, [&](int to, MessageId id) { wire.emplace_back(to, id); });
  if (options_.fast_on_majority) Forge(state, wire);
  int dead = 0;
  for (int i = 0; i < options_.members; ++i) dead += Dead(state, i) ? 1 : 0;
  for (int i = 0; i < options_.members; ++i) {
    if (Dead(state, i)) continue;
    const auto at = static_cast<size_t>(i);
    if (Unopened(state, i) && (dead > 0 || !options_.late_until_death)) {
      State opened = state;
      Open(opened);
      ++report_.steps;
      visit(opened);
    }
    std::vector<NodeId> next;
    const auto go = [&](NodeId from, NodeId to) {
      if (to == from || (options_.lazy && Silent(from, to))) return;
      ++report_.steps;
      if (std::find(next.begin(), next.end(), to) == next.end()) next.push_back(to);
    };
    Around around = AroundOf(state, i);
    for (const auto& [to, id] : wire)
      if (to == i) around.soup.push_back(id);
    std::vector<NodeId> starts;
    if (!Unopened(state, i)) starts.push_back(state[at]);
    if (options_.lazy && !starts.empty()) starts = SilentClosure(state[at], around);
    const bool mortal = options_.victim < 0 || options_.victim == i;
    if (mortal && dead < options_.crashes) go(state[at], graph_.Bury(state[at]));
    for (const NodeId node : starts) {
      for (const MessageId id : around.soup) go(node, graph_.Deliver(node, id));
      if (graph_.facts(node).over) continue;
      for (const int other : around.suspects)
        if (!graph_.facts(node).suspects.Contains(other)) go(node, graph_.Suspect(node, other));
      if (options_.late && graph_.facts(node).ballot == 0) go(node, graph_.Late(node));
    }
    if (options_.lazy) KeepMin(next, around);
    for (const NodeId to : next) {
      State after = state;
      after[at] = to;
      // Only a new ballot can exceed the bound.
      if (graph_.facts(to).ballot != graph_.facts(state[at]).ballot && !WithinBallots(after))
        continue;
      int suspicions = 0;
      for (int k = 0; k < options_.members; ++k)
        suspicions += static_cast<int>(graph_.facts(after[static_cast<size_t>(k)]).suspects.size());
      if (suspicions <= options_.suspicions) visit(after);
    }
  }
}

// Drops the nodes that silent steps make of others among them: those steps can as well come later.
void Explorer::KeepMin(std::vector<NodeId>& nodes, const Around& around) {
  std::set<NodeId> dropped;
  const std::set<NodeId> among(nodes.begin(), nodes.end());
  for (const NodeId node : nodes) {
    if (dropped.count(node) > 0 || graph_.facts(node).dead) continue;
    for (const NodeId later : SilentClosure(node, around))
      if (later != node && among.count(later) > 0) dropped.insert(later);
  }
  std::erase_if(nodes, [&](NodeId node) { return dropped.count(node) > 0; });
}

// ---- healing ----------------------------------------------------------------------------------
// Delivers what is on the wire until nothing changes.
void Explorer::Settle(State& state, Senders senders) {
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<std::pair<int, MessageId>> soup;
    Messages(state, senders, [&](int to, MessageId id) { soup.emplace_back(to, id); });
    for (const auto& [to, id] : soup) {
      NodeId& node = state[static_cast<size_t>(to)];
      const NodeId next = graph_.Deliver(node, id);
      moved = moved || next != node;
      node = next;
    }
  }
}

// The state in which everybody has taken all it can without a visible step: what only the dead had
// sent is then at the living.
Explorer::State Explorer::Taken(State state) {
  for (bool moved = true; moved;) {
    moved = false;
    Messages(state, Senders::kAll, [&](int to, MessageId id) {
      NodeId& node = state[static_cast<size_t>(to)];
      const NodeId next = graph_.Deliver(node, id);
      if (next == node || !Silent(node, next)) return;
      node = next;
      moved = true;
    });
  }
  return state;
}

std::string Explorer::Heal(State state) {
  const State before = state;
  State live = state;
  uint64_t present = 0;
  for (int i = 0; i < options_.members; ++i) {
    if (Dead(state, i))
      live[static_cast<size_t>(i)] = kNobody;
    else
      present |= uint64_t{1} << i;
  }
  if (present == 0) return "";
  if (!IsQuorumOf(static_cast<size_t>(options_.members), present)) {
    ++report_.quorum_lost;
    return "";
  }
  if (const auto it = healed_.find(live); it != healed_.end() && !options_.witness_forgets) {
    ++(it->second == "orphan" ? report_.orphans : report_.healed);
    return "";
  }
  const int late = options_.late_member;
  if (late >= 0 && !Dead(state, late) && Unopened(state, late)) Open(state);
  for (int i = 0; i < options_.members; ++i) {
    if (Dead(state, i)) continue;
    for (int other = 0; other < options_.members; ++other) {
      NodeId& node = state[static_cast<size_t>(i)];
      if (other == i) continue;
      const bool suspected = graph_.facts(node).suspects.Contains(other);
      if (Dead(state, other) && !suspected) node = graph_.Suspect(node, other);
      if (!Dead(state, other) && suspected) node = graph_.Trust(node, other);
    }
  }
  const auto done = [&] {
    for (int i = 0; i < options_.members; ++i)
      if (!Dead(state, i) && !graph_.facts(state[static_cast<size_t>(i)]).over) return false;
    return true;
  };
  Settle(state, Senders::kLiving);
  for (int nudge = 0; nudge < kMaxNudges && !done(); ++nudge) {
    for (int i = 0; i < options_.members; ++i) {
      NodeId& node = state[static_cast<size_t>(i)];
      if (Dead(state, i) || graph_.facts(node).over) continue;
      node = graph_.Late(node);
      break;
    }
    Settle(state, Senders::kLiving);
  }
  if (options_.witness_forgets)
    Settle(state, Senders::kAll);  // what the dead had sent arrives late
  if (std::string bad = Check(state); !bad.empty()) return bad;
  bool all = true;
  for (int i = 0; i < options_.members; ++i)
    all = all && (Dead(state, i) || graph_.facts(state[static_cast<size_t>(i)]).applied);
  if (!all && !Orphaned(state))
    return absl::StrCat("L1 a live member is left without the result", Describe(before),
                        "\nhealed:", Describe(state));
  ++(all ? report_.healed : report_.orphans);
  healed_[live] = all ? "" : "orphan";
  return "";
}

// ---- search -----------------------------------------------------------------------------------
ModelReport Explorer::Explore() {
  State start;
  start.fill(kNobody);
  for (int i = 0; i < options_.members; ++i) start[static_cast<size_t>(i)] = graph_.Start(i);
  start.back() = 0;
  for (int i = 0; i < options_.members && !options_.ready; ++i)
    if (!Unopened(start, i)) TakeReadys(start, i);
  Visited visited(static_cast<size_t>(options_.members));
  std::vector<State> stack = {start};
  visited.Add(start);
  while (!stack.empty() && report_.violation.empty() && visited.count < options_.max_states) {
    const State state = stack.back();
    stack.pop_back();
    Steps(state, [&](const State& next) {
      if (!report_.violation.empty() || !visited.Add(next)) return;
      report_.violation = Check(next);
      if (report_.violation.empty()) report_.violation = Heal(next);
      if (report_.violation.empty() && options_.lazy) report_.violation = Heal(Taken(next));
      stack.push_back(next);
    });
  }
  report_.exhaustive = stack.empty() && report_.violation.empty();
  report_.states = visited.count;
  report_.nodes = graph_.nodes();
  report_.messages = graph_.messages();
  return report_;
}

}  // namespace crowdsurf::worker::testing
