// The next view, in a small world of real peers: when it is made, whom it waits for, and who may
// come beside it.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"
#include "worker/core/membership/membership.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {
namespace {

TEST(NextViewTest, AveragingsWithoutAPauseDoNotKeepAViewFromBeingRenewed) {
  AveragingConfig config = EveryTenSteps();
  config.interval = 1;  // everybody is due again before an averaging is over
  PeerWorld world(14, config);
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(2))) << world.Describe();
  ExpectAgreement(world);
}

TEST(NextViewTest, ANewerConfigurationActsThroughTheNextView) {
  PeerWorld world(16, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  AveragingConfig config = EveryTenSteps(8);
  config.generation = 2;
  for (size_t i = 0; i < 8; ++i) world.Local(i, ConfigChanged{config});
  world.RunFor(Seconds(1));
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(world.Summary(i).view->radices, (std::vector<uint16_t>{8})) << i;
}

void Reconfigure(PeerWorld& world, uint64_t generation) {
  AveragingConfig config = EveryTenSteps(8);
  config.generation = generation;
  for (size_t i = 0; i < world.size(); ++i) world.Local(i, ConfigChanged{config});
}

// Witnesses forget the rounds of views two epochs old. One member's round goes on, because its
// frames are lost for a while, when a third view is wanted.
TEST(NextViewTest, TheNextViewWaitsForWhoIsInTheParentYetButNotForEver) {
  constexpr size_t kSlow = 4;
  for (const Duration lost : {Milliseconds(300), Seconds(10)}) {
    PeerWorld world(19, EveryTenSteps(8));
    for (int i = 0; i < 5; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Seconds(1));
    const auto epoch = [&](size_t i) { return world.Summary(i).view->epoch; };
    const uint64_t first = epoch(0);
    const Time healed = world.now() + lost;
    world.lose = [&](size_t, size_t to, const Message& message) {  // bytes move all the same
      const auto* round = std::get_if<message::RoundFrame>(&message);
      return world.now() < healed && to == kSlow && round != nullptr &&
             !std::holds_alternative<Ready>(DecodeFrame(round->frame)->body);
    };
    const size_t rounds = world.node(kSlow).weights.size();
    while (world.node(kSlow).weights.size() == rounds) world.RunFor(Milliseconds(1));
    world.RunFor(Milliseconds(30));
    Reconfigure(world, 2);
    while (epoch(0) == first) world.RunFor(Milliseconds(1));
    const Time second = world.now();
    ASSERT_EQ(epoch(kSlow), first) << "it is in no round: this tests nothing";
    Reconfigure(world, 3);
    while (epoch(0) == first + 1 && epoch(kSlow) == first) world.RunFor(Milliseconds(1));
    const double waited = (world.now() - second).seconds();
    EXPECT_GT(waited, 0.15);
    EXPECT_LT(waited, 2);  // a second, and what it takes to get between two averagings
    if (lost < Seconds(1)) {
      EXPECT_EQ(epoch(kSlow), first + 1) << "its round was taken from it";
    }
    const auto took = world.UntilTogether(Seconds(10));
    ASSERT_TRUE(took) << world.Describe();
    world.RunFor(Seconds(2));
    EXPECT_EQ(epoch(0), first + 2);
  }
}

// The steward dies when witnesses have accepted its view and nobody knows that it is decided. It
// stands, and has no place for a peer that took a seat in its parent since.
TEST(NextViewTest, NobodyIsSeatedBesideASuccessorThatIsProposed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PeerWorld world(seed, EveryTenSteps(8));
    for (int i = 0; i < 6; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Milliseconds(500) + Milliseconds(static_cast<int64_t>(seed * 7)));
    size_t steward = 0;
    while (!world.Summary(steward).steward) ++steward;
    bool accepted = false;
    world.lose = [&](size_t, size_t to, const Message& message) {
      const bool yes = to == steward && std::holds_alternative<message::ViewAccepted>(message);
      accepted |= yes;
      return yes;
    };
    const size_t joiner = world.Add();  // no cell is free, so a view is proposed
    for (int i = 0; i < 1000 && !accepted; ++i) world.RunFor(Milliseconds(1));
    ASSERT_TRUE(accepted) << seed;
    world.Kill(steward);
    world.lose = nullptr;
    world.Kill(joiner);
    world.Add();  // finds the steward's cell
    bool lost = false;
    std::map<size_t, bool> seated;
    for (int ms = 0; ms < 3000; ++ms) {
      if (ms == 900) world.Add();  // finds none
      world.RunFor(Milliseconds(1));
      for (size_t peer = 0; peer < world.size(); ++peer) {
        if (!world.Alive(peer)) continue;
        const bool now = world.Summary(peer).view.has_value();
        lost |= std::exchange(seated[peer], now) && !now;
      }
    }
    EXPECT_FALSE(lost) << "a seat, seed " << seed;
    EXPECT_TRUE(world.Together()) << seed << world.Describe();
    ExpectAgreement(world);
  }
}

TEST(NextViewTest, AllReduceIsOneGroup) {
  AveragingConfig config = EveryTenSteps();
  config.strategy = StrategyKind::kAllReduce;
  PeerWorld world(17, config);
  for (int i = 0; i < 6; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  ExpectAgreement(world);
  EXPECT_EQ(world.Summary(0).view->radices, (std::vector<uint16_t>{6}));
  EXPECT_GE(world.Summary(0).averaging, AveragingId(5));
}

}  // namespace
}  // namespace crowdsurf::worker
