// Requests to stand-ins are counted: whom a round waits for does not grow with its chunks.
#include "worker/core/round/asked_inputs.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {
namespace {

constexpr int kSpeaker = 7;
using Owing = std::map<PeerId, size_t>;

TEST(AskedInputsTest, WhoOwesHowManyFollowsFromTheRequestsThatStand) {
  AskedInputs asked;
  asked.Add(ChunkIndex(0), 2, {PeerAt(5), 0});
  asked.Add(ChunkIndex(1), 2, {PeerAt(5), 0});
  asked.Add(ChunkIndex(1), 3, {PeerAt(6), 0});
  EXPECT_EQ(asked.owing(), (Owing{{PeerAt(5), 2}, {PeerAt(6), 1}}));
  asked.Add(ChunkIndex(0), 2, {PeerAt(6), 4});  // in the place of the first
  EXPECT_EQ(asked.owing(), (Owing{{PeerAt(5), 1}, {PeerAt(6), 2}}));
  EXPECT_EQ(asked.Find(ChunkIndex(0), 2)->assigned, 4);
  asked.EraseChunk(ChunkIndex(1));
  EXPECT_EQ(asked.owing(), (Owing{{PeerAt(6), 1}}));
  EXPECT_EQ(asked.Find(ChunkIndex(1), 3), nullptr);
  asked.EraseChunk(ChunkIndex(1));
  asked.EraseRank(3);
  EXPECT_EQ(asked.owing(), (Owing{{PeerAt(6), 1}}));
  asked.EraseRank(2);
  EXPECT_TRUE(asked.owing().empty());
  asked.Add(ChunkIndex(4), 2, {PeerAt(5), 0});
  asked.Add(ChunkIndex(5), 2, {PeerAt(6), 0});
  asked.EraseSpeaker(PeerAt(5));
  EXPECT_EQ(asked.owing(), (Owing{{PeerAt(6), 1}}));
  asked.Clear();
  EXPECT_TRUE(asked.owing().empty());
  EXPECT_TRUE(asked.requests().empty());
}

// Two members and a hole that a stand-in speaks for.
RoundSpec SpecWithAHole(uint32_t chunks) {
  RoundSpec spec;
  for (size_t rank = 0; rank < 2; ++rank) {
    spec.cells.push_back({PeerAt(rank), {}});
    spec.witnesses.push_back(PeerAt(rank));
  }
  spec.cells.push_back({std::nullopt, {PeerAt(kSpeaker)}});
  for (uint32_t c = 0; c < chunks; ++c) spec.chunks.push_back({static_cast<uint16_t>(c % 2), c, 1});
  spec.stake.weight = 1;
  return spec;
}

// It looked at each request of the round at every chunk, also those that had been answered.
TEST(AskedInputsTest, ARoundWaitsForAStandInUntilItsLastInputIsFolded) {
  constexpr uint32_t kChunks = 10;
  const RoundSpec spec = SpecWithAHole(kChunks);
  Round round(spec);
  RoundActions out;
  round.Start(out);
  const Ready ready{spec.stake, {}, MemberListHash(spec.cells), PartsHash(spec.chunks), false};
  round.OnFrame(PeerAt(1), {InstanceId(), ready}, out);
  round.OnFrame(PeerAt(kSpeaker), {InstanceId(), Speak{2, spec.stake, Sha256(AsBytes("held"))}},
                out);
  for (uint32_t c = 0; c < kChunks; c += 2) {
    EXPECT_EQ(round.WaitingForMembers(), std::nullopt) << c;
    EXPECT_EQ(round.WaitingFor(), (std::set<PeerId>{PeerAt(1), PeerAt(kSpeaker)})) << c;
    ASSERT_TRUE(round.OnInput(PeerAt(1), 1, ChunkIndex(c), 0, out));
    ASSERT_TRUE(round.OnInput(PeerAt(kSpeaker), 2, ChunkIndex(c), 0, out));
    round.OnFolded(ChunkIndex(c), 0, 7, out);
  }
  EXPECT_EQ(round.WaitingForMembers(), RankSet::Of(1));
  EXPECT_EQ(round.WaitingFor(), std::set<PeerId>{PeerAt(1)});
}

}  // namespace
}  // namespace crowdsurf::worker
