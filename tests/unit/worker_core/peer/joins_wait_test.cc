// Joiners that come while there is nothing to fetch: what they wait for, and for how long.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

// With two axes an averaging writes over the last average before it has one of its own. Joiners
// come at any instant of it. One that is told to wait asks again after a second.
TEST(JoinsWaitTest, AJoinerIsSentToFetchAsSoonAsThereIsAnAverage) {
  size_t waited = 0;
  for (int64_t at = 0; at < 120; at += 6) {
    PeerWorld world(41, EveryTenSteps(2));
    for (size_t i = 0; i < 4; ++i)
      world.node(world.Add()).drift = 0.25 * static_cast<double>(i + 1);
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.jitter = 20;  // rounds take tens of milliseconds
    world.RunFor(Milliseconds(500 + at));
    world.lose = [&](size_t, size_t to, const Message& message) {
      const auto* answer = std::get_if<message::JoinAnswer>(&message);
      waited += answer != nullptr && to == 4 && answer->kind == message::JoinAnswer::Kind::kWait &&
                world.node(4).fetches.empty();
      return false;
    };
    world.Add();
    const auto took = world.UntilTogether(Seconds(5));
    ASSERT_TRUE(took) << at << world.Describe();
    EXPECT_LT(*took, Milliseconds(800)) << at;
    EXPECT_EQ(world.Summary(4).joined_with_state, true) << at;
  }
  EXPECT_GT(waited, 0U) << "there was always an average: this tested nothing";
}

}  // namespace
}  // namespace crowdsurf::worker
