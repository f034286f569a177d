// A joiner and several donors, real cores, under virtual time: delays, deaths, corruption, newer
// averages.
// What arrives is compared with what the donors hold, value by value.
#include "worker/core/state/state_fetch.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/rng.h"
#include "tests/unit/worker_core/state/random_vector.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/state/state_donor.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 1'000'003;  // 16 chunks, the last one short

const std::vector<float>& Vector(uint64_t seed) { return RandomVector(seed, kElements); }

struct DonorBox {
  std::unique_ptr<StateDonor> core;
  std::map<int, std::vector<float>> inbox;
  Bytes opaque;
  Duration delay = Milliseconds(3);
  bool alive = true, silent = false, corrupt = false;
};

// The world: messages are delivered in order of time, ties in order of sending.
struct World {
  explicit World(StateFetchOptions o) : options(o), fetch(now, o, metrics) {}

  static StateFetchOptions Options() {
    StateFetchOptions o;
    o.elements = kElements;
    return o;
  }

  DonorBox& AddDonor(uint8_t n, uint64_t number, uint64_t seed, Bytes state = {}) {
    DonorBox& d = donors[Id(n)];
    d.core = std::make_unique<StateDonor>(StateDonorOptions{}, metrics);
    Hold(n, 0, number, seed);
    d.opaque = std::move(state);
    d.core->SetOpaque({d.opaque.size(), Sha256(d.opaque)});
    return d;
  }
  void Hold(uint8_t n, int inbox, uint64_t number, uint64_t seed) {
    DonorBox& d = donors[Id(n)];
    d.inbox[inbox] = Vector(seed);
    d.core->Offer(inbox,
                  MakeStateManifest(d.inbox[inbox], AveragingId(number), Digest(), Digest()));
  }

  void Execute(const FetchActions& actions, ByteView payload) {
    for (const FetchAction& action : actions) {
      if (const auto* ask = std::get_if<AskDonor>(&action)) {
        (std::holds_alternative<FetchOver>(ask->message) ? overs : asked)[ask->to]++;
        Later(now + donors[ask->to].delay, [this, a = *ask] { Serve(a); });
      } else if (const auto* keep = std::get_if<KeepChunk>(&action)) {
        ASSERT_LE(keep->offset + payload.size(), result.size() * 4);
        memcpy(reinterpret_cast<uint8_t*>(result.data()) + keep->offset, payload.data(),
               payload.size());
      } else if (const auto* part = std::get_if<KeepOpaque>(&action)) {
        opaque.resize(part->bytes);
        memcpy(opaque.data() + part->offset, payload.data(), payload.size());
      } else if (const auto* verify = std::get_if<VerifyOpaque>(&action)) {
        const bool good = Sha256(opaque) == verify->hash;
        ++verifies;
        Later(now + hash_takes, [this, good] {
          Feed([&](FetchActions& o) {
            good ? fetch.OnOpaqueVerified(now, o) : fetch.OnOpaqueCorrupt(now, o);
          });
        });
      } else if (const auto* done_now = std::get_if<FetchDone>(&action)) {
        done = *done_now;
      } else if (const auto* failed_now = std::get_if<FetchFailed>(&action)) {
        failed = failed_now->why;
      }
    }
  }
  template <class F>
  void Feed(F input, ByteView payload = {}) {
    FetchActions out;
    input(out);
    Execute(out, payload);
  }

  void Serve(const AskDonor& ask) {
    DonorBox& d = donors[ask.to];
    if (!d.alive || d.silent) return;
    if (std::holds_alternative<FetchOver>(ask.message)) return d.core->OnOver(Id(200));
    const auto send = d.core->OnMessage(now, Id(200), ask.message);
    Bytes payload;
    if (send->bytes > 0) {
      const uint8_t* from = send->inbox < 0
                                ? d.opaque.data()
                                : reinterpret_cast<const uint8_t*>(d.inbox[send->inbox].data());
      payload.assign(from + send->offset, from + send->offset + send->bytes);
      if (d.corrupt) payload[payload.size() / 2] ^= 1;
      d.core->OnSent(Id(200));
    }
    // Over the wire: encoded and decoded, as the transport would.
    Bytes frame = EncodeStateMessage(send->message);
    frame.insert(frame.end(), payload.begin(), payload.end());
    Later(now + d.delay, [this, peer = ask.to, frame] {
      const auto decoded = DecodeStateMessage(frame);
      ASSERT_TRUE(decoded.has_value());
      Feed(
          [&](FetchActions& o) {
            fetch.OnReply(now, peer, decoded->message,
                          {decoded->payload.size(), HashStateChunk(decoded->payload)}, o);
          },
          decoded->payload);
    });
  }
  void Later(Time at, std::function<void()> what) { queue.emplace(at, std::move(what)); }
  void Join(uint8_t n) {
    Feed([&](FetchActions& o) { fetch.OnDonor(now, Id(n), o); });
  }
  void Kill(uint8_t n) {
    donors[Id(n)].alive = false;
    Feed([&](FetchActions& o) { fetch.OnDonorFailed(now, Id(n), o); });
  }

