// The clock of a round: the deadlines of docs/round.md by hand.
#include "worker/core/round/round_pacer.h"
#include "worker/core/round/round.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker_core/round/awake_process.h"
#include "tests/unit/worker_core/round/opened_round.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

// It did not run for 300 ms. What the other said meanwhile may lie in any queue before it.
TEST(RoundPacerTest, AStallOfItsOwnMakesNobodySilent) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  opened.HearOften(PeerAt(1));
  RoundPacer pacer(At(20), times);
  opened.HearReady();
  pacer.Observe(At(20), round);
  EXPECT_FALSE(Has(pacer.TakeDue(At(320), round), Due::Kind::kSuspect));
  for (const int beat : {345, 369})
    EXPECT_FALSE(Has(pacer.TakeDue(At(beat), round), Due::Kind::kSuspect)) << beat;
  EXPECT_TRUE(Has(pacer.TakeDue(At(371), round), Due::Kind::kSuspect)) << "it is silent now";
}

// Processors are short: the beats of others come as late.
TEST(RoundPacerTest, TheLeastSilenceGrowsByWhatOwnBeatsComeLateBy) {
  OpenedRound opened;
  opened.HearOften(PeerAt(1));
  RoundPacer pacer(At(0), opened.times);
  EXPECT_EQ(opened.times.Silence(PeerAt(1)), Milliseconds(50));
  // Its beat is due 25 ms after the one before.
  int64_t now = 0;
  for (int beat = 0; beat < 9; ++beat) {
    now += 45;
    opened.times.OnHeard(At(now - 22), PeerAt(1));
    opened.times.OnHeard(At(now), PeerAt(1));
    EXPECT_TRUE(Has(pacer.TakeDue(At(now), opened.round), Due::Kind::kBeat));
  }
  EXPECT_EQ(opened.times.Silence(PeerAt(1)), Milliseconds(70));
  // A process that has the processor again learns so.
  for (int beat = 0; beat < 20; ++beat) {
    now += 25;
    opened.times.OnHeard(At(now), PeerAt(1));
    (void)pacer.TakeDue(At(now), opened.round);
  }
  EXPECT_EQ(opened.times.Silence(PeerAt(1)), Microseconds(62'500)) << "2.5 of its gaps";
}

// Gaps have a long tail where processors are short or links long. Median and deviation do not show
// it: they are those of the many short gaps.
TEST(RoundPacerTest, TheLongestOfTheLastGapsIsNoSilence) {
  OpenedRound opened;
  RoundTimes& times = opened.times;
  int64_t now = 0;
  const auto hear = [&](int64_t after) {
    StayAwake(times, now, now + after);
    now += after;
    times.OnHeard(At(now), PeerAt(1));
  };
  for (int i = 0; i < 40; ++i) hear(25);
  EXPECT_EQ(times.Silence(PeerAt(1)), Microseconds(62'500));
  hear(90);
  for (int i = 0; i < 31; ++i) hear(25);
  EXPECT_EQ(times.Silence(PeerAt(1)), Milliseconds(225));
  hear(25);
  EXPECT_EQ(times.Silence(PeerAt(1)), Microseconds(62'500)) << "the long one is forgotten";
}

TEST(RoundPacerTest, ASilentMemberIsSuspectedAndTrustedWhenItIsHeardAgain) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  opened.HearOften(PeerAt(1));
  RoundPacer pacer(At(20), times);
  opened.HearReady();
  ASSERT_TRUE(round.all_ready());
  pacer.Observe(At(20), round);
  StayAwake(times, 20, 71);
  const std::vector<Due> due = pacer.TakeDue(At(71), round);
  ASSERT_TRUE(Has(due, Due::Kind::kSuspect));
  for (const Due& d : due) Apply(d, round, out);
  pacer.Observe(At(71), round);
  times.OnHeard(At(90), PeerAt(1));
  EXPECT_TRUE(Has(pacer.TakeDue(At(90), round), Due::Kind::kTrust));
}

// Whoever owns the links may be wrong. A frame that was on its way is no sign of life, a later one
// is.
TEST(RoundPacerTest, AMemberThatWasCalledDownIsTrustedWhenItIsHeardAgain) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  opened.HearOften(PeerAt(1));
  RoundPacer pacer(At(20), times);
  opened.HearReady();
  pacer.Observe(At(20), round);
  round.OnSuspect(PeerAt(1), SuspicionCause::kReset, out);
  pacer.OnDown(At(30), PeerAt(1));
  pacer.Observe(At(30), round);
  times.OnHeard(At(80), PeerAt(1));
  EXPECT_FALSE(Has(pacer.TakeDue(At(80), round), Due::Kind::kTrust));
  times.OnHeard(At(81), PeerAt(1));
  for (const Due& due : pacer.TakeDue(At(81), round)) Apply(due, round, out);
  EXPECT_FALSE(round.Distrusts(PeerAt(1)));
}

// Members that take each other for dead in turn would otherwise have all of a round's ballots in as
// many times 50 ms.
TEST(RoundPacerTest, EachBallotAfterTheFirstDoublesTheSilenceThatIsSuspicious) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  opened.HearOften(PeerAt(1));
  RoundPacer pacer(At(20), times);
  opened.HearReady();
  int64_t now = 20;
  // Without a ballot, in the first, in the second, ...
  const std::vector<int64_t> silences = {50, 63, 100, 200, 400, 800, 1000, 1000};
  for (size_t ballots = 0; ballots < silences.size(); ++ballots) {
    if (ballots > 0) {  // peer 1 coordinates the even ones, and is heard with each
      BallotOpen open;
      open.ballot = static_cast<Ballot>(2 * ballots);
      opened.Hear(open);
      // So often that the long gap before it is forgotten.
      for (size_t i = 0; i <= DurationWindow::kWindow; ++i, now += 25) {
        times.OnHeard(At(now), PeerAt(1));
        (void)pacer.TakeDue(At(now), round);  // so its own beats are not late
      }
      now -= 25;
    }
    ASSERT_EQ(round.ballot(), 2 * ballots);
    pacer.Observe(At(now), round);
    pacer.TakeDue(At(now), round);  // it is trusted again
    pacer.Observe(At(now), round);
    const int64_t silent = now + silences[ballots];
    StayAwake(times, now, silent - 1);
    EXPECT_FALSE(Has(pacer.TakeDue(At(silent - 1), round), Due::Kind::kSuspect)) << ballots;
    EXPECT_TRUE(Has(pacer.TakeDue(At(silent), round), Due::Kind::kSuspect)) << ballots;
    now = silent + 1;
  }
}

TEST(RoundPacerTest, ARoundGivenUpInWhichASuspectLivedDoublesTheDeadlinesOfTheNext) {
  for (const bool lived : {false, true}) {
    OpenedRound opened;
    auto& [times, round, out] = opened;
    opened.HearOften(PeerAt(1));
    RoundPacer pacer(At(20), times);
    opened.HearReady();
    pacer.Observe(At(20), round);
    StayAwake(times, 20, 70);
    ASSERT_TRUE(Has(pacer.TakeDue(At(70), round), Due::Kind::kSuspect));
    const Duration before = times.StartDeadline();
    if (lived) times.OnHeard(At(80), PeerAt(1));
    EXPECT_EQ(Has(pacer.TakeDue(At(80), round), Due::Kind::kTrust), lived);
    round.OnSitOut(out);
    pacer.Observe(At(90), round);
    EXPECT_EQ(times.StartDeadline(), lived ? before * 2 : before);
  }
}

// A newcomer has learnt no times, and would sit there for twenty seconds: in a round that is over.
TEST(RoundPacerTest, ADecidedValueThatOnlySilentMembersHoldIsWaitedForTwoSeconds) {
  for (const bool comes_back : {false, true}) {
    OpenedRound opened;
    auto& [times, round, out] = opened;
    opened.HearOften(PeerAt(1));
    RoundPacer pacer(At(20), times);
    Decided decided{.ballot = 2, .branch = false, .held = {}};
    decided.held.members = RankSet::Of(1);
    decided.held.value.stakes.resize(2);
    decided.held.value.stakes[1].weight = 1;
    decided.held.value.chunks = {{0, RankSet::Of(1), 7}};
    opened.HearReady();
    opened.Hear(decided);
    ASSERT_EQ(round.phase(), Round::Phase::kAdopting);
    pacer.Observe(At(20), round);
    // clang 14 captures no structured bindings.
    const auto pass = [&opened, &pacer](int64_t now) {
      const std::vector<Due> due = pacer.TakeDue(At(now), opened.round);
      for (const Due& d : due) Apply(d, opened.round, opened.out);
      pacer.Observe(At(now), opened.round);
    };
    for (int64_t now = 25; now < 2070; now += 5) {  // silent from 70 on
      pass(now);
      if (comes_back && now == 1900) times.OnHeard(At(now), PeerAt(1));
      ASSERT_FALSE(round.over()) << now;
    }
    const auto fetches = std::count_if(out.begin(), out.end(), [](const RoundAction& action) {
      const auto* send = std::get_if<SendFrame>(&action);
      return send != nullptr && std::holds_alternative<Fetch>(send->frame.body);
    });
    EXPECT_GE(fetches, 4) << "it is asked again meanwhile: the first one may be lost";
    for (int64_t now = 2070; now < 2200; now += 5) pass(now);
    EXPECT_EQ(round.over(), !comes_back);
    if (round.over()) {
      EXPECT_EQ(round.outcome()->outcome, Outcome::kOrphaned);
    }
  }
}

// One member has left the round with the value that witnesses accepted, the other one is dead and
// silent. The first may have been the only one that held it.
TEST(RoundPacerTest, AValueThatMayBeDecidedIsWaitedForTwoSecondsToo) {
  RoundSpec spec = PairSpec();
  spec.cells.push_back({PeerAt(2), {}});
  spec.witnesses.push_back(PeerAt(2));
  HeldValue held;
  held.members = RankSet::Of(1);
  held.value.stakes.resize(3);
  held.value.stakes[1].weight = 1;
  held.value.chunks = {{0, RankSet::Of(1), 7}};
  spec.promised = {.promised = 2, .accepted = 2, .value = EncodeHeldValue(held)};
  for (const bool comes_back : {false, true}) {
    OpenedRound opened(spec);
    auto& [times, round, out] = opened;
    opened.HearOften(PeerAt(2));
    for (const size_t rank : {1, 2}) {
      const Ready ready{{}, {}, MemberListHash(spec.cells), PartsHash(spec.chunks), false};
      round.OnFrame(PeerAt(rank), {InstanceId(), ready}, out);
    }
    RoundPacer pacer(At(20), times);
    opened.Hear(Bye{ByeReason::kSatOut});
    ASSERT_EQ(round.ballot(), 4) << "its own: coordinators take turns";
    opened.Hear(Promise{.ballot = 4, .accepted = 0, .value = {}});
    pacer.Observe(At(20), round);
    int64_t now = 20;
    while (!round.over() && now < 2500) {
      now += 5;
      // It may have the value, and answers now: the two seconds begin anew when it is silent.
      if (comes_back && now == 2040) times.OnHeard(At(now), PeerAt(2));
      const std::vector<Due> due = pacer.TakeDue(At(now), round);
      for (const Due& d : due) Apply(d, round, out);
      pacer.Observe(At(now), round);
    }
    ASSERT_EQ(round.over(), !comes_back);
    if (comes_back) continue;
    EXPECT_EQ(now, 2070) << "silent from 70 on";
    EXPECT_EQ(round.outcome()->outcome, Outcome::kOrphaned);
  }
}

constexpr int kStandIn = 7;  // speaks for the hole, and witnesses the round

RoundSpec PairWithHole() {
  RoundSpec spec = PairSpec();
  spec.cells.push_back({std::nullopt, {PeerAt(kStandIn)}});
  spec.witnesses.push_back(PeerAt(kStandIn));
  return spec;
}

// Whether the stand-in is due to be suspected at `now`; this process is awake since `from`.
bool IsStandInSilent(OpenedRound& opened, RoundPacer& pacer, int from, int now) {
  StayAwake(opened.times, from, now);
  const std::vector<Due> due = pacer.TakeDue(At(now), opened.round);
  const Due silent{Due::Kind::kSuspect, PeerAt(kStandIn), SuspicionCause::kSilence, {}};
  return std::count(due.begin(), due.end(), silent) == 1;
}

// It may be in an earlier round still, and has nothing to say before that is over.
TEST(RoundPacerTest, AStandInOwesNothingBeforeTheStartDeadlineEvenIfItIsAWitness) {
  OpenedRound opened(PairWithHole());
  opened.HearOften(PeerAt(kStandIn));
  RoundPacer pacer(At(0), opened.times);
  pacer.Observe(At(20), opened.round);
  const auto suspected = [&](int now) { return IsStandInSilent(opened, pacer, now - 100, now); };
  EXPECT_EQ(suspected(999), 0);
  EXPECT_EQ(suspected(1000), 1);
}

// It was not heard of for long before, since it owed nothing. OPEN takes a while to reach it.
TEST(RoundPacerTest, AStandInThatIsAskedAsAWitnessHasItsTimeFromThenOn) {
  OpenedRound opened(PairWithHole());
  auto& [times, round, out] = opened;
  opened.HearOften(PeerAt(kStandIn));  // until 20 ms: it is silent after 50 ms
  RoundPacer pacer(At(0), times);
  pacer.Observe(At(20), round);
  StayAwake(times, 20, 300);
  round.OnCoordinatorLate(out);  // the own ballot
  ASSERT_TRUE(round.MustReply(PeerAt(kStandIn)));
  pacer.Observe(At(300), round);
  const auto suspected = [&](int now) { return IsStandInSilent(opened, pacer, now - 25, now); };
  EXPECT_EQ(suspected(349), 0);
  EXPECT_EQ(suspected(350), 1);
}

// Its group is itself and a hole. A ballot brings the hole's input no sooner.
TEST(RoundPacerTest, NoBallotIsOpenedForAStandInBeforeTheStartDeadline) {
  RoundSpec spec = PairSpec();
  spec.cells[1] = {std::nullopt, {PeerAt(7)}};
  OpenedRound opened(spec);
  for (int i = 0; i < 9; ++i) opened.times.OnStarted(Seconds(3));
  opened.times.OnEnded(Milliseconds(10), RoundTimes::Course::kFast);  // stuck after half a second
  RoundPacer pacer(At(0), opened.times);
  pacer.Observe(At(0), opened.round);
  ASSERT_EQ(opened.round.phase(), Round::Phase::kReducing);
  ASSERT_FALSE(opened.round.over());
  for (int64_t now = 25; now < 3'000; now += 25)
    EXPECT_FALSE(Has(pacer.TakeDue(At(now), opened.round), Due::Kind::kLate)) << now;
  EXPECT_TRUE(Has(pacer.TakeDue(At(3'000), opened.round), Due::Kind::kLate));
}

TEST(RoundPacerTest, ARoundThatIsNotOverSitsOutInTheEndAndBeatsMeanwhile) {
  OpenedRound opened;
  auto& [times, round, out] = opened;
  RoundPacer pacer(At(0), times);
  int beats = 0;
  bool sat_out = false;
  for (Time now = At(0); !round.over(); now = pacer.NextDeadline(round)) {
    ASSERT_FALSE(now.infinite());
    for (const Due& due : pacer.TakeDue(now, round)) {
      beats += due.kind == Due::Kind::kBeat ? 1 : 0;
      sat_out = sat_out || due.kind == Due::Kind::kSitOut;
      Apply(due, round, out);
    }
    pacer.Observe(now, round);
  }
  EXPECT_TRUE(sat_out);  // its fold is never answered, so it cannot finish
  EXPECT_EQ(round.outcome()->outcome, Outcome::kKept);
  EXPECT_GT(beats, 10);
  EXPECT_TRUE(pacer.NextDeadline(round).infinite());
}

// It hears the chunks. Two in one beat may lie in the buffers of a thin link, so two beats count.
TEST(RoundPacerTest, AMemberThatChunksLeaveForAllTheTimeGetsNoBeat) {
  OpenedRound opened;
  RoundPacer pacer(At(0), opened.times);
  const auto beaten = [&](int beat, uint32_t chunks) {
    if (chunks > 0) opened.times.OnChunksLeft(PeerAt(1), chunks);
    opened.out.clear();
    for (const Due& due : pacer.TakeDue(At(25 * beat), opened.round))
      Apply(due, opened.round, opened.out);
    return std::ranges::any_of(opened.out, [](const RoundAction& action) {
      const auto* send = std::get_if<SendFrame>(&action);
      return send != nullptr && std::holds_alternative<Beat>(send->frame.body);
    });
  };
  EXPECT_TRUE(beaten(1, 0));
  EXPECT_TRUE(beaten(2, 100));
  EXPECT_FALSE(beaten(3, 2));
  EXPECT_FALSE(beaten(4, 2));
  EXPECT_TRUE(beaten(5, 1));
  EXPECT_TRUE(beaten(6, 2));
  EXPECT_FALSE(beaten(7, 2));
  EXPECT_TRUE(beaten(8, 0));
}

// Few chunks leave in short rounds. By those of the one before, members would hear nothing for two
// beats after READY, which is as long as silence may last.
TEST(RoundPacerTest, ChunksOfTheRoundBeforeSpareNoBeat) {
  OpenedRound opened;
  RoundPacer before(At(0), opened.times);
  opened.times.OnChunksLeft(PeerAt(1), 2);
  (void)before.TakeDue(At(25), opened.round);
  opened.times.OnChunksLeft(PeerAt(1), 2);  // and it is over
  RoundPacer pacer(At(40), opened.times);
  const std::vector<Due> due = pacer.TakeDue(At(65), opened.round);
  const auto beat =
      std::ranges::find_if(due, [](const Due& d) { return d.kind == Due::Kind::kBeat; });
  ASSERT_NE(beat, due.end());
  EXPECT_FALSE(beat->hear.contains(PeerAt(1)));
}

}  // namespace
}  // namespace crowdsurf::worker
