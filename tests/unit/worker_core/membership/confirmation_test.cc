// When a view that others name is confirmed: the rules of docs/views.md (Confirming), vote by vote.
#include "worker/core/membership/confirmation.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

using Kind = message::ViewVote::Kind;
using Rule = Confirmation::Rule;
using Verdict = Confirmation::Verdict;

const ViewHash kNamed = [] {
  std::array<uint8_t, ViewHash::kBytes> bytes{};
  bytes[0] = 7;
  return ViewHash(bytes);
}();

std::vector<PeerId> Peers(uint8_t count) {
  std::vector<PeerId> peers;
  for (uint8_t n = 1; n <= count; ++n) peers.push_back(Id(n));
  return peers;
}

struct Case {
  explicit Case(Rule rule, uint8_t voters, const PeerId& steward = PeerId())
      : confirmation(rule, ViewHash(), kNamed, Peers(voters), steward) {}
  void Vote(uint8_t from, Kind kind, Ballot ballot = 0) {
    confirmation.OnVote(Id(from), {kNamed, kind, ballot});
  }
  Confirmation::Company company() const {
    return {.down = down,
            .counts = [this](const PeerId& id) { return !unknown.contains(id); },
            .least = least};
  }
  Verdict Judge() const { return confirmation.Judge(now, company()); }
  size_t Ask() {
    Actions out;
    confirmation.OnTimer(now, Id(99), company(), out);
    return out.size();
  }
  void AskToTheEnd() {
    for (uint32_t i = 0; i < Confirmation::kMaxAsks; ++i) {
      Ask();
      now = confirmation.NextDeadline();
    }
  }
  Confirmation confirmation;
  std::set<PeerId> down;
  std::set<PeerId> unknown;  // in no view that the asking member knew
  size_t least = 2;
  Time now = Time::FromNanoseconds(1'000'000'000);
};

TEST(ConfirmationTest, AQuorumThatAcceptedAtOneBallotConfirms) {
  Case c(Rule::kQuorum, 5);
  c.Vote(1, Kind::kAccepted, 3);
  c.Vote(2, Kind::kAccepted, 3);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  c.Vote(3, Kind::kAccepted, 3);
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
}

// It was decided by more witnesses than are left, and those that were told of it died.
TEST(ConfirmationTest, WhereNoQuorumSaysEitherTheStewardIsEnough) {
  Case c(Rule::kTwoMembers, 5, Id(1));
  c.Vote(2, Kind::kAccepted, 3);
  c.Vote(3, Kind::kUnknown);
  c.Vote(1, Kind::kHeld);
  EXPECT_EQ(c.Judge(), Verdict::kOpen) << "it does not say that it is decided";
  c.Vote(1, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
}

TEST(ConfirmationTest, WhereNoQuorumSaysEitherNoOtherMemberIsEnough) {
  Case c(Rule::kTwoMembers, 5, Id(1));
  c.Vote(4, Kind::kDecided);
  c.Vote(2, Kind::kAccepted, 3);
  c.Vote(1, Kind::kUnknown);
  c.AskToTheEnd();
  EXPECT_EQ(c.Judge(), Verdict::kRefuted);
}

TEST(ConfirmationTest, AQuorumThatIsAskedCountsTheStewardOnce) {
  Case c(Rule::kQuorum, 5, Id(1));
  c.Vote(1, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
}

TEST(ConfirmationTest, AcceptedAtTwoBallotsConfirmsNothing) {
  Case c(Rule::kQuorum, 5);
  c.Vote(1, Kind::kAccepted, 3);
  c.Vote(2, Kind::kAccepted, 3);
  c.Vote(3, Kind::kAccepted, 19);
  c.Vote(4, Kind::kAccepted, 19);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  c.Vote(5, Kind::kDecided);  // counts with either
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
}

TEST(ConfirmationTest, OnlyVotersCountAndEachOnce) {
  Case c(Rule::kQuorum, 3);
  c.Vote(1, Kind::kDecided);
  c.Vote(1, Kind::kDecided);
  c.Vote(9, Kind::kDecided);
  c.confirmation.OnVote(Id(2), {ViewHash(), Kind::kDecided, 0});  // of another view
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
}

TEST(ConfirmationTest, AQuorumThatKnowsNothingRefutes) {
  Case c(Rule::kQuorum, 5);
  for (uint8_t n = 1; n <= 3; ++n) c.Vote(n, Kind::kUnknown);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);  // they may hear of it yet
  c.AskToTheEnd();
  EXPECT_EQ(c.Judge(), Verdict::kRefuted);
}

TEST(ConfirmationTest, WithoutAQuorumItIsSilent) {
  Case c(Rule::kQuorum, 5);
  c.Vote(1, Kind::kDecided);
  c.AskToTheEnd();
  EXPECT_EQ(c.Judge(), Verdict::kSilent);
  Case dead(Rule::kQuorum, 5);
  dead.down = {Id(2), Id(3), Id(4)};
  EXPECT_EQ(dead.Judge(), Verdict::kSilent);  // at once: asking is in vain
}

// Three of seven are dead, the others but one went on: the one left behind is no proof against it.
TEST(ConfirmationTest, WhoAnswersThatItKnowsTheViewDoesNotRefuteIt) {
  Case c(Rule::kQuorum, 7);
  c.Vote(1, Kind::kUnknown);
  for (uint8_t n = 2; n <= 4; ++n) c.Vote(n, Kind::kDecided);
  c.AskToTheEnd();
  EXPECT_EQ(c.Judge(), Verdict::kSilent);
}

TEST(ConfirmationTest, AnotherLineageNeedsTwoOfItsMembersThatAreInIt) {
  Case c(Rule::kTwoMembers, 5);
  c.Vote(1, Kind::kDecided);
  c.Vote(2, Kind::kHeld);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  c.Vote(2, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
  Case newcomer(Rule::kNewcomer, 5);
  newcomer.Vote(1, Kind::kDecided);
  newcomer.Vote(2, Kind::kHeld);
  EXPECT_EQ(newcomer.Judge(), Verdict::kConfirmed);
}

// Whoever names a view writes the names in it.
TEST(ConfirmationTest, AVoterThatSitsInNoKnownViewIsNeitherHeardNorAsked) {
  Case c(Rule::kTwoMembers, 5, Id(3));
  c.unknown = {Id(2), Id(3), Id(4)};
  for (uint8_t n = 1; n <= 4; ++n) c.Vote(n, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  EXPECT_EQ(c.Ask(), 1U);  // the fifth: the first is sure
  c.unknown.erase(Id(4));
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
  c.unknown = {Id(1), Id(2), Id(3), Id(4), Id(5)};
  EXPECT_EQ(c.Judge(), Verdict::kSilent);
  Case quorum(Rule::kQuorum, 3);  // of the view that is held: all are known
  quorum.unknown = {Id(1), Id(2)};
  quorum.Vote(1, Kind::kDecided);
  quorum.Vote(2, Kind::kDecided);
  EXPECT_EQ(quorum.Judge(), Verdict::kConfirmed);
}

TEST(ConfirmationTest, AVoteThatIsWithdrawnWasNeverGiven) {
  Case c(Rule::kTwoMembers, 5);
  c.Vote(1, Kind::kDecided);
  c.confirmation.Withdraw(Id(1));
  c.Vote(2, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  c.Vote(3, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
}

TEST(ConfirmationTest, OneIsEnoughWhereNoOtherCouldKnow) {
  Case c(Rule::kTwoMembers, 1);
  c.least = 1;
  EXPECT_EQ(c.Judge(), Verdict::kOpen);
  c.Vote(1, Kind::kDecided);
  EXPECT_EQ(c.Judge(), Verdict::kConfirmed);
  Case nobody(Rule::kTwoMembers, 0);
  nobody.least = 1;
  nobody.Vote(1, Kind::kDecided);
  EXPECT_NE(nobody.Judge(), Verdict::kConfirmed);
}

TEST(ConfirmationTest, AsksAreBoundedAndSpareWhoIsDownOrSure) {
  Case c(Rule::kQuorum, 5);
  c.down = {Id(5)};
  EXPECT_EQ(c.Ask(), 4U);
  EXPECT_EQ(c.Ask(), 0U);  // not before its time
  c.Vote(1, Kind::kDecided);
  c.now = c.confirmation.NextDeadline();
  EXPECT_EQ(c.Ask(), 3U);
  size_t asked = 0;
  for (int i = 0; i < 100; ++i) {
    c.now = c.now + Seconds(1);
    asked += c.Ask();
  }
  EXPECT_EQ(asked, 3U * (Confirmation::kMaxAsks - 2));
  Case many(Rule::kTwoMembers, 60);
  EXPECT_EQ(many.Ask(), Confirmation::kAskedAtOnce);
}

}  // namespace
}  // namespace crowdsurf::worker
