// What a node does to publish a record, and what it says of it.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

TEST(PutTest, ARefusalHasAReasonAndIsCounted) {
  NodeConfig config;
  config.own_records = 1;
  config.value_bytes = 4;
  config.longest_life = Seconds(10);
  LoneNode lone(config);
  EXPECT_EQ(lone.Put(kRoster, Seconds(5), 5), PutResult::kTooLarge);
  EXPECT_EQ(lone.Put(kRoster, Duration()), PutResult::kExpired);
  EXPECT_EQ(lone.Put(kRoster, Seconds(10) + Nanoseconds(1)), PutResult::kTooFar);
  EXPECT_TRUE(lone.puts.empty());
  EXPECT_EQ(lone.Put(kRoster, Seconds(10), 4), PutResult::kPublished);
  EXPECT_EQ(lone.Put(KeyOf("another"), Seconds(5)), PutResult::kTooMany);
  EXPECT_EQ(lone.Put(kRoster, Seconds(5)), PutResult::kPublished) << "the same again";
  const auto counted = [&](const char* result) {
    return lone.Count("crowdsurf_dht_puts_total", {{"result", result}});
  };
  for (const char* result : {"too_large", "expired", "too_far", "too_many"}) {
    EXPECT_EQ(counted(result), 1) << result;
  }
  EXPECT_EQ(counted("published"), 2);
  ASSERT_EQ(lone.puts.size(), 2u);
  EXPECT_GT(lone.puts[1].sequence, lone.puts[0].sequence);
}

TEST(PutTest, AnOwnRecordMakesRoomWhenItHasExpiredOrIsStopped) {
  NodeConfig config;
  config.own_records = 1;
  LoneNode lone(config);
  EXPECT_EQ(lone.Put(kRoster, Seconds(3)), PutResult::kPublished);
  lone.Run(Seconds(2));
  EXPECT_EQ(lone.Put(KeyOf("another"), Seconds(3)), PutResult::kTooMany);
  lone.Run(config.sweep * 2.0);
  EXPECT_EQ(lone.Put(KeyOf("another"), Seconds(600)), PutResult::kPublished);
  lone.Run(config.sweep * 2.0);
  EXPECT_EQ(lone.Put(kRoster, Seconds(3)), PutResult::kTooMany);
  lone.node().StopPublishing(KeyOf("another"));
  EXPECT_EQ(lone.Put(kRoster, Seconds(3)), PutResult::kPublished);
}

TEST(PutTest, AHolderThatDoesNotAnswerIsTriedTwiceAndReported) {
  NodeConfig config;
  config.failures_allowed = 10;
  LoneNode lone(config);
  LoneNode::Player& peer = lone.Meet();
  LoneNode::Player& other = lone.Meet();
  peer.silent = true;
  lone.Put(kRoster, Seconds(60));
  lone.Run(Seconds(0.2));
  EXPECT_EQ(lone.SentOf<StoreRequest>(&peer.contact).size(), 2u);
  EXPECT_EQ(lone.SentOf<StoreRequest>(&other.contact).size(), 1u);
  ASSERT_EQ(lone.puts.size(), 1u);
  EXPECT_EQ(lone.puts[0].stored, 2) << "the other and this node";
  EXPECT_EQ(lone.puts[0].failed, 1);
}

TEST(PutTest, ALostStoreOfAnOldOrEndedRecordIsNotTriedAgain) {
  NodeConfig config;
  config.failures_allowed = 10;
  LoneNode lone(config);
  LoneNode::Player& peer = lone.Meet();
  peer.silent = true;
  lone.Put(kRoster, Seconds(60));
  lone.Put(kRoster, Seconds(60));
  lone.Put(KeyOf("another"), Seconds(60));
  lone.node().StopPublishing(KeyOf("another"));
  lone.Run(Seconds(0.2));
  std::map<std::pair<Key, uint64_t>, int> tries;
  for (const auto& [at, store] : lone.SentOf<StoreRequest>(&peer.contact)) {
    ++tries[{store.records[0]->key, store.records[0]->sequence}];
  }
  const std::map<std::pair<Key, uint64_t>, int> wanted = {
      {{kRoster, 1}, 1}, {{kRoster, 2}, 2}, {{KeyOf("another"), 3}, 1}};
  EXPECT_EQ(tries, wanted);
}

TEST(PutTest, ARefusedStoreIsReportedAndTriedAgainAfterTheNextLookup) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  lone.answer = [](const Contact&, const LoneNode::Body& request) -> std::optional<LoneNode::Body> {
    if (std::holds_alternative<StoreRequest>(request)) return StoreReply{0, 1};
    return LoneNode::Agree(request);
  };
  lone.Put(kRoster, Seconds(60));
  lone.Run(Seconds(0.1));
  ASSERT_EQ(lone.puts.size(), 1u);
  EXPECT_EQ(lone.puts[0].stored, 1);
  EXPECT_EQ(lone.puts[0].failed, 1);
  const size_t tries = lone.SentOf<StoreRequest>(&peer.contact).size();
  lone.Run(Seconds(5));
  EXPECT_GT(lone.SentOf<StoreRequest>(&peer.contact).size(), tries);
}

}  // namespace
}  // namespace crowdsurf::dht
