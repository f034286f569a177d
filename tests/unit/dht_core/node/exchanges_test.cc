// What a node answers, and what it keeps for others: each message by itself.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

std::vector<uint64_t> Sequences(const std::vector<RecordPtr>& records) {
  std::vector<uint64_t> out;
  out.reserve(records.size());
  for (const RecordPtr& record : records) out.push_back(record->sequence);
  return out;
}

TEST(ExchangesTest, AnAnswerNamesTheKNearestPeersButNotTheAsker) {
  NodeConfig config;
  config.k = 3;
  LoneNode lone(config);
  std::vector<LoneNode::Player*> all;
  all.reserve(4);
  for (int i = 0; i < 4; ++i) all.push_back(&lone.Meet());
  ASSERT_EQ(lone.node().contacts(), 4u) << "two buckets or near ones";
  std::sort(all.begin(), all.end(), [&](const auto* a, const auto* b) {
    return Closer(kRoster, a->contact.id, b->contact.id);
  });
  lone.sent.clear();
  lone.Say(*all[1], FindRequest{kRoster, false});
  const auto replies = lone.SentOf<FindReply>(&all[1]->contact);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_THAT(replies[0].second.contacts,
              testing::ElementsAre(all[0]->contact, all[2]->contact, all[3]->contact));
  lone.sent.clear();
  lone.Say(lone.Add(), FindRequest{kRoster, false});
  EXPECT_EQ(lone.SentOf<FindReply>().at(0).second.contacts.size(), 3u);
}

TEST(ExchangesTest, RecordsComeOnlyWhenAskedFor) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  lone.Say(peer, StoreRequest{{lone.Signed(peer, kRoster, 5, Seconds(60))}});
  lone.sent.clear();
  lone.Say(peer, FindRequest{kRoster, false});
  lone.Say(peer, FindRequest{kRoster, true});
  lone.Say(peer, FindRequest{KeyOf("another"), true});
  const auto replies = lone.SentOf<FindReply>();
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_TRUE(replies[0].second.records.empty());
  EXPECT_THAT(Sequences(replies[1].second.records), testing::ElementsAre(5));
  EXPECT_TRUE(replies[2].second.records.empty());
}

TEST(ExchangesTest, AStoreIsAnsweredWithTheNumberOfRecordsHeldAndRefused) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  const RecordPtr good = lone.Signed(peer, kRoster, 2, Seconds(60));
  const RecordPtr stale = lone.Signed(peer, kRoster, 1, Seconds(60));
  const RecordPtr other = lone.Signed(peer, KeyOf("other"), 3, Seconds(60));
  lone.sent.clear();
  lone.Say(peer, StoreRequest{{good, stale, other, good}});
  const auto replies = lone.SentOf<StoreReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].second.stored, 3) << "one of them it had";
  EXPECT_EQ(replies[0].second.refused, 1);
  const auto counted = [&](const char* result) {
    return lone.Count("crowdsurf_dht_store_results_total", {{"result", result}});
  };
  EXPECT_EQ(counted("stored"), 2);
  EXPECT_EQ(counted("had"), 1);
  EXPECT_EQ(counted("stale"), 1);
}

TEST(ExchangesTest, AWatcherGetsTheRecordsThatItDoesNotHave) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  LoneNode::Player& owner = lone.Add();
  lone.Say(peer, StoreRequest{{lone.Signed(peer, kRoster, 5, Seconds(60)),
                               lone.Signed(owner, kRoster, 9, Seconds(60))}});
  const auto told = [&](std::vector<Have> have) {
    lone.sent.clear();
    lone.Say(peer, WatchRequest{kRoster, Seconds(30), std::move(have)});
    const auto replies = lone.SentOf<WatchReply>();
    EXPECT_EQ(replies.size(), 1u);
    EXPECT_TRUE(replies.at(0).second.accepted);
    return Sequences(replies.at(0).second.records);
  };
  EXPECT_THAT(told({}), testing::UnorderedElementsAre(5, 9));
  EXPECT_THAT(told({{peer.contact.id, 4}, {owner.contact.id, 9}}), testing::ElementsAre(5));
  EXPECT_THAT(told({{peer.contact.id, 5}}), testing::ElementsAre(9));
  EXPECT_TRUE(told({{peer.contact.id, 5}, {owner.contact.id, 9}}).empty());
}

