// Of each public key the highest boot is the peer.
#include "coordinator-free-dht/core/routing/latest_boots.h"

#include <gtest/gtest.h>

namespace crowdsurf::dht {
namespace {

using Verdict = LatestBoots::Verdict;

PublicKey KeyOfNumber(uint32_t n) {
  PublicKey key{};
  for (size_t i = 0; i < 4; ++i) key[i] = static_cast<uint8_t>(n >> (8 * i));
  return key;
}

TEST(LatestBootsTest, AHigherBootReplacesTheOneBeforeAndALowerOneIsOld) {
  LatestBoots boots;
  const PublicKey key = KeyOfNumber(1);
  EXPECT_EQ(boots.OnProof(key, 4).verdict, Verdict::kLatest);
  EXPECT_EQ(boots.OnProof(key, 4).verdict, Verdict::kLatest);
  const auto higher = boots.OnProof(key, 9);
  EXPECT_EQ(higher.verdict, Verdict::kReplaces);
  EXPECT_EQ(higher.replaced, PeerIdOf(key, 4));
  EXPECT_EQ(boots.OnProof(key, 8).verdict, Verdict::kOld);
  EXPECT_TRUE(boots.IsOld(key, 8));
  EXPECT_FALSE(boots.IsOld(key, 9));
  EXPECT_FALSE(boots.IsOld(KeyOfNumber(2), 0));
  EXPECT_EQ(boots.OnProof(KeyOfNumber(2), 1).verdict, Verdict::kLatest);
}

TEST(LatestBootsTest, TheKeyThatWasProvedLongestAgoMakesRoom) {
  LatestBoots boots;
  for (uint32_t n = 0; n < LatestBoots::kMaxKeys; ++n)
    EXPECT_FALSE(boots.OnProof(KeyOfNumber(n), 5).forgot);
  EXPECT_FALSE(boots.OnProof(KeyOfNumber(0), 5).forgot);  // anew: it is not the oldest any more
  EXPECT_EQ(boots.OnProof(KeyOfNumber(1), 4).verdict, Verdict::kOld);  // which is no proof
  EXPECT_TRUE(boots.OnProof(KeyOfNumber(LatestBoots::kMaxKeys), 5).forgot);
  EXPECT_EQ(boots.size(), LatestBoots::kMaxKeys);
  EXPECT_TRUE(boots.IsOld(KeyOfNumber(0), 4));
  EXPECT_FALSE(boots.IsOld(KeyOfNumber(1), 4));
  EXPECT_TRUE(boots.IsOld(KeyOfNumber(2), 4));
}

}  // namespace
}  // namespace crowdsurf::dht
