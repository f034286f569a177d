// A joiner and several donors: what arrives is compared with what the donors hold, value by value.
#include "worker/core/state/state_fetch.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "tests/unit/worker_core/state/fetch_world.h"

namespace crowdsurf::worker {
namespace {

TEST(StateFetchTest, ChunksComeFromSeveralDonorsAndTheOpaqueStateFromOne) {
  FetchWorld world(FetchWorld::Options());
  const Bytes state(700'000, 9);
  for (uint8_t n = 1; n <= 3; ++n) {
    world.AddDonor(n, 7, 1, n == 2 ? state : Bytes());
    world.Join(n);
  }
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, FetchValues(1));
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state);
  EXPECT_EQ(world.done->manifest.averaging, AveragingId(7));
  for (uint8_t n = 1; n <= 3; ++n) EXPECT_GE(world.asked[Id(n)], 4) << int{n};
  EXPECT_EQ(world.fetch.NextDeadline(), Time::Infinite());
  EXPECT_EQ(world.overs, (std::map<PeerId, int>{{Id(1), 1}, {Id(2), 1}, {Id(3), 1}}))
      << "each donor is told that its place is free";
}

TEST(StateFetchTest, ADonorThatDiesCostsOnlyWhatItHadNotSent) {
  FetchWorld world(FetchWorld::Options());
  for (uint8_t n = 1; n <= 2; ++n) {
    world.AddDonor(n, 7, 1);
    world.Join(n);
  }
  for (int i = 0; i < 100 && world.fetch.chunks_kept() < 3; ++i) world.RunFor(1);
  ASSERT_GE(world.fetch.chunks_kept(), 3u);
  ASSERT_LT(world.fetch.chunks_kept(), 16u);
  world.Kill(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, FetchValues(1));
  EXPECT_EQ(world.metrics.Value("crowdsurf_state_chunks_fetched_total", {{"result", "kept"}}), 16);
}

TEST(StateFetchTest, ASilentDonorIsHedgedLongBeforeItsTimeOut) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1);
  world.AddDonor(2, 7, 1);
  world.Join(1);
  world.Join(2);
  world.RunFor(6);
  world.donors[Id(1)].silent = true;
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, FetchValues(1));
  EXPECT_LT(world.now - began, Milliseconds(500)) << "the time-out is 2 s";
  EXPECT_GT(world.metrics.Value("crowdsurf_state_hedges_total"), 0);
}

TEST(StateFetchTest, ACorruptDonorIsFoundOutAndLeft) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1).corrupt = true;
  world.AddDonor(2, 7, 1);
  world.Join(1);
  world.Join(2);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, FetchValues(1));
  EXPECT_EQ(world.metrics.Value("crowdsurf_state_chunks_fetched_total", {{"result", "bad"}}), 1);
}

TEST(StateFetchTest, WhenTheAverageIsReplacedTheEqualChunksAreKept) {
  FetchWorld world(FetchWorld::Options());
  FetchDonor& d = world.AddDonor(1, 7, 1);
  world.Join(1);
  world.RunFor(14);
  const size_t before = world.fetch.chunks_kept();
  ASSERT_GT(before, 2u);
  ASSERT_LT(before, 16u);
  // The next average differs in its last third only.
  std::vector<float> next = FetchValues(1);
  for (size_t i = 700'000; i < kFetchElements; ++i) next[i] += 1;
  d.core->Retire(0);
  d.inbox[1] = next;
  d.core->Offer(1, MakeStateManifest(next, AveragingId(8), Digest(), Digest()));
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.done->manifest.averaging, AveragingId(8));
  EXPECT_EQ(world.result, next);
  EXPECT_EQ(world.metrics.Value("crowdsurf_state_chunks_fetched_total", {{"result", "kept"}}), 16)
      << "nothing that was equal was fetched twice";
}

uint64_t SeedOf(uint64_t number) { return 1 + number % 5; }  // none is as the four before it

// Donor 1 makes an average each `interval`, and keeps the last two.
void GoOn(FetchWorld& world, Duration interval, uint64_t number) {
  world.Later(world.now + interval, [&world, interval, number] {
    world.Hold(1, static_cast<int>(number % 2), number, SeedOf(number));
    if (!world.done && !world.failed) GoOn(world, interval, number + 1);
  });
}

