// How long a round waits for members that have not opened it, and what it learns of that.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker_core/round/opened_round.h"

namespace crowdsurf::worker {
namespace {

TEST(RoundStartTest, WhoIsAbsentAtTheDeadlineIsSuspectedOnce) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  RoundPacer pacer(At(0), times);
  pacer.Observe(At(0), round);
  EXPECT_FALSE(Has(pacer.TakeDue(At(999), round), Due::Kind::kSuspect));
  const std::vector<Due> due = pacer.TakeDue(At(1000), round);
  const Due absent{Due::Kind::kSuspect, PeerAt(1), SuspicionCause::kAbsent};
  EXPECT_EQ(std::count(due.begin(), due.end(), absent), 1);
  for (const Due& d : due) Apply(d, round, out);
  pacer.Observe(At(1000), round);
  EXPECT_FALSE(Has(pacer.TakeDue(At(1001), round), Due::Kind::kSuspect));
}

// At one second the other one, which has not opened it, was found absent.
struct RoundWithoutTheOther : OpenedRound {
  explicit RoundWithoutTheOther(const RoundSpec& spec = PairSpec()) : OpenedRound(spec) {
    pacer.Observe(At(0), round);
    for (const Due& d : pacer.TakeDue(At(1000), round)) Apply(d, round, out);
    pacer.Observe(At(1000), round);
  }
  RoundPacer pacer{At(0), times};
};

// It is in an older view, say, and asks for the newer one. Ballots would wait for its STATUS, one
// after the other, until the round has had all of them.
TEST(RoundStartTest, WhoWasAbsentIsTrustedWhenItIsHeardInThisRound) {
  RoundWithoutTheOther opened;
  RoundPacer& pacer = opened.pacer;
  opened.times.OnHeard(At(1010), PeerAt(1));  // something else
  EXPECT_FALSE(Has(pacer.TakeDue(At(1010), opened.round), Due::Kind::kTrust));
  EXPECT_GT(pacer.NextDeadline(opened.round), At(1010)) << "and no deadline stands for it";
  opened.Hear(Beat{});
  opened.times.OnHeard(At(1020), PeerAt(1));
  EXPECT_TRUE(Has(pacer.TakeDue(At(1020), opened.round), Due::Kind::kTrust))
      << "its READY was lost";
}

// Its trainer hangs: its agent never opens the round, and answers ballots of it all the same.
TEST(RoundStartTest, WhoIsAbsentIsNotTrustedForWhatItSaysAsAWitness) {
  const std::vector<FrameBody> said = {Promise{3, 0, {}}, Accepted{3, {}}, Refused{3},
                                       Forgotten{3}};
  for (const FrameBody& body : said) {
    RoundWithoutTheOther opened;
    opened.Hear(body);
    opened.times.OnHeard(At(1010), PeerAt(1));
    EXPECT_FALSE(Has(opened.pacer.TakeDue(At(1010), opened.round), Due::Kind::kTrust))
        << body.index();
  }
}

// At one second it was over.
struct EndedRound : RoundWithoutTheOther {
  static RoundSpec Alone() {
    RoundSpec spec = PairSpec();
    spec.witnesses = {PeerAt(0)};
    return spec;
  }
  EndedRound() : RoundWithoutTheOther(Alone()) {
    round.OnFolded(ChunkIndex(0), 0, 7, out);
    pacer.Observe(At(1000), round);
  }
};

// Its steps are long. The round ends without it, and the next ones are to wait for it: deadlines
// that are learnt from rounds that everybody opened in time would leave it out for ever.
TEST(RoundStartTest, AMemberThatOpensAfterTheRoundHasEndedTellsHowLongToWait) {
  EndedRound ended;
  const RoundTimes& times = ended.times;
  const Round& round = ended.round;
  ASSERT_TRUE(round.over());
  EXPECT_EQ(times.StartDeadline(), Seconds(1)) << "nothing is learnt";
  ended.Hear(Promise{1, 0, {}});
  ended.pacer.Observe(At(1500), round);
  EXPECT_EQ(times.StartDeadline(), Seconds(1)) << "a witness's word";
  ended.HearReady();
  ended.pacer.Observe(At(1700), round);
  EXPECT_EQ(times.StartDeadline(), Milliseconds(1700));
  ended.pacer.Observe(At(1900), round);
  EXPECT_EQ(times.StartDeadline(), Milliseconds(1700)) << "once a round";
}

// It had hung. Nobody waits for a member longer than for the whole round.
TEST(RoundStartTest, NoMemberMakesTheStartDeadlineLongerThanARoundMayTake) {
  EndedRound ended;
  ASSERT_TRUE(ended.round.over());
  ended.HearReady();
  ended.pacer.Observe(At(60'000), ended.round);
  EXPECT_EQ(ended.times.StartDeadline(), Seconds(2)) << "a sit-out";
}

// The third one hangs, and opens no round. The second, of long steps, would be left out for ever.
TEST(RoundStartTest, OneThatNeverComesKeepsNobodyFromLearningOfTheOthers) {
  RoundSpec spec = PairSpec();
  spec.cells.push_back({PeerAt(2), {}});
  OpenedRound opened(spec);
  RoundPacer pacer(At(0), opened.times);
  pacer.Observe(At(0), opened.round);
  for (const Due& due : pacer.TakeDue(At(1000), opened.round)) Apply(due, opened.round, opened.out);
  pacer.Observe(At(1000), opened.round);
  EXPECT_EQ(opened.times.StartDeadline(), Seconds(1)) << "nothing is learnt";
  opened.Hear(Beat{1});
  pacer.Observe(At(1700), opened.round);
  EXPECT_EQ(opened.times.StartDeadline(), Milliseconds(1700));
}

// All others of its group are holes. That it opens the round with itself says nothing of members.
TEST(RoundStartTest, AMemberWithoutOthersLearnsNothingOfStarts) {
  RoundSpec spec = PairSpec();
  spec.cells[1] = {std::nullopt, {PeerAt(1)}};
  OpenedRound opened(spec);
  RoundPacer pacer(At(0), opened.times);
  pacer.Observe(At(0), opened.round);
  ASSERT_TRUE(opened.round.all_opened());
  EXPECT_EQ(opened.times.StartDeadline(), Seconds(1)) << "nothing is learnt";
}

// Members that are late in turn would else learn nothing each second time.
TEST(RoundStartTest, AMemberThatIsLateItselfLearnsWhatTheOthersWaitFor) {
  OpenedRound opened;
  RoundPacer pacer(At(1700), opened.times, 0, At(0));
  opened.HearReady();
  pacer.Observe(At(1710), opened.round);
  EXPECT_EQ(opened.times.StartDeadline(), Milliseconds(1710));
}

}  // namespace
}  // namespace crowdsurf::worker
