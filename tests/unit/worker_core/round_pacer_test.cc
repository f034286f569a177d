#include "worker/core/round_pacer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

PeerId Peer(int number) {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  bytes[0] = static_cast<uint8_t>(number + 1);
  return PeerId(bytes);
}
Time At(int64_t milliseconds) { return Time::FromNanoseconds(1'000'000 * (1000 + milliseconds)); }

RoundSpec Spec() {
  RoundSpec spec;
  for (int rank = 0; rank < 2; ++rank) {
    spec.cells.push_back({Peer(rank), {}});
    spec.witnesses.push_back(Peer(rank));
  }
  spec.chunks = {{0, 0, 1}};
  return spec;
}

bool Has(const std::vector<Due>& due, Due::Kind kind) {
  return std::any_of(due.begin(), due.end(), [&](const Due& d) { return d.kind == kind; });
}

TEST(RoundPacerTest, ABoundIsTheMedianAndSoManyDeviations) {
  DurationWindow window;
  for (const int64_t sample : {10, 12, 11, 50, 9}) window.Add(Milliseconds(sample));
  EXPECT_EQ(window.Bound(0), Milliseconds(11));
  EXPECT_EQ(window.Bound(6), Milliseconds(17));  // MAD of {1, 1, 0, 39, 2} is 1
}

// Against the definition: sort the last samples, sort their distances from the middle one.
TEST(RoundPacerTest, ABoundFollowsItsDefinitionAsTheWindowMoves) {
  Rng rng(7);
  DurationWindow window;
  std::vector<Duration> all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(Microseconds(static_cast<int64_t>(rng.Uniform(i % 3 == 0 ? 5 : 1'000'000))));
    window.Add(all.back());
    const size_t size = std::min(all.size(), DurationWindow::kWindow);
    std::vector<Duration> last(all.end() - static_cast<std::ptrdiff_t>(size), all.end());
    std::sort(last.begin(), last.end());
    const Duration median = last[size / 2];
    for (Duration& sample : last) sample = sample > median ? sample - median : median - sample;
    std::sort(last.begin(), last.end());
    ASSERT_EQ(window.Bound(6), median + last[size / 2] * 6) << "after sample " << i;
    ASSERT_EQ(window.Bound(0), median) << "after sample " << i;
  }
}

TEST(RoundPacerTest, SilenceIsLearntPerPeerBetweenItsLimits) {
  RoundTimes times{PacerConfig()};
  EXPECT_EQ(times.Silence(Peer(1)), Seconds(1));
  for (int i = 0; i < 20; ++i) times.OnHeard(At(i), Peer(1));
  EXPECT_EQ(times.Silence(Peer(1)), Milliseconds(50));
  for (int i = 0; i < 40; ++i) times.OnHeard(At(100 + 200 * i), Peer(2));
  EXPECT_EQ(times.Silence(Peer(2)), Milliseconds(200));
}

TEST(RoundPacerTest, AWrongBallotDoublesTheDeadlinesAndFastRoundsHalveThem) {
  RoundTimes times{PacerConfig()};
  const Duration before = times.StartDeadline();
  times.OnEnded(Milliseconds(10), false, true);
  EXPECT_EQ(times.StartDeadline(), before * 2);
  times.OnEnded(Milliseconds(10), true, false);
  EXPECT_EQ(times.StartDeadline(), before);
}

TEST(RoundPacerTest, WhoIsAbsentAtTheDeadlineIsSuspectedOnce) {
  RoundTimes times{PacerConfig()};
  Round round(Spec());
  RoundActions out;
  round.Start(out);
  RoundPacer pacer(At(0), times);
  pacer.Observe(At(0), round);
  EXPECT_FALSE(Has(pacer.TakeDue(At(999), round), Due::Kind::kSuspect));
  const std::vector<Due> due = pacer.TakeDue(At(1000), round);
  const Due absent{Due::Kind::kSuspect, Peer(1), SuspicionCause::kAbsent};
  EXPECT_EQ(std::count(due.begin(), due.end(), absent), 1);
  for (const Due& d : due) Apply(d, round, out);
  pacer.Observe(At(1000), round);
  EXPECT_FALSE(Has(pacer.TakeDue(At(1001), round), Due::Kind::kSuspect));
}

TEST(RoundPacerTest, ASilentMemberIsSuspectedAndTrustedWhenItIsHeardAgain) {
  RoundTimes times{PacerConfig()};
  Round round(Spec());
  RoundActions out;
  round.Start(out);
  RoundPacer pacer(At(0), times);
  round.OnFrame(
      Peer(1),
      {InstanceId(), Ready{{}, {}, MemberListHash(Spec().cells), PartsHash(Spec().chunks)}}, out);
  ASSERT_TRUE(round.all_ready());
  for (int i = 0; i <= 20; ++i) times.OnHeard(At(i), Peer(1));
  pacer.Observe(At(20), round);
  const std::vector<Due> due = pacer.TakeDue(At(71), round);
  ASSERT_TRUE(Has(due, Due::Kind::kSuspect));
  for (const Due& d : due) Apply(d, round, out);
  pacer.Observe(At(71), round);
  times.OnHeard(At(90), Peer(1));
  EXPECT_TRUE(Has(pacer.TakeDue(At(90), round), Due::Kind::kTrust));
}

