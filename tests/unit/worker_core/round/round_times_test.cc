// What a process learns of the times of others: bounds against their definition by sorting, and
// what is a gap and what is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_core/round/awake_process.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round_pacer.h"

namespace crowdsurf::worker {
namespace {

TEST(RoundTimesTest, ABoundIsTheMedianAndSoManyDeviations) {
  DurationWindow window;
  for (const int64_t sample : {10, 12, 11, 50, 9}) window.Add(Milliseconds(sample));
  EXPECT_EQ(window.Bound(0), Milliseconds(11));
  EXPECT_EQ(window.Bound(6), Milliseconds(17));  // MAD of {1, 1, 0, 39, 2} is 1
}

// Against the definition: sort the last samples, sort their distances from the middle one.
TEST(RoundTimesTest, ABoundFollowsItsDefinitionAsTheWindowMoves) {
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

TEST(RoundTimesTest, SilenceIsLearntPerPeerBetweenItsLimits) {
  RoundTimes times{PacerConfig()};
  EXPECT_EQ(times.Silence(PeerAt(1)), Seconds(1));
  times.OnAwake(At(0));
  for (int i = 0; i < 20; ++i) times.OnHeard(At(i), PeerAt(1));
  EXPECT_EQ(times.Silence(PeerAt(1)), Milliseconds(50));
  for (int64_t i = 0; i < 40; ++i) {
    StayAwake(times, 200 * i, 200 * (i + 1));
    times.OnHeard(At(200 * (i + 1)), PeerAt(2));
  }
  EXPECT_EQ(times.Silence(PeerAt(2)), Milliseconds(500)) << "2.5 of the longest gap";
}

// Forty bursts, 200 ms apart, of thirty frames each that are handled one after the other.
TEST(RoundTimesTest, FramesOfOneBurstAreOneSignOfLife) {
  RoundTimes times{PacerConfig()};
  for (int64_t burst = 0; burst < 40; ++burst) {
    StayAwake(times, 200 * (burst - 1), 200 * burst);
    for (int64_t frame = 0; frame < 30; ++frame)
      times.OnHeard(At(200 * burst) + Microseconds(frame * 20), PeerAt(1));
  }
  EXPECT_EQ(times.Silence(PeerAt(1)), Milliseconds(500)) << "2.5 of the longest gap";
  EXPECT_EQ(times.LastHeard(PeerAt(1)), At(200 * 39) + Microseconds(29 * 20));
}

// What was queued meanwhile is handled before the timer.
TEST(RoundTimesTest, NoGapIsLearntInAStallOrBetweenRounds) {
  RoundTimes times{PacerConfig()};
  for (int64_t stall = 0; stall < 40; ++stall) {
    times.OnHeard(At(300 * stall), PeerAt(1));
    times.OnAwake(At(300 * stall));
  }
  EXPECT_EQ(times.Silence(PeerAt(1)), Seconds(1)) << "nothing is known of it";
}

// A sit-out is at least twice as long, so a guess from few starts can hold a member for minutes.
TEST(RoundTimesTest, FewStartsSayNothingOfHowMuchTheyDeviate) {
  RoundTimes times{PacerConfig()};
  times.OnStarted(Milliseconds(50));
  times.OnStarted(Milliseconds(960));
  EXPECT_EQ(times.StartDeadline(), Seconds(1));
  times.OnStarted(Milliseconds(2500));
  EXPECT_EQ(times.StartDeadline(), Milliseconds(2500));
  for (int i = 0; i < 5; ++i) times.OnStarted(Milliseconds(i % 2 == 0 ? 900 : 1000));
  EXPECT_EQ(times.StartDeadline(), Milliseconds(960 + 6 * 60));
}

// A single one deviates by nothing from itself.
TEST(RoundTimesTest, AStartALittleLongerThanTheFirstOneIsNoAbsence) {
  RoundTimes quick{PacerConfig()};
  quick.OnStarted(Milliseconds(100));
  EXPECT_EQ(quick.StartDeadline(), Milliseconds(400));
  RoundTimes times{PacerConfig()};
  for (int starts = 1; starts < 8; ++starts) {
    times.OnStarted(Milliseconds(400));
    EXPECT_EQ(times.StartDeadline(), Seconds(1)) << starts;
  }
  times.OnStarted(Milliseconds(400));
  EXPECT_EQ(times.StartDeadline(), Milliseconds(400)) << "eight tell how they deviate";
}

// Who has waited for a late member in one round of an averaging opens the others in step. By those
// it would take that member for absent in the next averaging.
TEST(RoundTimesTest, TheRoundsOfAnAveragingTeachItsLongestStart) {
  RoundTimes times{PacerConfig()};
  for (int averaging = 0; averaging < 10; ++averaging) {
    times.OnOpened(0);
    const uint32_t late = averaging % 4;
    for (uint32_t round = 0; round < 4; ++round)
      times.OnStarted(Milliseconds(round == late ? 700 : 1), round);
  }
  EXPECT_EQ(times.StartDeadline(), Milliseconds(700));
  // A window of the last ones: all of these have made room.
  for (int averaging = 0; averaging < 32; ++averaging) {
    times.OnOpened(0);
    // The first round was over before all had opened it.
    times.OnStarted(Milliseconds(300), 1);
    times.OnStarted(Milliseconds(2), 2);
  }
  EXPECT_EQ(times.StartDeadline(), Milliseconds(300));
}

TEST(RoundTimesTest, AWrongBallotDoublesTheDeadlinesAndFastRoundsHalveThem) {
  RoundTimes times{PacerConfig()};
  const Duration before = times.StartDeadline();
  times.OnEnded(Milliseconds(10), RoundTimes::Course::kMistaken);
  EXPECT_EQ(times.StartDeadline(), before * 2);
  times.OnEnded(Milliseconds(10), RoundTimes::Course::kFast);
  EXPECT_EQ(times.StartDeadline(), before);
}

}  // namespace
}  // namespace crowdsurf::worker