// Two chunks in 6 ms, 16 in all; an average lasts for 20 ms.
TEST(StateFetchTest, AFetchThatMayMixEndsHoweverQuicklyItsDonorGoesOn) {
  StateFetchOptions options = FetchWorld::Options();
  options.mix = true;
  options.window = 2;
  FetchWorld world(options);
  world.samples = 100;
  world.AddDonor(1, 7, SeedOf(7));
  world.Join(1);
  GoOn(world, Milliseconds(10), 8);
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.done.has_value()) << world.failed.value_or("");
  EXPECT_TRUE(world.done->mixed);
  EXPECT_LT(world.now - began, Milliseconds(500));
  EXPECT_GT(world.metrics.Value("crowdsurf_state_retargets_total"), 0);
  // Each value is of one of the averages that the donor had.
  size_t strange = 0;
  for (size_t e = 0; e < kFetchElements; ++e) {
    bool known = false;
    for (uint64_t seed = 1; seed <= 5; ++seed) known |= world.result[e] == FetchValues(seed)[e];
    strange += !known;
  }
  EXPECT_EQ(strange, 0U);
}

TEST(StateFetchTest, WhatMustBeOneAverageIsGivenUpWhenItsDonorGoesOnTooQuickly) {
  StateFetchOptions options = FetchWorld::Options();
  options.window = 2;
  FetchWorld world(options);
  world.samples = 100;
  world.AddDonor(1, 7, SeedOf(7));
  world.Join(1);
  GoOn(world, Milliseconds(10), 8);
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.failed.has_value());
  EXPECT_NE(world.failed->find("gone on 5 times"), std::string::npos) << *world.failed;
  EXPECT_LT(world.now - began, Seconds(2));
}

// First parameters of two workers have nothing in common.
TEST(StateFetchTest, FirstParametersAreNeverMixed) {
  StateFetchOptions options = FetchWorld::Options();
  options.mix = true;
  FetchWorld world(options);
  FetchDonor& d = world.AddDonor(1, 7, 1);  // of no samples
  world.Join(1);
  world.RunFor(14);
  ASSERT_GT(world.fetch.chunks_kept(), 2u);
  d.core->Retire(0);
  world.samples = 100;
  world.Hold(1, 1, 8, 2);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_FALSE(world.done->mixed);
  EXPECT_EQ(world.result, FetchValues(2));
}

// Members that come change how the vector is cut: what was fetched stays where it covers a chunk.
TEST(StateFetchTest, ChunksOfAnotherCutAreKeptWhereTheyAreCovered) {
  StateFetchOptions options = FetchWorld::Options();
  options.mix = true;
  FetchWorld world(options);
  world.samples = 100;
  FetchDonor& d = world.AddDonor(1, 7, 1);
  world.Join(1);
  world.RunFor(14);
  const size_t before = world.fetch.chunks_kept();
  ASSERT_GT(before, 2u);
  d.core->Retire(0);
  d.inbox[1] = FetchValues(2);
  StateManifest manifest = MakeStateManifest(d.inbox[1], AveragingId(8), Digest(), Digest());
  manifest.parts = {300'000, kFetchElements - 300'000};
  manifest.chunk_hashes.clear();
  const auto* bytes = reinterpret_cast<const uint8_t*>(d.inbox[1].data());
  for (const uint64_t part : manifest.parts)
    for (uint64_t left = part * sizeof(float); left > 0;) {
      const uint64_t count = std::min<uint64_t>(left, manifest.chunk_bytes);
      manifest.chunk_hashes.push_back(manifest.Hash({bytes, count}));
      bytes += count;
      left -= count;
    }
  manifest.job_samples = 110;
  d.core->Offer(1, manifest);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->mixed);
  size_t old = 0, strange = 0;
  for (size_t e = 0; e < kFetchElements; ++e) {
    old += world.result[e] == FetchValues(1)[e];
    strange += world.result[e] != FetchValues(1)[e] && world.result[e] != FetchValues(2)[e];
  }
  EXPECT_EQ(strange, 0U);
  EXPECT_GE(old, (before - 1) * kStateChunkBytes / sizeof(float));
}

// A thin link: of eight chunks that are asked for at once the last one comes after 15 s.
TEST(StateFetchTest, ADonorThatAnswersSlowlyButSteadilyIsNoSilentOne) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1).link = Milliseconds(1'900);
  world.Join(1);
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.done.has_value()) << world.failed.value_or("");
  EXPECT_EQ(world.result, FetchValues(1));
  EXPECT_GE(world.now - began, Seconds(30)) << "16 chunks";
}

TEST(StateFetchTest, WithoutProgressItFails) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1).busy = true;
  world.Join(1);
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.failed.has_value());
  EXPECT_NE(world.failed->find("nothing more has come for 30 s"), std::string::npos);
  EXPECT_EQ(world.now - began, Seconds(30));
}

