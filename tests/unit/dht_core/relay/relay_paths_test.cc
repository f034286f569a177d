// What a dial that fails means: a death, a firewall, or a peer that another one may reach.
#include "coordinator-free-dht/core/relay/relay_paths.h"

#include <gtest/gtest.h>

namespace crowdsurf::dht {
namespace {

Time At(double seconds) { return Time::FromNanoseconds(1'000'000'000) + Seconds(seconds); }

Contact Someone(uint8_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = number;
  return {PeerId(bytes), "host:" + std::to_string(number)};
}

class RelayPathsTest : public testing::Test {
 protected:
  MetricRegistry registry_;
  RelayMetrics metrics_{registry_};
  RelayConfig config_;
  RelayPaths paths_{config_, metrics_};
};

TEST_F(RelayPathsTest, WithoutAFirewallTheDeathOfWhoWasMetIsFinalAtOnce) {
  for (uint8_t i = 1; i < 4; ++i) paths_.OnStreamUp(Someone(i), StreamPath::kDirect);
  EXPECT_FALSE(paths_.Via(Someone(1)));
  paths_.OnStreamDown(Someone(1).id);
  EXPECT_EQ(paths_.OnDialFailed(At(0), Someone(1), DownEvidence::kRefused), AfterFailure::kFinal);
  EXPECT_EQ(paths_.OnDialFailed(At(1), Someone(1), DownEvidence::kRefused), AfterFailure::kFinal)
      << "the other transport sees it, too";
  EXPECT_EQ(paths_.OnDialFailed(At(2), Someone(2), DownEvidence::kUnreachable),
            AfterFailure::kFinal)
      << "frozen, perhaps: it is judged by its silence, as ever";
  // Alive after all, behind a firewall that came since: so long nobody goes on being refused.
  EXPECT_EQ(paths_.OnDialFailed(At(61), Someone(1), DownEvidence::kRefused), AfterFailure::kRelay);
  EXPECT_FALSE(paths_.firewall());
}

TEST_F(RelayPathsTest, ADeadPeerStaysDeadForAMomentUnlessItComesBack) {
  EXPECT_FALSE(paths_.Dead(At(0), Someone(1).id));
  paths_.OnDead(At(0), Someone(1).id);
  EXPECT_TRUE(paths_.Dead(At(0.9), Someone(1).id));
  EXPECT_FALSE(paths_.Dead(At(0.9), Someone(2).id));
  EXPECT_FALSE(paths_.Dead(At(1.1), Someone(1).id)) << "a firewall's refusal may have passed";
  paths_.OnDead(At(2), Someone(1).id);
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  EXPECT_FALSE(paths_.Dead(At(2), Someone(1).id));
}

TEST_F(RelayPathsTest, WithoutNeighboursADialMeansWhatItSays) {
  EXPECT_EQ(paths_.OnDialFailed(At(0), Someone(1), DownEvidence::kRefused), AfterFailure::kFinal);
  EXPECT_EQ(paths_.OnDialFailed(At(0), Someone(1), DownEvidence::kUnreachable),
            AfterFailure::kFinal);
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  EXPECT_EQ(paths_.OnDialFailed(At(0), Someone(1), DownEvidence::kUnreachable),
            AfterFailure::kFinal)
      << "it is the only one";
}

TEST_F(RelayPathsTest, ANeighbourIsNotLookedForThroughItself) {
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  const auto fails = [&](double at) {
    return paths_.OnDialFailed(At(at), Someone(1), DownEvidence::kRefused);
  };
  EXPECT_EQ(fails(0), AfterFailure::kFinal);
  EXPECT_EQ(fails(61), AfterFailure::kFinal) << "there is nobody else";
  paths_.OnStreamUp(Someone(2), StreamPath::kDirect);
  EXPECT_EQ(fails(62), AfterFailure::kRelay);
}

TEST_F(RelayPathsTest, WhoWasNeverMetIsLookedForAndSoonAfterwardsNotAgain) {
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  EXPECT_EQ(paths_.OnDialFailed(At(0), Someone(2), DownEvidence::kRefused), AfterFailure::kRelay);
  paths_.OnUnreachable(At(0), Someone(2).endpoint);
  EXPECT_EQ(paths_.OnDialFailed(At(0.9), Someone(2), DownEvidence::kRefused), AfterFailure::kFinal);
  EXPECT_EQ(paths_.OnDialFailed(At(1.1), Someone(2), DownEvidence::kRefused), AfterFailure::kRelay);
  paths_.OnCarried();
  EXPECT_EQ(paths_.OnDialFailed(At(0.9), Someone(2), DownEvidence::kRefused), AfterFailure::kSoft)
      << "the firewall's refusal, perhaps";
}

TEST_F(RelayPathsTest, WhoIsMetThroughARelayIsNoNeighbourAndIsDialedThroughOne) {
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  paths_.OnStreamUp(Someone(2), StreamPath::kCarried);
  EXPECT_EQ(paths_.neighbours().size(), 1);
  EXPECT_TRUE(paths_.Via({Someone(2).id, "its:tensors"}));
  EXPECT_TRUE(paths_.firewall());
  EXPECT_EQ(paths_.Judge(At(0), Someone(2).endpoint, DownEvidence::kRefused),
            RelayAnswer::kUnreachable);
  EXPECT_EQ(paths_.Judge(At(0), Someone(1).endpoint, DownEvidence::kRefused), RelayAnswer::kDead);
  EXPECT_EQ(paths_.Judge(At(0), Someone(1).endpoint, DownEvidence::kUnreachable),
            RelayAnswer::kUnreachable);
  paths_.OnStreamUp(Someone(2), StreamPath::kDirect);
  EXPECT_FALSE(paths_.Via({Someone(2).id, "its:tensors"}));
  paths_.OnStreamUp(Someone(2), StreamPath::kCarried);
  EXPECT_EQ(paths_.neighbours().size(), 2) << "the way without a relay stays";
  paths_.OnStreamUp(Someone(3), StreamPath::kCarried);
  paths_.OnUnreachable(At(0), Someone(3).endpoint);
  EXPECT_FALSE(paths_.Via(Someone(3))) << "then a dial is tried again";
}

TEST_F(RelayPathsTest, AnEndWhereNobodyAnswersIsDialedAgainAndIsNoSignOfAFirewall) {
  paths_.OnStreamUp(Someone(1), StreamPath::kDirect);
  paths_.Remember(Someone(2).endpoint, Someone(1).id);  // joined, but it is frozen
  EXPECT_TRUE(paths_.Via(Someone(2)));
  paths_.OnCarriedFailed(At(0), Someone(2));
  EXPECT_FALSE(paths_.Via(Someone(2)));
  EXPECT_FALSE(paths_.firewall());
  EXPECT_EQ(paths_.OnDialFailed(At(0.5), Someone(2), DownEvidence::kUnreachable),
            AfterFailure::kFinal);
  EXPECT_EQ(paths_.OnDialFailed(At(1.5), Someone(2), DownEvidence::kUnreachable),
            AfterFailure::kRelay);
}

TEST_F(RelayPathsTest, WhatIsRememberedIsBoundedAndWhatWasPutInFirstGoes) {
  config_.ends = 3;
  config_.routes = 2;
  RelayPaths paths(config_, metrics_);
  paths.OnStreamUp(Someone(1), StreamPath::kDirect);
  for (uint8_t i = 2; i < 12; ++i)
    paths.Introduce(Someone(i).id, Someone(i).endpoint, RelayPort::kPeer);
  EXPECT_EQ(metrics_.forgotten.value(), 8);
  EXPECT_EQ(paths.PeerOf(Someone(8).endpoint), nullptr);
  ASSERT_NE(paths.PeerOf(Someone(9).endpoint), nullptr);
  EXPECT_EQ(*paths.PeerOf(Someone(9).endpoint), Someone(9).id);
  for (uint8_t i = 2; i < 5; ++i) paths.Remember(Someone(i).endpoint, Someone(1).id);
  EXPECT_FALSE(paths.Route(Someone(2).endpoint).has_value());
  EXPECT_TRUE(paths.Route(Someone(3).endpoint).has_value());
  paths.OnStreamDown(Someone(1).id);
  EXPECT_FALSE(paths.Route(Someone(3).endpoint).has_value());
}

TEST(RememberedTest, WhatIsUsedIsForgottenLast) {
  Remembered<int, std::string> kept(2);
  EXPECT_TRUE(kept.Put(1, "one"));
  EXPECT_TRUE(kept.Put(2, "two"));
  ASSERT_NE(kept.Use(1), nullptr);
  EXPECT_EQ(*kept.Use(1), "one");
  EXPECT_FALSE(kept.Put(3, "three"));
  EXPECT_EQ(kept.Use(2), nullptr);
  EXPECT_NE(kept.Find(1), nullptr);
  EXPECT_EQ(kept.size(), 2u);
}

}  // namespace
}  // namespace crowdsurf::dht