// Members that take each other for dead in turn would otherwise have all of a round's ballots in as
// many times 50 ms.
TEST(RoundPacerTest, EachBallotAfterTheFirstDoublesTheSilenceThatIsSuspicious) {
  RoundTimes times{PacerConfig()};
  for (int i = 0; i <= 20; ++i) times.OnHeard(At(i), Peer(1));
  Round round(Spec());
  RoundActions out;
  round.Start(out);
  RoundPacer pacer(At(20), times);
  const Ready ready{{}, {}, MemberListHash(Spec().cells), PartsHash(Spec().chunks)};
  round.OnFrame(Peer(1), {InstanceId(), ready}, out);
  int64_t now = 20;
  // Without a ballot, in the first, in the second, ...
  const std::vector<int64_t> silences = {50, 50, 100, 200, 400, 800, 1000, 1000};
  for (size_t ballots = 0; ballots < silences.size(); ++ballots) {
    if (ballots > 0) {  // peer 1 coordinates the even ones, and is heard with each
      Open open;
      open.ballot = static_cast<Ballot>(2 * ballots);
      round.OnFrame(Peer(1), {InstanceId(), open}, out);
      times.OnHeard(At(now), Peer(1));
    }
    ASSERT_EQ(round.ballot(), 2 * ballots);
    pacer.Observe(At(now), round);
    pacer.TakeDue(At(now), round);  // it is trusted again
    pacer.Observe(At(now), round);
    const int64_t silent = now + silences[ballots];
    EXPECT_FALSE(Has(pacer.TakeDue(At(silent - 1), round), Due::Kind::kSuspect)) << ballots;
    EXPECT_TRUE(Has(pacer.TakeDue(At(silent), round), Due::Kind::kSuspect)) << ballots;
    now = silent + 1;
  }
}

TEST(RoundPacerTest, ARoundGivenUpInWhichASuspectLivedDoublesTheDeadlinesOfTheNext) {
  for (const bool lived : {false, true}) {
    RoundTimes times{PacerConfig()};
    for (int i = 0; i <= 20; ++i) times.OnHeard(At(i), Peer(1));
    Round round(Spec());
    RoundActions out;
    round.Start(out);
    RoundPacer pacer(At(20), times);
    round.OnFrame(
        Peer(1),
        {InstanceId(), Ready{{}, {}, MemberListHash(Spec().cells), PartsHash(Spec().chunks)}}, out);
    pacer.Observe(At(20), round);
    ASSERT_TRUE(Has(pacer.TakeDue(At(70), round), Due::Kind::kSuspect));
    const Duration before = times.StartDeadline();
    if (lived) times.OnHeard(At(80), Peer(1));
    EXPECT_EQ(Has(pacer.TakeDue(At(80), round), Due::Kind::kTrust), lived);
    round.OnSitOut(out);
    pacer.Observe(At(90), round);
    EXPECT_EQ(times.StartDeadline(), lived ? before * 2 : before);
  }
}

// It may be in an earlier round still, and has nothing to say before that is over.
TEST(RoundPacerTest, AStandInOwesNothingBeforeTheStartDeadlineEvenIfItIsAWitness) {
  constexpr int kStandIn = 7;
  RoundSpec spec = Spec();
  spec.cells.push_back({std::nullopt, {Peer(kStandIn)}});
  spec.witnesses.push_back(Peer(kStandIn));
  RoundTimes times{PacerConfig()};
  Round round(spec);
  RoundActions out;
  round.Start(out);
  RoundPacer pacer(At(0), times);
  for (int i = 0; i <= 20; ++i) times.OnHeard(At(i), Peer(kStandIn));  // its silence: 50 ms
  pacer.Observe(At(20), round);
  const Due silent{Due::Kind::kSuspect, Peer(kStandIn), SuspicionCause::kSilence};
  const auto suspected = [&](int now) {
    const std::vector<Due> due = pacer.TakeDue(At(now), round);
    return std::count(due.begin(), due.end(), silent);
  };
  EXPECT_EQ(suspected(999), 0);
  EXPECT_EQ(suspected(1000), 1);
}

TEST(RoundPacerTest, ARoundThatIsNotOverSitsOutInTheEndAndBeatsMeanwhile) {
  RoundTimes times{PacerConfig()};
  Round round(Spec());
  RoundActions out;
  round.Start(out);
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

}  // namespace
}  // namespace crowdsurf::worker
