#include "worker/core/round/round.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

constexpr int kMembers = 3;

RoundSpec Spec(int self, int chunks = 3) {
  RoundSpec spec;
  spec.self = self;
  for (int rank = 0; rank < kMembers; ++rank) {
    spec.cells.push_back({PeerAt(static_cast<size_t>(rank)), {}});
    spec.witnesses.push_back(PeerAt(static_cast<size_t>(rank)));
  }
  for (int c = 0; c < chunks; ++c)
    spec.chunks.push_back({static_cast<uint16_t>(c % kMembers), static_cast<uint64_t>(c), 1});
  spec.stake.weight = self + 1;
  return spec;
}

// A group whose messages wait until the test delivers them; a result's hash is 100 + chunk.
struct Group {
  struct Sent {
    int from;
    RoundAction action;
  };
  std::vector<Round> rounds;
  std::vector<Sent> wire;
  std::vector<RoundActions> done;
  std::set<int> dead;

  explicit Group(std::function<void(RoundSpec&)> change = nullptr, int chunks = 3) {
    for (int i = 0; i < kMembers; ++i) {
      RoundSpec spec = Spec(i, chunks);
      if (change) change(spec);
      rounds.emplace_back(spec);
      done.emplace_back();
    }
  }
  Round& at(int i) { return rounds[static_cast<size_t>(i)]; }
  void Take(int self, const RoundActions& actions) {
    for (const RoundAction& action : actions) {
      done[static_cast<size_t>(self)].push_back(action);
      if (const auto* fold = std::get_if<FoldChunk>(&action)) {
        RoundActions out;
        at(self).OnFolded(fold->chunk, fold->assigned, 100 + fold->chunk.value(), out);
        Take(self, out);
      } else {
        wire.push_back({self, action});
      }
    }
  }
  template <class Call>
  void Do(int self, Call call) {
    RoundActions out;
    call(at(self), out);
    Take(self, out);
  }
  void StartAll() {
    for (int i = 0; i < kMembers; ++i) Do(i, [](Round& r, RoundActions& out) { r.Start(out); });
  }
  void Suspect(int observer, int whom) {
    Do(observer, [&](Round& r, RoundActions& out) {
      r.OnSuspect(PeerAt(static_cast<size_t>(whom)), SuspicionCause::kReset, out);
    });
  }
  bool Deliver(const Sent& sent, const std::function<bool(const RoundAction&)>& pass) {
    const PeerId from = PeerAt(static_cast<size_t>(sent.from));
    PeerId to;
    if (const auto* a = std::get_if<SendFrame>(&sent.action))
      to = a->to;
    else if (const auto* b = std::get_if<SendInput>(&sent.action))
      to = b->to;
    else if (const auto* c = std::get_if<SendResult>(&sent.action))
      to = c->to;
    else
      return true;
    const int self = to.bytes()[0] - 1;
    if (dead.count(self) > 0) return true;
    if (pass && !pass(sent.action)) return false;
    Do(self, [&](Round& r, RoundActions& out) {
      if (const auto* frame = std::get_if<SendFrame>(&sent.action)) {
        r.OnFrame(from, frame->frame, out);
      } else if (const auto* input = std::get_if<SendInput>(&sent.action)) {
        r.OnInput(from, sent.from, input->chunk, input->assigned, out);
      } else {
        const auto& result = std::get<SendResult>(sent.action);
        r.OnResult(from, result.chunk, {result.assigned, result.mask, result.hash}, out);
      }
    });
    return true;
  }
  // Delivers all that `pass` lets through, in order, until nothing moves.
  void Settle(const std::function<bool(const RoundAction&)>& pass = nullptr) {
    for (bool moved = true; moved;) {
      moved = false;
      std::vector<Sent> now;
      now.swap(wire);
      for (const Sent& sent : now) {
        if (Deliver(sent, pass))
          moved = true;
        else
          wire.push_back(sent);
      }
    }
  }
  template <class T>
  size_t Count(int self) const {
    size_t count = 0;
    for (const RoundAction& action : done[static_cast<size_t>(self)])
      count += std::holds_alternative<T>(action) ? 1 : 0;
    return count;
  }
};

template <class Body>
bool Is(const RoundAction& action) {
  const auto* send = std::get_if<SendFrame>(&action);
  return send != nullptr && std::holds_alternative<Body>(send->frame.body);
}