TEST(ExchangesTest, AChangeIsPushedToEveryWatcherButItsSourceUntilItLeaves) {
  LoneNode lone;
  std::vector<LoneNode::Player*> watchers;
  watchers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    watchers.push_back(&lone.Add());
    watchers.back()->silent = true;  // so it is no contact, and no holder
    lone.Say(*watchers.back(), WatchRequest{kRoster, Seconds(30), {}});
  }
  lone.Say(*watchers[2], WatchRequest{kRoster, Duration(), {}});
  ASSERT_TRUE(lone.SentOf<WatchReply>(&watchers[2]->contact).back().second.accepted);
  lone.sent.clear();
  const RecordPtr news = lone.Signed(*watchers[0], kRoster, 1, Seconds(60));
  lone.Say(*watchers[0], StoreRequest{{news}});
  lone.Say(*watchers[0], StoreRequest{{news}});  // no news
  EXPECT_TRUE(lone.SentOf<WatchPush>(&watchers[0]->contact).empty());
  EXPECT_EQ(lone.SentOf<WatchPush>(&watchers[1]->contact).size(), 1u);
  EXPECT_TRUE(lone.SentOf<WatchPush>(&watchers[2]->contact).empty());
  EXPECT_EQ(lone.Count("crowdsurf_dht_pushes_total"), 1);
}

TEST(ExchangesTest, AWatcherThatHoldsTheKeyItselfIsPushedToByTheNearestHolderOnly) {
  NodeConfig config;
  config.k = 3;
  LoneNode lone(config);
  const PeerId self = lone.node().self().id;
  std::vector<Contact> nearer;
  for (int i = 0; i < 3; ++i) {
    const LoneNode::Player& player =
        lone.AddWhere([&](const PeerId& id) { return Closer(kRoster, id, self); });
    nearer.push_back(player.contact);
    lone.Say(player, FindRequest{kRoster, false});
    lone.Run(Milliseconds(2));
  }
  ASSERT_EQ(lone.node().contacts(), 3u);
  std::sort(nearer.begin(), nearer.end(),
            [](const Contact& a, const Contact& b) { return Closer(kRoster, a.id, b.id); });
  LoneNode::Player& source = lone.Add();
  source.silent = true;
  const auto pushed = [&](uint64_t sequence) {
    lone.sent.clear();
    lone.Say(source, StoreRequest{{lone.Signed(source, kRoster, sequence, Seconds(600))}});
    std::vector<size_t> out;
    out.reserve(nearer.size());
    for (const Contact& contact : nearer) out.push_back(lone.SentOf<WatchPush>(&contact).size());
    return out;
  };
  const auto renew = [&] {
    for (const Contact& contact : nearer) {
      lone.Say({contact, {}, false}, WatchRequest{kRoster, Seconds(30), {}});
    }
  };
  renew();
  EXPECT_THAT(pushed(1), testing::ElementsAre(1, 1, 1)) << "its writer may not know them yet";
  for (int i = 0; i < 3; ++i) {
    lone.Run(Seconds(20));
    renew();
  }
  // With this node, the two nearest hold it: they have it from its writer.
  EXPECT_THAT(pushed(2), testing::ElementsAre(0, 0, 1));
}

TEST(ExchangesTest, MessagesOfNobodyAreCountedAndDropped) {
  LoneNode lone;
  LoneNode::Player from = lone.Add();
  const auto say = [&](const Contact& contact) {
    from.contact = contact;
    lone.Say(from, FindRequest{kRoster, false});
  };
  const Contact good = from.contact;
  say({PeerId(), good.endpoint});
  say({lone.node().self().id, good.endpoint});
  say({good.id, ""});
  EXPECT_EQ(lone.Count("crowdsurf_dht_messages_invalid_total"), 3);
  EXPECT_TRUE(lone.sent.empty());
  say(good);
  EXPECT_EQ(lone.Count("crowdsurf_dht_messages_invalid_total"), 3);
  EXPECT_FALSE(lone.sent.empty());
}

TEST(ExchangesTest, ARequestCostsATokenAndOneForEachRecord) {
  NodeConfig config;
  config.source_rate = 1e-9;
  config.source_burst = 10;
  LoneNode lone(config);
  const auto limited = [&](LoneNode::Player& peer) {
    const double before = lone.Count("crowdsurf_dht_requests_limited_total");
    lone.Say(peer, FindRequest{kRoster, false});
    return lone.Count("crowdsurf_dht_requests_limited_total") > before;
  };
  LoneNode::Player &storer = lone.Add(), &pusher = lone.Add(), &asker = lone.Add();
  const std::vector<RecordPtr> eight(8, lone.Signed(storer, kRoster, 1, Seconds(9)));
  lone.Say(storer, StoreRequest{eight});
  EXPECT_FALSE(limited(storer)) << "nine are gone, and one was left";
  EXPECT_TRUE(limited(storer));
  lone.Say(pusher, WatchPush{eight});
  EXPECT_FALSE(limited(pusher));
  EXPECT_TRUE(limited(pusher));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(limited(asker));
  EXPECT_TRUE(limited(asker));
}