  // Runs until the fetch ends, at most `steps` events.
  void Run(int steps = 100'000) {
    while (!done && !failed && --steps > 0) {
      const Time timer = fetch.NextDeadline();
      if (queue.empty() || timer < queue.begin()->first) {
        ASSERT_GE(timer, now);
        now = timer;
        Feed([&](FetchActions& o) { fetch.OnTimer(now, o); });
        continue;
      }
      auto node = queue.extract(queue.begin());
      now = node.key();
      node.mapped()();
    }
    EXPECT_GT(steps, 0) << "the fetch does not come to an end";
  }
  void RunFor(int steps) {
    while (steps-- > 0 && !queue.empty()) {
      auto node = queue.extract(queue.begin());
      now = node.key();
      node.mapped()();
    }
  }

  Time now = Time::FromNanoseconds(1'000'000'000);
  StateFetchOptions options;
  MetricRegistry metrics;
  StateFetch fetch;
  std::map<PeerId, DonorBox> donors;
  std::map<PeerId, int> asked, overs;
  Duration hash_takes;  // of an opaque state
  int verifies = 0;
  std::multimap<Time, std::function<void()>> queue;
  std::vector<float> result = std::vector<float>(kElements);
  Bytes opaque;
  std::optional<FetchDone> done;
  std::optional<std::string> failed;
};

TEST(StateFetchTest, ChunksComeFromSeveralDonorsAndTheOpaqueStateFromOne) {
  World world(World::Options());
  const Bytes state(700'000, 9);
  for (uint8_t n = 1; n <= 3; ++n) {
    world.AddDonor(n, 7, 1, n == 2 ? state : Bytes());
    world.Join(n);
  }
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, Vector(1));
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state);
  EXPECT_EQ(world.done->manifest.averaging, AveragingId(7));
  for (uint8_t n = 1; n <= 3; ++n) EXPECT_GE(world.asked[Id(n)], 4) << int{n};
  EXPECT_EQ(world.fetch.NextDeadline(), Time::Infinite());
  EXPECT_EQ(world.overs, (std::map<PeerId, int>{{Id(1), 1}, {Id(2), 1}, {Id(3), 1}}))
      << "each donor is told that its place is free";
}

TEST(StateFetchTest, OfAnOpaqueStateOfWholeChunksNoOtherIsAskedFor) {
  World world(World::Options());
  const Bytes state(2 * kStateChunkBytes, 9);
  world.AddDonor(1, 7, 1, state);
  world.Join(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state);
}

TEST(StateFetchTest, ADonorThatDiesCostsOnlyWhatItHadNotSent) {
  World world(World::Options());
  for (uint8_t n = 1; n <= 2; ++n) {
    world.AddDonor(n, 7, 1);
    world.Join(n);
  }
  world.RunFor(16);
  const size_t before = world.fetch.chunks_kept();
  ASSERT_GT(before, 0u);
  world.Kill(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, Vector(1));
  EXPECT_EQ(world.metrics.Value("crowdsurf_state_chunks_fetched_total", {{"result", "kept"}}), 16);
}

TEST(StateFetchTest, ASilentDonorIsHedgedLongBeforeItsTimeOut) {
  World world(World::Options());
  world.AddDonor(1, 7, 1);
  world.AddDonor(2, 7, 1);
  world.Join(1);
  world.Join(2);
  world.RunFor(6);
  world.donors[Id(1)].silent = true;
  const Time began = world.now;
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, Vector(1));
  EXPECT_LT(world.now - began, Milliseconds(500)) << "the time-out is 2 s";
  EXPECT_GT(world.metrics.Value("crowdsurf_state_hedges_total"), 0);
}