TEST(RoundTest, WithoutFaultsAllApplyOnTheFastPathWithTheGroupsWeight) {
  Group group;
  group.StartAll();
  group.Settle();
  for (int i = 0; i < kMembers; ++i) {
    ASSERT_TRUE(group.at(i).over());
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kFast);
    EXPECT_EQ(group.at(i).outcome()->stake.weight, 6);
    EXPECT_EQ(group.at(i).outcome()->contributors, RankSet::FromBits(7));
    EXPECT_EQ(group.at(i).outcome()->root, group.at(0).outcome()->root);
    EXPECT_EQ(group.at(i).ballot(), 0);
    EXPECT_EQ(group.Count<FoldChunk>(i), 1U);
    EXPECT_EQ(group.Count<RoundOver>(i), 1U);
  }
}

TEST(RoundTest, NobodyAppliesBeforeEverybodySaidHave) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) { return !Is<Have>(action); });
  for (int i = 0; i < kMembers; ++i) {
    EXPECT_FALSE(group.at(i).over());
    EXPECT_EQ(group.at(i).phase(), Round::Phase::kHeld);
  }
}

TEST(RoundTest, AnOwnerThatDiesIsReplacedInTheSameRound) {
  Group group;
  group.StartAll();
  group.dead = {2};
  // Rank 2 sent its inputs, and no result.
  group.wire.erase(std::remove_if(group.wire.begin(), group.wire.end(),
                                  [](const Group::Sent& s) {
                                    return s.from == 2 &&
                                           std::holds_alternative<SendResult>(s.action);
                                  }),
                   group.wire.end());
  group.Settle();
  group.Suspect(0, 2);
  group.Suspect(1, 2);
  group.Settle();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(group.at(i).over());
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kRepaired);
    EXPECT_EQ(group.at(i).outcome()->members, RankSet::FromBits(3));
    EXPECT_EQ(group.at(i).outcome()->root, group.at(0).outcome()->root);
    EXPECT_EQ(group.at(i).counts().chunks_reduced_again, 1U);
  }
}

TEST(RoundTest, AStatusClosesTheFastPath) {
  Group group;
  group.StartAll();
  group.Settle(
      [](const RoundAction& action) { return !std::holds_alternative<SendResult>(action); });
  group.Suspect(1, 2);  // unasked STATUS: HAVE(0) is never sent by rank 1
  group.Settle([](const RoundAction& action) { return !Is<StatusFrame>(action); });
  for (const RoundAction& action : group.done[1]) EXPECT_FALSE(Is<Have>(action));
  EXPECT_EQ(group.at(1).ballot(), 1);
}

TEST(RoundTest, AMemberThatWasWronglyLeftOutAdoptsTheDecision) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) {
    return Is<Ready>(action) || std::holds_alternative<SendInput>(action);
  });
  group.Suspect(0, 2);
  group.Suspect(1, 2);
  const auto not_to_two = [](const RoundAction& action) {
    const auto* send = std::get_if<SendFrame>(&action);
    return send == nullptr || send->to != PeerAt(2);
  };
  group.wire.erase(std::remove_if(group.wire.begin(), group.wire.end(),
                                  [](const Group::Sent& s) { return s.from == 2; }),
                   group.wire.end());
  group.Settle(not_to_two);
  ASSERT_TRUE(group.at(0).over());
  ASSERT_FALSE(group.at(2).over());
  group.Settle();
  ASSERT_TRUE(group.at(2).over());
  EXPECT_EQ(group.at(2).outcome()->outcome, Outcome::kAdopted);
  EXPECT_EQ(group.at(2).outcome()->root, group.at(0).outcome()->root);
}

// Rank 1 takes rank 2 for dead, folds its chunk without it and answers a ballot before that fold is
// known; then rank 2 is heard. Nobody may have to wait for a deadline, and here is none.
TEST(RoundTest, AResultWithheldFromASuspectIsGivenOnceItIsTrusted) {
  for (const bool trusted_by_the_plan : {true, false}) {
    Group group;
    group.StartAll();
    group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
    std::erase_if(group.wire, [](const Group::Sent& sent) {
      const auto* input = std::get_if<SendInput>(&sent.action);
      return sent.from == 2 && input != nullptr && input->to == PeerAt(1);
    });
    const auto but_results = [](const RoundAction& action) {
      return !std::holds_alternative<SendResult>(action);
    };
    const auto trust = [](Round& r, RoundActions& out) { r.OnTrusted(PeerAt(2), out); };
    group.Settle(but_results);
    group.Suspect(1, 2);
    if (trusted_by_the_plan) group.Do(1, trust);
    group.Settle(but_results);
    if (!trusted_by_the_plan) group.Do(1, trust);
    group.Settle();
    for (int i = 0; i < kMembers; ++i) {
      ASSERT_TRUE(group.at(i).over()) << i << " trusted by the plan " << trusted_by_the_plan;
      EXPECT_EQ(group.at(i).outcome()->root, group.at(0).outcome()->root);
      EXPECT_EQ(group.at(i).outcome()->members, RankSet::FromBits(7));
    }
  }
}

