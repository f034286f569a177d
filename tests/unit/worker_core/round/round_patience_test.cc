// When a round is given up: where nothing comes any more, and never for the time that it has taken.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/round/opened_round.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kChunks = 60;
constexpr int64_t kTick = 25;  // a beat, in milliseconds

RoundSpec ManyChunks(uint16_t owner) {
  RoundSpec spec = PairSpec();
  spec.chunks.clear();
  for (uint32_t c = 0; c < kChunks; ++c) spec.chunks.push_back({owner, c, 1});
  return spec;
}

// A round of two whose other member lives all the time: each beat one frame of it comes.
struct PatientRound : OpenedRound {
  explicit PatientRound(const RoundSpec& spec) : OpenedRound(spec) {
    HearOften(PeerAt(1));
    Hear(Ready{{}, {}, MemberListHash(spec.cells), PartsHash(spec.chunks)});
    pacer.Observe(At(now), round);
  }
  // Nothing else comes for so long.
  void Pass(int64_t milliseconds) {
    for (const int64_t end = now + milliseconds; now < end && !round.over();) {
      now += kTick;
      times.OnHeard(At(now), PeerAt(1));
      for (const Due& due : pacer.TakeDue(At(now), round)) Apply(due, round, out);
      pacer.Observe(At(now), round);
    }
  }
  void Input(uint32_t chunk) {
    round.OnInput(PeerAt(1), 1, ChunkIndex(chunk), 0, out);
    round.OnFolded(ChunkIndex(chunk), 0, 7, out);
    pacer.Observe(At(now), round);
  }
  void Result(uint32_t chunk) {
    round.OnResult(PeerAt(1), ChunkIndex(chunk), {0, RankSet::FirstRanks(2), 7}, out);
    pacer.Observe(At(now), round);
  }
  int64_t now = 20;
  RoundPacer pacer{At(20), times};
};

// 7 G of parameters at 1 Gbit/s take minutes. It was given up after twenty seconds, by everybody.
TEST(RoundPatienceTest, ARoundIsNotGivenUpWhileInputsCome) {
  PatientRound slow(ManyChunks(0));
  for (uint32_t c = 0; c + 1 < kChunks; ++c) {
    slow.Pass(1'000);
    ASSERT_FALSE(slow.round.over()) << "after " << c << " s";
    slow.Input(c);
  }
  EXPECT_EQ(slow.round.ballot(), 0) << "nor is a ballot opened";
  const int64_t last = slow.now;
  slow.Pass(100'000);
  ASSERT_TRUE(slow.round.over());
  EXPECT_EQ(slow.now - last, 20'000) << "nothing is learnt of pauses yet";
}

// The link of an owner has lost three quarters of its bandwidth, in the middle of a round.
TEST(RoundPatienceTest, FourTimesTheLongestPauseOfTheRoundIsWaitedFor) {
  PatientRound slow(ManyChunks(1));
  for (int i = 0; i < 32; ++i)
    slow.times.OnEnded(Milliseconds(10), RoundTimes::Course::kFast);  // the rounds before
  slow.Pass(500);
  for (uint32_t c = 0; c < 8; ++c) {
    slow.Pass(1'000);
    slow.Result(c);
  }
  ASSERT_FALSE(slow.round.over());
  for (uint32_t c = 8; c < 12; ++c) {
    slow.Pass(3'900);
    slow.Result(c);
  }
  ASSERT_FALSE(slow.round.over());
  const int64_t last = slow.now;
  slow.Pass(100'000);
  ASSERT_TRUE(slow.round.over());
  EXPECT_NEAR(static_cast<double>(slow.now - last), 4 * 3'900, 4 * kTick);
}

TEST(RoundPatienceTest, TwoSecondsAreTheLeast) {
  PatientRound fast(ManyChunks(1));
  for (int i = 0; i < 32; ++i) fast.times.OnEnded(Milliseconds(10), RoundTimes::Course::kFast);
  for (uint32_t c = 0; c < 8; ++c) {
    fast.Pass(kTick);
    fast.Result(c);
  }
  const int64_t last = fast.now;
  fast.Pass(100'000);
  ASSERT_TRUE(fast.round.over());
  EXPECT_EQ(fast.now - last, 2'000);
}

// Ballots that follow each other bring no end nearer.
TEST(RoundPatienceTest, WhatBallotsSayProlongsNoRound) {
  PatientRound stuck(ManyChunks(1));
  for (int i = 0; i < 32; ++i) stuck.times.OnEnded(Milliseconds(10), RoundTimes::Course::kFast);
  stuck.Result(0);
  const int64_t last = stuck.now;
  for (Ballot ballot = 2; !stuck.round.over() && stuck.now < last + 10'000; ballot += 2) {
    stuck.Pass(200);
    BallotOpen open;
    open.ballot = ballot;
    stuck.Hear(open);
  }
  ASSERT_TRUE(stuck.round.over());
  EXPECT_LE(stuck.now - last, 2'200);
}

// It has all results and waits for the other one's HAVE. That one is behind a thin link.
TEST(RoundPatienceTest, AMemberThatHoldsAllWaitsAsLongAsTheOthersGetOn) {
  PatientRound held(ManyChunks(1));
  for (int i = 0; i < 32; ++i) held.times.OnEnded(Milliseconds(500), RoundTimes::Course::kFast);
  for (uint32_t c = 0; c < kChunks; ++c) held.Result(c);
  ASSERT_EQ(held.round.phase(), Round::Phase::kHeld);
  const auto beat = [&](uint32_t missing) {
    held.Hear(Beat{missing});
    held.pacer.Observe(At(held.now), held.round);
  };
  beat(kChunks);
  for (uint32_t missing = kChunks - 1; missing > 0; --missing) {
    held.Pass(1'000);
    ASSERT_FALSE(held.round.over()) << missing;
    beat(missing);
  }
  const int64_t last = held.now;
  while (!held.round.over() && held.now < last + 100'000) {
    held.Pass(1'000);
    beat(1);  // it says so again, and gets nothing
  }
  EXPECT_TRUE(held.round.over());
  EXPECT_LE(held.now - last, 5'000);
}

}  // namespace
}  // namespace crowdsurf::worker
