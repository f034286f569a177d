// Round where ballots end: lost quorums, duels, unsound plans, and members without a ballot left.
#include "worker/core/round/round.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker_core/round/round_group.h"

namespace crowdsurf::worker {
namespace {

using Group = RoundGroup;

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

// The explorer of tests/model takes two states with one fingerprint for one.
TEST(RoundTest, WhichWitnessesHavePromisedIsPartOfTheFingerprint) {
  constexpr size_t kOutside = 7;  // no member, so that its promise comes without a STATUS
  Group group([&](RoundSpec& spec) { spec.witnesses.push_back(PeerAt(kOutside)); });
  group.StartAll();
  group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
  group.Suspect(0, 1);
  const Ballot ballot = group.at(0).ballot();
  ASSERT_GT(ballot, 0);
  const uint64_t before = group.at(0).Fingerprint();
  group.Do(0, [&](Round& r, RoundActions& out) {
    r.OnFrame(PeerAt(kOutside), {InstanceId(), Promise{ballot, 0, {}}}, out);
  });
  EXPECT_NE(group.at(0).Fingerprint(), before);
}

void HearOpen(Group& group, int self, Ballot ballot) {
  BallotOpen open;
  open.ballot = ballot;
  group.Do(self, [&](Round& r, RoundActions& out) {
    const auto from = static_cast<size_t>((ballot - 1) % kRoundMembers);
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
  const int last = kMaxBallots * kRoundMembers;
  for (int ballot = 2; ballot <= last; ++ballot) {
    if (ballot % kRoundMembers == 1) continue;  // its own: members 1 and 2 overtake each other
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
  HearRefused(group, 0, kMaxBallots * kRoundMembers);
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
    for (int i = 0; i < kRoundMembers; ++i)
      if (group.at(i).over()) outcomes.insert(group.at(i).outcome()->outcome);
    EXPECT_EQ(group.at(0).ballot(), promised + 1);
    return outcomes;
  };
  const int free = (kMaxBallots - kAbortBallots) * kRoundMembers;
  EXPECT_EQ(ends(free), std::set<Outcome>{Outcome::kAborted});
  EXPECT_EQ(ends(free - kRoundMembers).count(Outcome::kAborted), 0U);
}

TEST(RoundTest, AWitnessOfTheRoundAnswersBothRolesFromOneBallot) {
  RoundSpec spec = SpecOf(1);
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

TEST(RoundTest, AQuorumIsNotLostWhileMostWitnessesAreTrusted) {
  Group group;
  group.StartAll();
  group.Settle([](const RoundAction& action) { return Is<Ready>(action); });
  group.dead = {1, 2};
  group.wire.clear();
  group.Suspect(0, 2);
  EXPECT_EQ(group.at(0).phase(), Round::Phase::kBallot);
  EXPECT_FALSE(group.at(0).witness_quorum_lost()) << "rank 1 may answer yet";
  group.Suspect(0, 1);
  EXPECT_TRUE(group.at(0).witness_quorum_lost());
}

TEST(RoundTest, APlanWithAChunkTooFewOrWithoutItsReaderIsRefused) {
  for (const bool of_others : {false, true}) {
    Group group;
    group.StartAll();
    group.Settle([](const RoundAction& action) {
      return Is<Ready>(action) || std::holds_alternative<SendInput>(action);
    });
    group.dead = {2};
    std::erase_if(group.wire, [](const Group::Sent& sent) { return sent.from == 2; });
    group.Suspect(0, 2);
    group.Suspect(1, 2);
    group.Settle([](const RoundAction& action) { return !Is<Plan>(action); });
    const auto sent = std::find_if(group.wire.begin(), group.wire.end(), [](const auto& waiting) {
      return Is<Plan>(waiting.action) && std::get<SendFrame>(waiting.action).to == PeerAt(1);
    });
    ASSERT_NE(sent, group.wire.end());
    Frame frame = std::get<SendFrame>(sent->action).frame;
    Plan& plan = std::get<Plan>(frame.body);
    if (of_others)
      plan.members.Erase(1);
    else
      plan.chunks.pop_back();
    RoundActions out;
    group.at(1).OnFrame(PeerAt(0), frame, out);
    EXPECT_TRUE(out.empty());
    EXPECT_EQ(group.at(1).counts().refused.at(FrameRefusal::kPlanUnsound), 1U) << of_others;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