TEST(RoundTest, ALateResultOfASupersededAssignmentIsRefused) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) {
    return Is<Ready>(action) || std::holds_alternative<SendInput>(action);
  });
  group.dead = {2};
  std::vector<Group::Sent> late;
  std::erase_if(group.wire, [&](const Group::Sent& s) {
    if (s.from == 2) late.push_back(s);
    return s.from == 2;
  });
  group.Suspect(0, 2);
  group.Suspect(1, 2);
  group.Settle([](const RoundAction& action) { return !Is<Have>(action); });
  group.Do(0, [](Round& r, RoundActions& out) {
    r.OnResult(PeerAt(2), ChunkIndex(2), {0, RankSet::FirstRanks(3), 102}, out);
    EXPECT_TRUE(out.empty());
  });
  EXPECT_EQ(group.at(0).counts().refused.at(FrameRefusal::kResultTwice) +
                group.at(0).counts().refused.count(FrameRefusal::kResultSuperseded),
            1U);
}

TEST(RoundTest, BadInputLeavesTheSenderOutOfThatChunk) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
  group.Do(0,
           [](Round& r, RoundActions& out) { r.OnBadInput(PeerAt(1), 1, ChunkIndex(0), 0, out); });
  group.Settle();
  ASSERT_TRUE(group.at(0).over());
  EXPECT_EQ(group.at(0).counts().bad_inputs, 1U);
  bool seen = false;
  for (const RoundAction& action : group.done[0])
    if (const auto* fold = std::get_if<FoldChunk>(&action)) {
      EXPECT_EQ(fold->mask, RankSet::FromBits(0b101));
      EXPECT_EQ(fold->weights, (std::vector<double>{1, 0, 3}));
      seen = true;
    }
  EXPECT_TRUE(seen);
}

TEST(RoundTest, AMemberWithAnotherSchemaIsDroppedFromTheRound) {
  Group group([](RoundSpec& spec) {
    if (spec.self == 2) spec.schema = Sha256(AsBytes("other"));
  });
  group.StartAll();
  group.Settle();
  EXPECT_EQ(group.at(0).counts().refused.at(FrameRefusal::kReadyUnfit), 1U);
  ASSERT_TRUE(group.at(0).over());
  ASSERT_TRUE(group.at(1).over());
  EXPECT_EQ(group.at(0).outcome()->members, RankSet::FromBits(3));
}

TEST(RoundTest, FramesOfAnotherInstanceChangeNothingButACounter) {
  Round round(Spec(0));
  const uint64_t before = round.Fingerprint();
  RoundActions out;
  Frame frame{*InstanceId::From(Sha256(AsBytes("x")).view().first(16)), Have{0, Digest()}};
  round.OnFrame(PeerAt(1), frame, out);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(round.Fingerprint(), before);
  EXPECT_EQ(round.counts().refused.at(FrameRefusal::kInstance), 1U);
}

TEST(RoundTest, SittingOutSaysByeAndNeverAppliesAfterwards) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) { return !Is<Have>(action); });
  group.Do(2, [](Round& r, RoundActions& out) { r.OnSitOut(out); });
  EXPECT_EQ(group.at(2).outcome()->outcome, Outcome::kKept);
  group.Settle();
  EXPECT_EQ(group.Count<RoundOver>(2), 1U);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Applied(group.at(i).outcome()->outcome));
}

TEST(RoundTest, AMemberAloneFinishesWithWhatItHas) {
  RoundSpec spec = Spec(0, 1);
  spec.cells.resize(1);
  spec.witnesses.resize(1);
  Round round(spec);
  RoundActions out;
  round.Start(out);
  ASSERT_EQ(out.size(), 1U);
  out.clear();
  round.OnFolded(ChunkIndex(0), 0, 5, out);
  ASSERT_TRUE(round.over());
  EXPECT_EQ(round.outcome()->outcome, Outcome::kFast);
}

TEST(RoundTest, InputsAreSentAWindowAheadOfTheResults) {
  Group group([](RoundSpec& spec) { spec.window_chunks = 2; }, 30);
  group.StartAll();
  group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
  EXPECT_EQ(group.Count<SendInput>(0), 4U);  // two for each other owner
  group.Settle();
  EXPECT_EQ(group.Count<SendInput>(0), 20U);
  EXPECT_TRUE(group.at(0).over());
}

