// Whose turn it is: a message that is renewed over and over starves no chunk.
#include "worker/core/link/chunk_turn.h"

#include <gtest/gtest.h>

#include <vector>

namespace crowdsurf::worker {
namespace {

std::vector<uint32_t> Take(ChunkTurn& turn, size_t most) {
  std::vector<uint32_t> taken;
  while (!turn.done() && taken.size() < most) {
    taken.push_back(turn.next());
    turn.Advance();
  }
  return taken;
}

using Chunks = std::vector<uint32_t>;

TEST(ChunkTurnTest, ChunksLeaveInOrder) {
  ChunkTurn turn(3);
  EXPECT_EQ(Take(turn, 9), Chunks({0, 1, 2}));
  EXPECT_TRUE(turn.done());
}

TEST(ChunkTurnTest, ANewerMessageGoesOnAndComesRound) {
  ChunkTurn turn(4);
  EXPECT_EQ(Take(turn, 3), Chunks({0, 1, 2}));
  turn.Renew(4);
  EXPECT_EQ(Take(turn, 9), Chunks({3, 0, 1, 2}));
}

// A link that carries three of five chunks from one message to the next.
TEST(ChunkTurnTest, NoChunkIsLeftOut) {
  ChunkTurn turn(5);
  std::vector<int> left(5, 0);
  for (int message = 0; message < 50; ++message) {
    for (const uint32_t chunk : Take(turn, 3)) ++left[chunk];
    turn.Renew(5);
  }
  for (const int times : left) EXPECT_EQ(times, 30);
}

TEST(ChunkTurnTest, AMessageOfAnotherLengthBeginsAtItsFirst) {
  ChunkTurn turn(4);
  EXPECT_EQ(Take(turn, 3).size(), 3U);
  turn.Renew(2);
  EXPECT_EQ(Take(turn, 9), Chunks({0, 1}));
}

TEST(ChunkTurnTest, AMessageWithoutChunksHasLeft) { EXPECT_TRUE(ChunkTurn(0).done()); }

}  // namespace
}  // namespace crowdsurf::worker
