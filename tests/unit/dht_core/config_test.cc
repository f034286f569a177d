// The defaults are those that docs/dht.md promises and that the Kademlia paper chose.
#include "coordinator-free-dht/core/config.h"

#include <gtest/gtest.h>

#include "coordinator-free-dht/core/relay_paths.h"

namespace crowdsurf::dht {
namespace {

const NodeConfig kConfig;

TEST(ConfigTest, QuotasAreThoseOfTheDocs) {
  EXPECT_EQ(kConfig.value_bytes, 16384u);
  EXPECT_EQ(kConfig.key_records, 512u);
  EXPECT_EQ(kConfig.key_bytes, 524288u);
  EXPECT_EQ(kConfig.owner_records, 128u);
  EXPECT_EQ(kConfig.source_records, 4096u);
  EXPECT_EQ(kConfig.total_bytes, 33554432u);
  EXPECT_EQ(kConfig.source_rate, 2000);
  EXPECT_EQ(kConfig.source_burst, 16384);
  EXPECT_EQ(kConfig.forged_cost, 20);
}

TEST(ConfigTest, RhythmsAreThoseOfTheDocs) {
  EXPECT_EQ(kConfig.holders_refresh, Seconds(30));
  EXPECT_EQ(kConfig.republish, Seconds(60));
  EXPECT_EQ(kConfig.watch_holders, 3u);
  EXPECT_EQ(kConfig.watch_renew, Seconds(10));
  EXPECT_EQ(kConfig.fail_factor, 3);
  EXPECT_EQ(kConfig.min_fail, Milliseconds(30));
  EXPECT_EQ(kConfig.suspect_again, Milliseconds(500));
  EXPECT_EQ(kConfig.failures_allowed + 1, 3);
  EXPECT_EQ(kConfig.seed_retry.initial, Milliseconds(100));
  EXPECT_EQ(kConfig.seed_retry.most, Seconds(30));
  EXPECT_EQ(kConfig.seed_again, Seconds(60));
  EXPECT_EQ(kConfig.min_refresh, Seconds(2));
  EXPECT_EQ(kConfig.max_refresh, Seconds(60));
  EXPECT_EQ(kConfig.holders_first, Milliseconds(250));
}

TEST(ConfigTest, ReplicasAndParallelRequestsAreThoseOfKademlia) {
  EXPECT_EQ(kConfig.k, 20u);
  EXPECT_EQ(kConfig.alpha, 3);
}

TEST(ConfigTest, RelaysGoAsFarAndTrustAsLongAsTheDocsSay) {
  const RelayConfig relay;
  EXPECT_EQ(relay.hops, 64u);
  EXPECT_EQ(relay.proof_lives, Seconds(60));
}

}  // namespace
}  // namespace crowdsurf::dht
