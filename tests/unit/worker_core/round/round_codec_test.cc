// Frames of rounds as bytes: each comes back as it was, garbage is refused, and a root names all of
// a value.
#include "worker/core/round/round_codec.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

InstanceId Instance() {
  return *InstanceId::From(Sha256(AsBytes("i")).view().first(InstanceId::kBytes));
}

RoundValue SomeValue(Rng& rng, size_t chunks) {
  RoundValue value;
  for (size_t c = 0; c < chunks; ++c)
    value.chunks.push_back(
        {static_cast<Ballot>(rng.Uniform(3)), RankSet::FromBits(1 + rng.Uniform(15)), rng.Next()});
  value.stakes = {{1, 2, {AveragingId(3), 4}}, {}, {2.5, 0, {}}, {1e300, 0, {}}};
  return value;
}

std::vector<FrameBody> AllBodies(Rng& rng) {
  const RoundValue value = SomeValue(rng, 9);
  const HeldValue held{RankSet::FirstRanks(3), value};
  StatusFrame status;
  status.ballot = 5;
  status.complete = 0;
  status.held = value.chunks;
  status.held[3] = ChunkValue();
  status.served = {ChunkIndex(1), ChunkIndex(4)};
  status.plans[2] = Sha256(AsBytes("plan"));
  status.stakes = {{0, {1.5, 1, {AveragingId(7), 70}, Sha256(AsBytes("v"))}}, {63, Stake()}};
  Plan plan;
  plan.ballot = 9;
  plan.members = RankSet::Of(0, 1);
  plan.stakes = {{1, {2, 3, {AveragingId(4), 5}}}};
  plan.chunks = {
      {0, 1, {}, {}}, {9, 0, {}, {}}, {2, 1, RankSet::Of(1), {2, RankSet::Of(0, 1), 77}}};
  return {Ready{{3, 2, {AveragingId(1), 10}}, Sha256(AsBytes("s")), {}, {}},
          Speak{2, {4, 5, {AveragingId(6), 7}}, Sha256(AsBytes("r"))},
          Ask{1, 2, {ChunkIndex(3), ChunkIndex(4)}},
          Have{1, Sha256(AsBytes("h"))},
          BallotOpen{3, true, 2, {4, AveragingId(5), 6}},
          status,
          Promise{3, 2, EncodeHeldValue(held)},
          plan,
          Accept{3, {1, AveragingId(2), 3}, EncodeHeldValue(held), {PeerId()}},
          Accepted{3, Sha256(AsBytes("v"))},
          Decided{3, false, held},
          Refused{4},
          Forgotten{4},
          Fetch{{ChunkIndex(9), ChunkIndex(8)}},
          Bye{ByeReason::kSatOut},
          Beat{5}};
}

TEST(RoundCodecTest, EveryFrameComesBackAsItWas) {
  Rng rng(1);
  const std::vector<FrameBody> bodies = AllBodies(rng);
  ASSERT_EQ(bodies.size(), std::variant_size_v<FrameBody>);
  for (size_t kind = 0; kind < bodies.size(); ++kind) {
    EXPECT_EQ(bodies[kind].index(), kind);
    const Frame frame{Instance(), bodies[kind]};
    const Bytes bytes = EncodeFrame(frame);
    EXPECT_EQ(DecodeFrame(bytes), frame) << KindOf(frame);
    EXPECT_EQ(PeekInstance(bytes), Instance());
  }
}

TEST(RoundCodecTest, GarbageIsRefusedAndNeverCrashes) {
  Rng rng(2);
  size_t decoded = 0;
  for (int run = 0; run < 40'000; ++run) {
    const std::vector<FrameBody> bodies = AllBodies(rng);
    Bytes bytes = EncodeFrame({Instance(), bodies[rng.Uniform(bodies.size())]});
    for (uint64_t k = 1 + rng.Uniform(4); k > 0 && !bytes.empty(); --k) {
      switch (rng.Uniform(3)) {
        case 0:
          bytes[rng.Uniform(bytes.size())] ^= static_cast<uint8_t>(1 << rng.Uniform(8));
          break;
        case 1:
          bytes.resize(rng.Uniform(bytes.size() + 1));
          break;
        default:
          bytes.push_back(static_cast<uint8_t>(rng.Next()));
      }
    }
    const std::optional<Frame> frame = DecodeFrame(bytes);
    if (!frame) continue;
    ++decoded;
    EXPECT_TRUE(DecodeFrame(EncodeFrame(*frame)).has_value());
  }
  EXPECT_GT(decoded, 0U);  // a flipped bit in a hash is still a frame
}

TEST(RoundCodecTest, AManifestOfFourThousandChunksIsUnder64KiB) {
  Rng rng(3);
  HeldValue held{RankSet::FirstRanks(3), SomeValue(rng, 4096)};
  for (size_t c = 0; c < held.value.chunks.size(); ++c) {
    held.value.chunks[c].assigned = c < 2000 ? 0 : 5;
    held.value.chunks[c].mask = RankSet::FirstRanks(c < 3000 ? 3 : 2);
  }
  EXPECT_LT(EncodeHeldValue(held).size(), size_t{64} << 10);
}

TEST(RoundCodecTest, AnyChangeOfAValueChangesItsRoot) {
  Rng rng(4);
  const RoundValue value = SomeValue(rng, 3);
  std::vector<RoundValue> others(8, value);
  others[0].chunks[1].hash ^= 1;
  RankSet& mask = others[1].chunks[2].mask;
  mask = RankSet::FromBits(mask.bits() ^ 1);
  others[2].chunks[0].assigned ^= 1;
  others[3].stakes[0].weight = 2;
  others[4].stakes[0].samples = 1;
  others[5].stakes[0].before.averaging = AveragingId(2);
  others[6].stakes[0].before.samples = 2;
  others[7].stakes[0].holds = Sha256(AsBytes("other"));
  for (const RoundValue& other : others) EXPECT_NE(RootOf(other), RootOf(value));
}

}  // namespace
}  // namespace crowdsurf::worker
