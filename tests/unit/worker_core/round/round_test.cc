// Three real Rounds, frame by frame: what docs/round.md promises of the fast path, of deaths, and
// of what comes late. tests/model explores every order.
#include "worker/core/round/round.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "tests/unit/worker_core/round/round_group.h"

namespace crowdsurf::worker {
namespace {

using Group = RoundGroup;

TEST(RoundTest, WithoutFaultsAllApplyOnTheFastPathWithTheGroupsWeight) {
  Group group;
  group.StartAll();
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) {
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
  for (int i = 0; i < kRoundMembers; ++i) {
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
    for (int i = 0; i < kRoundMembers; ++i) {
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
  Round round(SpecOf(0));
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
  RoundSpec spec = SpecOf(0, 1);
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

}  // namespace
}  // namespace crowdsurf::worker