TEST(RoundTest, ALostWitnessQuorumEndsInABranchOfThoseWhoAreLeft) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
  group.dead = {1, 2};
  group.wire.clear();
  group.Suspect(0, 1);
  group.Suspect(0, 2);
  group.Settle();
  EXPECT_FALSE(group.at(0).over());
  EXPECT_TRUE(group.at(0).witness_quorum_lost());
  group.Do(0, [](Round& r, RoundActions& out) { r.OnQuorumLost(out); });
  group.Settle();
  ASSERT_TRUE(group.at(0).over());
  EXPECT_EQ(group.Count<BranchFormed>(0), 1U);
  EXPECT_EQ(group.at(0).outcome()->members, RankSet::FromBits(1));
  EXPECT_NE(group.at(0).branch(), 0);
}

// ---- where ballots end ------------------------------------------------------------------------
void HearOpen(Group& group, int self, Ballot ballot) {
  BallotOpen open;
  open.ballot = ballot;
  group.Do(self, [&](Round& r, RoundActions& out) {
    const auto from = static_cast<size_t>((ballot - 1) % kMembers);
    r.OnFrame(PeerAt(from), {InstanceId(), open}, out);
  });
}

void HearRefused(Group& group, int self, Ballot promised) {
  group.Do(self, [&](Round& r, RoundActions& out) {
    r.OnFrame(PeerAt(1), {InstanceId(), Refused{promised}}, out);
  });
}

void BeLate(Group& group, int self) {
  group.Do(self, [](Round& r, RoundActions& out) { r.OnCoordinatorLate(out); });
}

// Those who missed one of them go on, and would leave it behind.
TEST(RoundTest, WhoAnswersEveryBallotOfADuelDoesNotGiveUpAlone) {
  Group group;
  group.StartAll();
  const int last = kMaxBallots * kMembers;
  for (int ballot = 2; ballot <= last; ++ballot) {
    if (ballot % kMembers == 1) continue;  // its own: members 1 and 2 overtake each other
    HearOpen(group, 0, static_cast<Ballot>(ballot));
    ASSERT_FALSE(group.at(0).over()) << "at ballot " << ballot;
  }
  EXPECT_EQ(group.at(0).ballot(), last);
  HearOpen(group, 0, static_cast<Ballot>(last + 2));
  EXPECT_EQ(group.at(0).ballot(), last) << "there is no such ballot";
}

TEST(RoundTest, WhoHasNoBallotLeftAsksForTheDecisionAndAdoptsIt) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) {
    const auto* send = std::get_if<SendFrame>(&action);
    return send == nullptr || send->to != PeerAt(0) ||
           !std::holds_alternative<Have>(send->frame.body);
  });
  ASSERT_TRUE(group.at(1).over() && group.at(2).over());
  group.wire.clear();  // what they had to say to it is lost
  HearRefused(group, 0, kMaxBallots * kMembers);
  BeLate(group, 0);
  ASSERT_FALSE(group.at(0).over());
  group.Settle();
  ASSERT_TRUE(group.at(0).over());
  EXPECT_TRUE(Applied(group.at(0).outcome()->outcome));
  EXPECT_EQ(group.at(0).outcome()->root, group.at(1).outcome()->root);
}

TEST(RoundTest, TheLastBallotsDecideThatAllGiveUp) {
  const auto ends = [](int promised) {
    Group group;
    group.StartAll();
    group.wire.clear();
    HearRefused(group, 0, static_cast<Ballot>(promised));
    BeLate(group, 0);
    group.Settle();
    std::set<Outcome> outcomes;
    for (int i = 0; i < kMembers; ++i)
      if (group.at(i).over()) outcomes.insert(group.at(i).outcome()->outcome);
    EXPECT_EQ(group.at(0).ballot(), promised + 1);
    return outcomes;
  };
  const int free = (kMaxBallots - kAbortBallots) * kMembers;
  EXPECT_EQ(ends(free), std::set<Outcome>{Outcome::kAborted});
  EXPECT_EQ(ends(free - kMembers).count(Outcome::kAborted), 0U);
}

TEST(RoundTest, AWitnessOfTheRoundAnswersBothRolesFromOneBallot) {
  RoundSpec spec = Spec(1);
  spec.promised.promised = 4;  // as a witness, before the round was opened
  Round round(spec);
  RoundActions out;
  round.Start(out);
  out.clear();
  round.OnFrame(PeerAt(0), {spec.instance, BallotOpen{1, false, 0, {}}}, out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_TRUE(Is<Refused>(out[0]));
  EXPECT_EQ(round.Promised().promised, 4);
}

}  // namespace
}  // namespace crowdsurf::worker