TEST(ExchangesTest, StrangersArePingedAFewAtATime) {
  NodeConfig config;
  config.pings_in_flight = 2;
  LoneNode lone(config);
  const auto come = [&](bool silent) {
    LoneNode::Player& stranger = lone.Add();
    stranger.silent = silent;
    lone.Say(stranger, FindRequest{kRoster, false});
    return lone.SentOf<FindRequest>(&stranger.contact).size();
  };
  EXPECT_EQ(come(true), 1u);
  EXPECT_EQ(come(false), 1u);
  EXPECT_EQ(come(true), 0u);
  lone.Run(Milliseconds(2));  // one of the two has answered
  EXPECT_EQ(come(true), 1u);
  EXPECT_EQ(come(true), 0u);
}

TEST(ExchangesTest, ExpiredRecordsAndSubscriptionsAreDropped) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Add();
  peer.silent = true;
  for (int round = 0; round < 2; ++round) {
    lone.Say(peer, StoreRequest{{lone.Signed(peer, kRoster, 1, Seconds(3))}});
    EXPECT_EQ(lone.node().store().records(), 1u);
    lone.Run(Seconds(10));
    EXPECT_EQ(lone.node().store().records(), 0u) << round;
  }
  const size_t before = lone.node().MemoryBytes();
  lone.Say(peer, WatchRequest{kRoster, Seconds(3), {}});
  EXPECT_GT(lone.node().MemoryBytes(), before);
  lone.Run(Seconds(10));
  EXPECT_EQ(lone.node().MemoryBytes(), before);
}

TEST(ExchangesTest, HeldRecordsThatNobodyRenewsAreRepublishedAboutEveryMinute) {
  LoneNode lone;
  LoneNode::Player& holder = lone.Meet();
  LoneNode::Player& owner = lone.Add();
  owner.silent = true;
  const RecordPtr record = lone.Signed(owner, kRoster, 1, Seconds(3600));
  for (int i = 0; i < 10; ++i) {  // renewed every half minute
    lone.Say(owner, StoreRequest{{record}});
    lone.Run(Seconds(30));
  }
  EXPECT_TRUE(lone.SentOf<StoreRequest>().empty());
  const Time renewed = lone.now() - Seconds(30);
  lone.Run(Seconds(600));
  const auto stores = lone.SentOf<StoreRequest>(&holder.contact);
  ASSERT_GE(stores.size(), 4u);
  EXPECT_EQ(stores[0].second.records.size(), 1u);
  Time before = renewed;
  for (const auto& [at, store] : stores) {
    EXPECT_GE(at - before, Seconds(59.9));
    before = at;
  }
}

TEST(ExchangesTest, AQuarterOfTheKeysIsRepublishedAtATime) {
  LoneNode lone;
  lone.Meet();
  LoneNode::Player& owner = lone.Add();
  owner.silent = true;
  std::vector<RecordPtr> records;
  records.reserve(120);
  for (int i = 0; i < 120; ++i) {
    records.push_back(lone.Signed(owner, KeyOf(std::to_string(i)), 1, Seconds(3600)));
  }
  lone.Say(owner, StoreRequest{records});
  lone.Run(Seconds(59.9));
  EXPECT_TRUE(lone.SentOf<StoreRequest>().empty());
  lone.Run(Seconds(5.2));
  const size_t first = lone.SentOf<StoreRequest>().size();
  EXPECT_GE(first, 20u) << "30 of 120, more or less";
  EXPECT_LE(first, 45u);
}

TEST(ExchangesTest, ANewcomerNearAKeyGetsItsRecordsFromTheTwoNearestHolders) {
  for (const int nearer : {0, 1, 2}) {
    LoneNode lone;
    LoneNode::Player& owner = lone.Add();
    owner.silent = true;
    lone.Say(owner, StoreRequest{{lone.Signed(owner, kRoster, 1, Seconds(600))}});
    const PeerId self = lone.node().self().id;
    const auto meet = [&](const std::function<bool(const PeerId&)>& wanted) {
      const LoneNode::Player& player = lone.AddWhere(wanted);
      lone.Say(player, FindRequest{kRoster, false});
      lone.Run(Milliseconds(2));
      return player.contact;
    };
    for (int i = 0; i < nearer; ++i) {
      meet([&](const PeerId& id) { return Closer(kRoster, id, self); });
    }
    meet([&](const PeerId& id) { return Closer(kRoster, self, id); });
    const Contact newcomer = meet([&](const PeerId& id) { return Closer(kRoster, self, id); });
    EXPECT_EQ(lone.SentOf<StoreRequest>(&newcomer).size(), nearer < 2 ? 1u : 0u) << nearer;
  }
}

}  // namespace
}  // namespace crowdsurf::dht
