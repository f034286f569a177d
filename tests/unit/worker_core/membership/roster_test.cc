// Roster records: heartbeats, shards and lives as docs/views.md (Roster) has them. What decodes is
// the only encoding of what it says.
#include "worker/core/membership/roster.h"
#include "base/metrics.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

RosterRecord RecordOf(uint8_t n) {
  RosterRecord record;
  record.contact = {Id(n), "w" + std::to_string(n), "127.0.0.1:1", "127.0.0.1:2"};
  record.member = {.id = Id(n), .cell = 3, .joined_unix_ms = 17, .on_demand = true};
  record.ready = true;
  record.seated = true;
  record.epoch = 4;
  record.lineage.members = 8;
  record.committed = {.averaging = AveragingId(9), .root = {}, .job_samples = 1234.5};
  return record;
}

const Time kStart = Time::FromNanoseconds(1'000'000'000);

template <class A>
size_t Count(const Actions& actions) {
  size_t count = 0;
  for (const Action& action : actions) count += std::holds_alternative<A>(action);
  return count;
}

struct RosterTest : testing::Test {
  PeerConfig config;
  MetricRegistry registry;
  PeerMetrics metrics{registry};
  RosterTest() {
    config.job = "job";
    config.id = Id(200);
  }
};

TEST_F(RosterTest, RecordsComeBackAndMutatedOnesAreRefusedOrCanonical) {
  Rng rng(3);
  const RosterRecord record = RecordOf(7);
  const Bytes bytes = Encode(record);
  EXPECT_TRUE(DecodeRosterRecord(Id(7), bytes) == record);
  EXPECT_FALSE(DecodeRosterRecord(Id(8), bytes));  // another's name in it
  for (int i = 0; i < 20'000; ++i) {
    Bytes bad = bytes;
    bad[rng.Uniform(bad.size())] = static_cast<uint8_t>(rng.Next());
    if (rng.Bernoulli(0.2)) bad.resize(rng.Uniform(bad.size()));
    const auto decoded = DecodeRosterRecord(Id(7), bad);
    if (decoded) {
      EXPECT_EQ(Encode(*decoded), bad);
    }
  }
}

TEST_F(RosterTest, ARecordLivesAsLongAsItSaysAndIntroducesItsOwnerOnce) {
  Roster roster(config, metrics);
  Actions out;
  EXPECT_FALSE(roster.answered(kStart));
  const PeerRecord record{"k", Id(1), Encode(RecordOf(1)), Seconds(3)};
  EXPECT_EQ(roster.OnRecords(kStart, {record}, out).changed.size(), 1U);
  EXPECT_TRUE(roster.answered(kStart));
  EXPECT_TRUE(roster.OnRecords(kStart + Seconds(1), {record}, out).changed.empty());
  EXPECT_EQ(Count<Introduce>(out), 1U);
  EXPECT_TRUE(roster.TakeExpired(kStart + Seconds(3.5)).empty());
  EXPECT_EQ(roster.TakeExpired(kStart + Seconds(4)).size(), 1U);
  EXPECT_EQ(roster.Find(Id(1)), nullptr);
}

// A key is one peer, whatever boots its owner makes up.
TEST_F(RosterTest, OfOneKeyTheRecordOfTheHighestBootCounts) {
  Roster roster(config, metrics);
  Actions out;
  const auto of = [](uint8_t id, uint8_t key, uint64_t boot) {
    return PeerRecord{"k", Id(id), Encode(RecordOf(id)), Seconds(3), {key}, boot};
  };
  EXPECT_TRUE(roster.OnRecords(kStart, {of(1, 7, 4), of(2, 8, 1)}, out).replaced.empty());
  EXPECT_EQ(roster.OnRecords(kStart, {of(3, 7, 5)}, out).replaced, std::vector{Id(1)});
  EXPECT_EQ(roster.Find(Id(1)), nullptr);
  EXPECT_NE(roster.Find(Id(2)), nullptr);
  EXPECT_NE(roster.Find(Id(3)), nullptr);
  EXPECT_TRUE(roster.OnRecords(kStart, {of(1, 7, 4)}, out).changed.empty());
  EXPECT_EQ(
      registry.Value("crowdsurf_peer_messages_refused_total", {{"reason", "roster_old_boot"}}), 1);
  roster.TakeExpired(kStart + Seconds(4));
  EXPECT_TRUE(roster.live().empty());
  // Nothing is known of that key any more.
  EXPECT_EQ(roster.OnRecords(kStart + Seconds(5), {of(1, 7, 4)}, out).changed.size(), 1U);
}

TEST_F(RosterTest, GarbageIsCountedAndChangesNothing) {
  Roster roster(config, metrics);
  Actions out;
  roster.OnRecords(kStart, {{"k", Id(1), {1, 2, 3}, Seconds(3)}}, out);
  EXPECT_TRUE(roster.live().empty());
  EXPECT_EQ(registry.Value("crowdsurf_peer_messages_refused_total", {{"reason", "roster_record"}}),
            1);
}

TEST_F(RosterTest, NewsArePutAtOnceStepsAloneWaitForTheHeartbeat) {
  Roster roster(config, metrics);
  Actions out;
  RosterRecord own = RecordOf(200);
  roster.Keep(kStart, own, {8, true}, out);
  EXPECT_EQ(Count<PutRecord>(out), 1U);
  own.step = 50;
  roster.Keep(kStart + Milliseconds(100), own, {8, true}, out);
  EXPECT_EQ(Count<PutRecord>(out), 1U);
  own.epoch = 5;
  roster.Keep(kStart + Milliseconds(200), own, {8, true}, out);
  EXPECT_EQ(Count<PutRecord>(out), 2U);
  roster.Keep(kStart + Milliseconds(1300), own, {8, true}, out);
  EXPECT_EQ(Count<PutRecord>(out), 3U);
}

TEST_F(RosterTest, ABigJobSpreadsItsRecordsAndSlowsItsHeartbeat) {
  Roster roster(config, metrics);
  Actions out;
  roster.Start(out);
  EXPECT_EQ(Count<WatchKey>(out), 1U);
  roster.Keep(kStart, RecordOf(200), {1000, false}, out);
  EXPECT_GE(Count<WatchKey>(out), 10U);
  EXPECT_NEAR(roster.Ttl().seconds(), 30, 1e-6);
  roster.Keep(kStart + Seconds(5), RecordOf(200), {8, false}, out);
  EXPECT_EQ(Count<WatchKey>(out) - Count<UnwatchKey>(out), 1U);
}

// The peer sets its timer to the end of the gap: at that time the record has to go out.
TEST_F(RosterTest, ARecordIsPutAtTheVeryEndOfItsGap) {
  Roster roster(config, metrics);
  Actions out;
  RosterRecord own = RecordOf(200);
  const auto puts_at = [&](double seconds) {
    roster.Keep(kStart + Seconds(seconds), own, {8, true}, out);
    return Count<PutRecord>(out);
  };
  EXPECT_EQ(puts_at(0), 1U);
  EXPECT_EQ(puts_at(0.999), 1U);
  EXPECT_EQ(puts_at(1), 2U) << "a heartbeat a second";
  own.epoch = 5;
  EXPECT_EQ(puts_at(1.009), 2U);
  EXPECT_EQ(puts_at(1.01), 3U) << "news, 10 ms after the last";
}

}  // namespace
}  // namespace crowdsurf::worker