TEST(StateFetchTest, TheNewestAverageWinsAndOfTwoContentsTheOneWithMoreHolders) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 6, 1);
  world.AddDonor(2, 7, 2);
  world.AddDonor(3, 7, 3);
  world.AddDonor(4, 7, 3);
  for (auto& [peer, d] : world.donors) d.delay = Milliseconds(1);
  for (uint8_t n = 1; n <= 4; ++n) world.Join(n);
  world.RunFor(4);  // all are asked; their answers come at one instant
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.done->manifest.averaging, AveragingId(6))
      << "the first manifest decides while its donors serve";
  FetchWorld other(FetchWorld::Options());
  other.AddDonor(2, 7, 2);
  other.AddDonor(3, 7, 3);
  other.AddDonor(4, 7, 3);
  other.AddDonor(1, 6, 1);
  for (uint8_t n = 1; n <= 4; ++n) other.Join(n);
  other.donors[Id(1)].delay = Milliseconds(100);
  other.RunFor(3);
  other.Kill(2);
  other.Run();
  EXPECT_EQ(other.done->manifest.averaging, AveragingId(7));
  EXPECT_EQ(other.result, FetchValues(3));
}

TEST(StateFetchTest, OnlyTheNumberThatWasAskedForIsTaken) {
  StateFetchOptions options = FetchWorld::Options();
  options.averaging = AveragingId(9);
  FetchWorld world(options);
  world.AddDonor(1, 8, 1);
  world.Join(1);
  world.Run();
  ASSERT_TRUE(world.failed.has_value());
  EXPECT_NE(world.failed->find("all 1 donors failed"), std::string::npos);
}

// Its inbox is being written, or its average is not hashed yet: it has one again in a moment.
TEST(StateFetchTest, ADonorWithoutAnAverageJustNowIsAskedAgain) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1).core->Retire(0);
  world.Join(1);
  world.RunFor(1500);
  EXPECT_FALSE(world.failed.has_value()) << *world.failed;
  world.Hold(1, 0, 8, 2);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.done->manifest.averaging, AveragingId(8));
  EXPECT_EQ(world.result, FetchValues(2));
}

TEST(StateFetchTest, ADonorThatNeverHasAnAverageIsGivenUpAfterSomeSeconds) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1).core->Retire(0);
  world.Join(1);
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.failed.has_value());
  EXPECT_NE(world.failed->find("all 1 donors failed"), std::string::npos);
  EXPECT_LT(world.now - began, Seconds(10)) << "another may be named";
}

TEST(StateFetchTest, AnotherSchemaIsNoDonor) {
  FetchWorld world(FetchWorld::Options());
  world.AddDonor(1, 7, 1);
  world.donors[Id(1)].core->Offer(
      0, MakeStateManifest(RandomVector(1, 5), AveragingId(7), Digest(), Digest()));
  world.Join(1);
  world.Run();
  EXPECT_TRUE(world.failed.has_value());
}

TEST(StateFetchTest, WithoutDonorsItEndsAtItsDeadline) {
  FetchWorld world(FetchWorld::Options());
  world.Run();
  EXPECT_TRUE(world.failed.has_value());
}

TEST(StateFetchTest, RandomWorldsEndWithTheRightBytesOrSayThatTheyFailed) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    FetchWorld world(FetchWorld::Options());
    const uint64_t donors = 1 + rng.Uniform(6);
    std::set<uint8_t> honest;
    for (uint8_t n = 1; n <= donors; ++n) {
      FetchDonor& d =
          world.AddDonor(n, 7, 1, rng.Bernoulli(0.5) ? Bytes(rng.Uniform(600'000), n) : Bytes());
      d.delay = Milliseconds(1 + static_cast<int64_t>(rng.Uniform(rng.Bernoulli(0.2) ? 900 : 20)));
      d.corrupt = rng.Bernoulli(0.15);
      d.silent = rng.Bernoulli(0.1);
      if (!d.corrupt && !d.silent) honest.insert(n);
      const Time join = world.now + Milliseconds(static_cast<int64_t>(rng.Uniform(100)));
      world.Later(join, [&world, n] { world.Join(n); });
      const Time event = world.now + Milliseconds(static_cast<int64_t>(rng.Uniform(300)));
      if (rng.Bernoulli(0.25)) {
        honest.erase(n);
        world.Later(event, [&world, n] { world.Kill(n); });
      } else if (rng.Bernoulli(0.4)) {
        world.Later(event, [&world, n] {
          world.donors[Id(n)].core->Retire(0);
          world.Hold(n, 1, 8, 2);
        });
      }
    }
    world.Run();
    ASSERT_TRUE(world.done || world.failed);
    if (!honest.empty()) {
      EXPECT_TRUE(world.done) << world.failed.value_or("");
    }
    if (!world.done) continue;
    EXPECT_EQ(world.result, FetchValues(world.done->manifest.averaging == AveragingId(8) ? 2 : 1));
    if (world.done->opaque) {
      EXPECT_EQ(std::set<uint8_t>(world.opaque.begin(), world.opaque.end()).size(), 1u);
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
