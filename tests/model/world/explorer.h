// Explorer: every interleaving of a small group of real Rounds (docs/round.md).
//
// Sent messages stay and may be taken late, in any order, several times, or never; any member may
// suspect any other at any moment; members crash at any step. Options choose who may do so, which
// makes larger groups small enough. In each state S1, S3 and S4 are
// checked (S2 holds by construction: what is applied is what is held), and the state is healed:
// crashes stop, suspicion becomes accurate, only live members' messages arrive, and all live
// members must finish alike (L1). States are compared exactly: one node of LocalGraph per member.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/model/world/local_graph.h"

namespace crowdsurf::worker::testing {

struct ModelOptions {
  int members = 3;  // 2..4; they are the witnesses
  int chunks = 1;
  int first_owner = 0;
  int owners = 0;       // members that own the chunks in turn, from the first on; 0: all
  uint32_t window = 0;  // 0: as wide as a round's least
  // Opens the round at any moment, or never: until then it takes nothing. Its READYs are with all
  // others when it opens; those to it come late, in any order. -1: nobody.
  int late_member = -1;
  bool late_until_death = false;  // it opens the round after a death only
  int ballots = 1;                // beside the healing ones
  int crashes = 2;
  int victim = -1;       // the only member that may die; -1: any may
  int suspicions = 6;    // in force at a time, true or false, all members together
  bool mistakes = true;  // false: only the dead and the late member are ever suspected
  bool late = false;     // a ballot may be opened without suspecting anybody
  bool ready = false;    // READYs are part of the exploration; else all have arrived
  // Steps that nobody else can see are taken only just before one that can be seen: the same
  // violations, far fewer states. false cross-checks it.
  bool lazy = true;
  bool apply_early = false;       // planted
  bool fast_on_majority = false;  // planted
  bool witness_forgets = false;   // planted
  uint64_t max_states = 100'000'000;
};

struct ModelReport {
  std::string violation;  // empty: none
  bool exhaustive = false;
  uint64_t states = 0, steps = 0, healed = 0, orphans = 0, quorum_lost = 0;
  size_t nodes = 0, messages = 0;
};

class Explorer {
 public:
  explicit Explorer(ModelOptions options);
  ModelReport Explore();

 private:
  static constexpr size_t kMax = 4;
  // A node a member, dead members' are buried; and last whether the late member has opened.
  using State = std::array<NodeId, kMax + 1>;
  struct Visited {  // exact, open addressing
    explicit Visited(size_t members);
    bool Add(const State& state);
    size_t members;
    size_t count = 0;
    std::vector<State> table;
  };

  enum class Senders : uint8_t { kAll, kLiving };
  bool Dead(const State& s, int i) const { return graph_.facts(s[static_cast<size_t>(i)]).dead; }
  // It is late, and has not opened the round.
  bool Unopened(const State& s, int i) const { return i == options_.late_member && s.back() == 0; }
  void TakeReadys(State& state, int from);
  void Open(State& state);
  template <class Visit>
  void Steps(const State& state, Visit visit);
  template <class Visit>
  void Messages(const State& state, Senders senders, Visit visit) const;
  void Forge(const State& state, std::vector<std::pair<int, MessageId>>& soup);
  bool Silent(NodeId from, NodeId to) const;
  // What may happen to `member` in a state, whatever it is itself: what is on the wire for it, and
  // whom it may take for dead.
  struct Around {
    int member;
    std::vector<MessageId> soup = {};
    std::vector<int> suspects = {};
  };
  Around AroundOf(const State& state, int member) const;
  std::vector<NodeId> SilentClosure(NodeId node, const Around& around);
  void KeepMin(std::vector<NodeId>& nodes, const Around& around);
  State Taken(State state);
  bool WithinBallots(const State& state) const;
  std::string Check(const State& state) const;
  std::string CheckDecided(const State& state, const HeldValue& held) const;
  std::string Heal(State state);
  void Settle(State& state, Senders senders);
  std::string Describe(const State& state) const;
  bool Orphaned(const State& state) const;

  ModelOptions options_;
  LocalGraph graph_;
  ModelReport report_;
  std::map<State, std::string> healed_;  // by the live nodes
};

}  // namespace crowdsurf::worker::testing
