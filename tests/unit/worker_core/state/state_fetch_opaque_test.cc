// The opaque state of one donor: asked for as a whole, verified, and taken elsewhere if it is
// wrong.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/state/fetch_world.h"

namespace crowdsurf::worker {
namespace {

TEST(StateFetchTest, OfAnOpaqueStateOfWholeChunksNoOtherIsAskedFor) {
  FetchWorld world(FetchWorld::Options());
  const Bytes state(2 * kStateChunkBytes, 9);
  world.AddDonor(1, 7, 1, state);
  world.Join(1);
  world.Run();
  ASSERT_TRUE(world.done.has_value());
  EXPECT_TRUE(world.done->opaque);
  EXPECT_EQ(world.opaque, state);
}

TEST(StateFetchTest, AnOpaqueStateThatDoesNotVerifyIsTakenElsewhere) {
  FetchWorld world(FetchWorld::Options());
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
  FetchWorld world(FetchWorld::Options());
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
  FetchWorld world(FetchWorld::Options());
  world.hash_takes = FetchWorld::Options().alone_patience * 2;
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

}  // namespace
}  // namespace crowdsurf::worker