TEST(StateFetchTest, ACorruptDonorIsFoundOutAndLeft) {
  World world(World::Options());
  world.AddDonor(1, 7, 1).corrupt = true;
  world.AddDonor(2, 7, 1);
  world.Join(1);
  world.Join(2);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_EQ(world.result, Vector(1));
  EXPECT_EQ(world.metrics.Value("crowdsurf_state_chunks_fetched_total", {{"result", "bad"}}), 1);
}

TEST(StateFetchTest, AnOpaqueStateThatDoesNotVerifyIsTakenElsewhere) {
  World world(World::Options());
  const Bytes good(300'000, 3);
  world.AddDonor(1, 7, 1, Bytes(300'000, 2)).opaque[5] = 77;  // its hash was made before
  world.AddDonor(2, 7, 1, good);
  world.Join(1);
  world.Join(2);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, good);
}

// A verdict must not be taken for that of another donor's state, of which half is here.
TEST(StateFetchTest, ADonorThatDiesWhileItsStateIsHashedIsNotReplaced) {
  World world(World::Options());
  world.hash_takes = Milliseconds(40);
  const Bytes state(3'000'000, 2);
  for (uint8_t n = 1; n <= 2; ++n) {
    world.AddDonor(n, 7, 1, n == 1 ? state : Bytes(3'000'000, 3));
    world.Join(n);
  }
  while (world.verifies == 0) world.RunFor(1);
  world.Kill(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state) << "all of it had come";
}

TEST(StateFetchTest, AHashThatTakesLongIsWaitedForWithoutAnyDonor) {
  World world(World::Options());
  world.hash_takes = World::Options().alone_patience * 2;
  const Bytes state(300'000, 2);
  world.AddDonor(1, 7, 1, state);
  world.Join(1);
  const auto whole = [&] { return world.fetch.chunks_kept() == 16; };
  while (world.verifies == 0 || !whole()) world.RunFor(1);
  world.Kill(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state);
}

TEST(StateFetchTest, WhenTheAverageIsReplacedTheEqualChunksAreKept) {
  World world(World::Options());
  DonorBox& d = world.AddDonor(1, 7, 1);
  world.Join(1);
  world.RunFor(14);
  const size_t before = world.fetch.chunks_kept();
  ASSERT_GT(before, 2u);
  ASSERT_LT(before, 16u);
  // The next average differs in its last third only.
  std::vector<float> next = Vector(1);
  for (size_t i = 700'000; i < kElements; ++i) next[i] += 1;
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

TEST(StateFetchTest, TheNewestAverageWinsAndOfTwoContentsTheOneWithMoreHolders) {
  World world(World::Options());
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
  World other(World::Options());
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
  EXPECT_EQ(other.result, Vector(3));
}

TEST(StateFetchTest, OnlyTheNumberThatWasAskedForIsTaken) {
  StateFetchOptions options = World::Options();
  options.averaging = AveragingId(9);
  World world(options);
  world.AddDonor(1, 8, 1);
  world.Join(1);
  world.Run();
  ASSERT_TRUE(world.failed.has_value());
  EXPECT_NE(world.failed->find("all 1 donors failed"), std::string::npos);
}

TEST(StateFetchTest, AnotherSchemaIsNoDonor) {
  World world(World::Options());
  world.AddDonor(1, 7, 1);
  world.donors[Id(1)].core->Offer(
      0, MakeStateManifest(RandomVector(1, 5), AveragingId(7), Digest(), Digest()));
  world.Join(1);
  world.Run();
  EXPECT_TRUE(world.failed.has_value());
}

TEST(StateFetchTest, WithoutDonorsItEndsAtItsDeadline) {
  World world(World::Options());
  world.Run();
  EXPECT_TRUE(world.failed.has_value());
}

TEST(StateFetchTest, RandomWorldsEndWithTheRightBytesOrSayThatTheyFailed) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    World world(World::Options());
    const uint64_t donors = 1 + rng.Uniform(6);
    std::set<uint8_t> honest;
    for (uint8_t n = 1; n <= donors; ++n) {
      DonorBox& d =
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
    EXPECT_EQ(world.result, Vector(world.done->manifest.averaging == AveragingId(8) ? 2 : 1));
    if (world.done->opaque) {
      EXPECT_EQ(std::set<uint8_t>(world.opaque.begin(), world.opaque.end()).size(), 1u);
    }
  }
}

}  // namespace
}  // namespace crowdsurf::worker
