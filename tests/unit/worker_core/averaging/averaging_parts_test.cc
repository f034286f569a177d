// Where an averaging's time goes, with times that are known: two threads work and wait, and each
// figure follows by hand.
#include "worker/core/averaging/averaging_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

using Part = AveragingPart;

Time At(int64_t ms) { return Time() + Milliseconds(1'000'000 + ms); }
const AveragingId kFirst{7}, kSecond{8};

int64_t Ms(Duration duration) { return duration.nanoseconds() / 1'000'000; }

TEST(AveragingPartsTest, WorkOverlapsAndWaitsFillWhatNoWorkFills) {
  AveragingParts parts;
  parts.OnAsked(At(0), kFirst);
  parts.Begin(At(10), Part::kReceive);  // others are earlier than the own trainer
  parts.End(At(14), Part::kReceive);
  parts.OnPublished(At(30), kFirst);
  parts.Begin(At(31), Part::kSend);
  parts.Begin(At(35), Part::kFold);
  parts.End(At(41), Part::kSend);
  parts.End(At(50), Part::kFold);
  parts.Begin(At(60), Part::kCopy);
  parts.End(At(63), Part::kCopy);
  const auto times = parts.OnDelivered(At(100), kFirst);
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(Ms(times->whole), 100);
  EXPECT_EQ(Ms(times->of(Part::kWaitTrainer)), 10 + 16);
  EXPECT_EQ(Ms(times->of(Part::kReceive)), 4);
  EXPECT_EQ(Ms(times->of(Part::kSend)), 10);
  EXPECT_EQ(Ms(times->of(Part::kFold)), 15);
  EXPECT_EQ(Ms(times->of(Part::kCopy)), 3);
  EXPECT_EQ(Ms(times->of(Part::kWaitPeers)), 1 + 10 + 37);
}

TEST(AveragingPartsTest, WorkIsCountedOnlyInsideAnAveraging) {
  AveragingParts parts;
  parts.Begin(At(0), Part::kSend);  // goes on when the averaging begins
  parts.OnAsked(At(40), kFirst);
  parts.OnPublished(At(50), kFirst);
  parts.End(At(70), Part::kSend);
  parts.Begin(At(80), Part::kReceive);  // goes on when it is over
  const auto times = parts.OnDelivered(At(85), kFirst);
  ASSERT_TRUE(times.has_value());
  parts.End(At(500), Part::kReceive);
  EXPECT_EQ(Ms(times->whole), 45);
  EXPECT_EQ(Ms(times->of(Part::kSend)), 30);
  EXPECT_EQ(Ms(times->of(Part::kReceive)), 5);
  EXPECT_EQ(Ms(times->of(Part::kWaitTrainer)), 0);
  EXPECT_EQ(Ms(times->of(Part::kWaitPeers)), 10);
  EXPECT_FALSE(parts.OnDelivered(At(510), kFirst).has_value()) << "it is over";
}

TEST(AveragingPartsTest, OneThatGivesNothingIsNotCounted) {
  AveragingParts parts;
  EXPECT_FALSE(parts.OnDelivered(At(1), kFirst).has_value()) << "never asked for";
  parts.OnAsked(At(10), kFirst);
  EXPECT_FALSE(parts.OnDelivered(At(20), kFirst).has_value()) << "no snapshot";
  parts.OnPublished(At(21), kSecond);
  EXPECT_FALSE(parts.OnDelivered(At(22), kFirst).has_value()) << "a snapshot of another one";
  parts.OnPublished(At(23), kFirst);
  EXPECT_FALSE(parts.OnDelivered(At(24), kSecond).has_value()) << "of another number";
  parts.OnAsked(At(30), kSecond);  // the first was abandoned
  parts.OnPublished(At(31), kSecond);
  const auto times = parts.OnDelivered(At(40), kSecond);
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(Ms(times->whole), 10) << "nothing of the abandoned one";
  parts.OnAsked(At(50), kFirst);
  EXPECT_FALSE(parts.OnDelivered(At(50), kFirst).has_value()) << "the snapshot was of the last one";
  parts.OnPublished(At(51), kFirst);
  parts.OnGivenUp();
  EXPECT_FALSE(parts.OnDelivered(At(60), kFirst).has_value());
}

// Two threads at random, one that sends and receives, one that folds and copies, against a count of
// milliseconds one by one.
TEST(AveragingPartsTest, TheSumsHoldForAnyOrderOfWork) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    AveragingParts parts;
    struct Thread {
      Part first, second;
      std::optional<Part> works = {};
    };
    std::vector<Thread> threads = {{Part::kSend, Part::kReceive}, {Part::kFold, Part::kCopy}};
    const int64_t published = 1 + static_cast<int64_t>(rng.Uniform(100));
    const int64_t end = published + 1 + static_cast<int64_t>(rng.Uniform(200));
    std::array<int64_t, kAveragingParts.size()> expected = {};
    parts.OnAsked(At(0), kFirst);
    for (int64_t ms = 0; ms < end; ++ms) {
      if (ms == published) parts.OnPublished(At(ms), kFirst);
      for (Thread& thread : threads) {
        if (rng.Uniform(3) > 0) continue;
        if (thread.works) parts.End(At(ms), *thread.works);
        thread.works.reset();
        if (rng.Uniform(2) > 0) continue;
        thread.works = rng.Uniform(2) > 0 ? thread.first : thread.second;
        parts.Begin(At(ms), *thread.works);
      }
      for (const Thread& thread : threads)
        if (thread.works) ++expected[static_cast<size_t>(*thread.works)];
      if (threads[0].works || threads[1].works) continue;
      ++expected[static_cast<size_t>(ms < published ? Part::kWaitTrainer : Part::kWaitPeers)];
    }
    const auto times = parts.OnDelivered(At(end), kFirst);
    ASSERT_TRUE(times.has_value()) << seed;
    EXPECT_EQ(Ms(times->whole), end) << seed;
    for (size_t part = 0; part < expected.size(); ++part)
      EXPECT_EQ(Ms(times->parts[part]), expected[part]) << kAveragingParts[part] << " " << seed;
    const auto of = [&](Part part) { return Ms(times->of(part)); };
    const int64_t waits = of(Part::kWaitTrainer) + of(Part::kWaitPeers);
    const int64_t io = of(Part::kSend) + of(Part::kReceive);
    const int64_t host = of(Part::kFold) + of(Part::kCopy);
    EXPECT_LE(waits + std::max(io, host), end) << seed;
    EXPECT_GE(waits + io + host, end) << seed;
  }
}

TEST(AveragingPartsDeathTest, AWaitIsNoWork) {
  AveragingParts parts;
  EXPECT_DEATH(parts.Begin(At(0), Part::kWaitPeers), "");
  EXPECT_DEATH(parts.End(At(0), Part::kSend), "");
}

}  // namespace
}  // namespace crowdsurf::worker
