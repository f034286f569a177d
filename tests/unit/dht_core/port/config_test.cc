// The defaults are those that docs/dht.md promises and that the Kademlia paper chose.
#include "coordinator-free-dht/core/port/config.h"

#include <gtest/gtest.h>

#include "coordinator-free-dht/core/relay/relay_paths.h"

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
  EXPECT_EQ(kConfig.seed_patience, Seconds(2));
  EXPECT_EQ(kConfig.bucket_refresh, Seconds(600));
  EXPECT_EQ(kConfig.watch_life, Seconds(30));
  EXPECT_EQ(kConfig.first_rtt, Milliseconds(50));
  EXPECT_EQ(kConfig.max_rtt, Seconds(2));
  EXPECT_EQ(kConfig.late_replies, Seconds(5));
  EXPECT_EQ(kConfig.min_refresh, Seconds(2));
  EXPECT_EQ(kConfig.max_refresh, Seconds(60));
  EXPECT_EQ(kConfig.holders_first, Milliseconds(250));
}

TEST(ConfigTest, BoundsAreThoseOfTheDocs) {
  EXPECT_EQ(kConfig.lookups, 64u);
  EXPECT_EQ(kConfig.lookups_waiting, 1024u);
  EXPECT_EQ(kConfig.queries_per_lookup, 128u);
  EXPECT_EQ(kConfig.requests_in_flight, 1024u);
  EXPECT_EQ(kConfig.pings_in_flight, 32u);
  EXPECT_EQ(kConfig.seeds, 256u);
  EXPECT_EQ(kConfig.own_records, 128u);
  EXPECT_EQ(kConfig.watches, 256u);
  EXPECT_EQ(kConfig.watchers_per_key, 4096u);
  EXPECT_EQ(kConfig.watchers, 16384u);
  EXPECT_EQ(kConfig.watcher_keys, 256u);
  EXPECT_EQ(kConfig.sources, 4096u);
  EXPECT_EQ(kConfig.replacements, 8u);
  EXPECT_EQ(kConfig.longest_life, Seconds(21600));
}

TEST(ConfigTest, ReplicasAndParallelRequestsAreThoseOfKademlia) {
  EXPECT_EQ(kConfig.k, 20u);
  EXPECT_EQ(kConfig.alpha, 3);
}

TEST(ConfigTest, RelaysGoAsFarAndTrustAsLongAsTheDocsSay) {
  const RelayConfig relay;
  EXPECT_EQ(relay.hops, 64u);
  EXPECT_EQ(relay.proof_lives, Seconds(60));
  EXPECT_EQ(relay.carried, 256u);
  EXPECT_EQ(relay.searches, 64u);
}

}  // namespace
}  // namespace crowdsurf::dht
