// What a node asks of others, and when: puts, watches, searches and the upkeep of its table.
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

class WatchTest : public testing::Test {
 protected:
  std::vector<std::pair<Time, WatchRequest>> Asked(const LoneNode::Player& peer) {
    return lone_.SentOf<WatchRequest>(&peer.contact);
  }
  LoneNode lone_;
};

TEST_F(WatchTest, ItIsRenewedEveryTenSecondsWithWhatIsKnown) {
  LoneNode::Player& peer = lone_.Meet();
  const RecordPtr record = lone_.Signed(peer, kRoster, 4, Seconds(600));
  const Time start = lone_.now();
  EXPECT_TRUE(lone_.Watch(kRoster));
  EXPECT_TRUE(lone_.Watch(kRoster)) << "again, which changes nothing";
  lone_.Run(Seconds(1));
  lone_.Say(peer, WatchPush{{record}}, 0);
  lone_.Run(Seconds(34));
  const auto asked = Asked(peer);
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_EQ(asked[0].first, start) << "it waits for no lookup";
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_NEAR((asked[i].first - start).seconds(), 10.0 * static_cast<double>(i), 0.02);
    EXPECT_EQ(asked[i].second.life, Seconds(30));
    const std::vector<Have>& have = asked[i].second.have;
    ASSERT_EQ(have.size(), i == 0 ? 0u : 1u);
    if (!have.empty()) {
      EXPECT_EQ(have[0].sequence, 4u);
    }
  }
  ASSERT_EQ(lone_.updates.size(), 2u) << "synced, and the record";
  EXPECT_TRUE(lone_.updates[0].synced);
  EXPECT_EQ(lone_.updates[1].records, std::vector<RecordPtr>{record});
}

TEST_F(WatchTest, OneThatRefusesIsAskedAgainAtTheRhythmOfRenewals) {
  LoneNode::Player& peer = lone_.Meet();
  lone_.answer = [](const Contact&,
                    const LoneNode::Body& request) -> std::optional<LoneNode::Body> {
    if (std::holds_alternative<WatchRequest>(request)) return WatchReply{false, {}};
    return LoneNode::Agree(request);
  };
  const Time start = lone_.now();
  lone_.Watch(kRoster);
  lone_.Run(Seconds(35));
  const auto asked = Asked(peer);
  ASSERT_EQ(asked.size(), 4u);
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_NEAR((asked[i].first - start).seconds(), 10.0 * static_cast<double>(i), 0.02);
  }
  ASSERT_EQ(lone_.updates.size(), 1u);
  EXPECT_TRUE(lone_.updates[0].synced) << "nobody holds it, and nobody is awaited";
}

TEST_F(WatchTest, TheThreeNearestPushAndTheNextOneWhenOneOfThemIsSlow) {
  std::vector<LoneNode::Player*> all;
  for (int i = 0; i < 6; ++i) all.push_back(&lone_.Meet());
  std::sort(all.begin(), all.end(), [&](const auto* a, const auto* b) {
    return Closer(kRoster, a->contact.id, b->contact.id);
  });
  all[1]->silent = true;
  lone_.Watch(kRoster);
  lone_.Run(Milliseconds(20));  // slow after some, failed after 30
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Asked(*all[i]).size(), i < 4 ? 1u : 0u) << i;
  }
  EXPECT_TRUE(lone_.updates.empty()) << "the lookup still waits for the slow one";
  lone_.Run(Milliseconds(20));
  ASSERT_EQ(lone_.updates.size(), 1u);
  EXPECT_TRUE(lone_.updates[0].synced);
}

TEST_F(WatchTest, ItIsNotSyncedWhileTheOnlyHolderMayStillAnswer) {
  lone_.Meet();
  lone_.answer = [](const Contact&,
                    const LoneNode::Body& request) -> std::optional<LoneNode::Body> {
    if (std::holds_alternative<WatchRequest>(request)) return std::nullopt;
    return LoneNode::Agree(request);
  };
  lone_.Watch(kRoster);
  lone_.Run(Milliseconds(20));
  EXPECT_TRUE(lone_.updates.empty()) << "it is slow";
  lone_.Run(Milliseconds(20));
  ASSERT_EQ(lone_.updates.size(), 1u) << "it has failed";
  EXPECT_TRUE(lone_.updates[0].synced);
}

TEST_F(WatchTest, ItMovesToNearerPeersAndEndsByItselfAtTheOthers) {
  const PeerId self = lone_.node().self().id;
  std::vector<Contact> far, near;
  const auto meet = [&](std::vector<Contact>& group, bool nearer) {
    const LoneNode::Player& player =
        lone_.AddWhere([&](const PeerId& id) { return Closer(kRoster, id, self) == nearer; });
    group.push_back(player.contact);
    lone_.Say(player, FindRequest{kRoster, false});
    lone_.Run(Milliseconds(2));
  };
  const auto asked = [&](const Contact& contact) {
    return lone_.SentOf<WatchRequest>(&contact).size();
  };
  for (int i = 0; i < 3; ++i) meet(far, false);
  lone_.Watch(kRoster);
  lone_.Run(Seconds(5));
  for (const Contact& contact : far) EXPECT_EQ(asked(contact), 1u);
  for (int i = 0; i < 3; ++i) meet(near, true);
  for (const Contact& contact : near) EXPECT_EQ(asked(contact), 1u) << "at once";
  lone_.Run(Seconds(41));
  for (const Contact& contact : far) EXPECT_EQ(asked(contact), 1u) << "not renewed";
  for (const Contact& contact : near) EXPECT_EQ(asked(contact), 5u);
}

TEST_F(WatchTest, ItKnowsOnlyAsManyOwnersAsAKeyMayHave) {
  NodeConfig config;
  config.key_records = 2;
  LoneNode lone(config);
  LoneNode::Player& peer = lone.Meet();
  lone.Watch(kRoster);
  std::vector<RecordPtr> records;
  for (int i = 0; i < 3; ++i) {
    records.push_back(lone.Signed(lone.Add(), kRoster, 1, Seconds(60)));
  }
  lone.Say(peer, WatchPush{records}, 0);
  records[0] = lone.Signed(lone.Add(), kRoster, 2, Seconds(60));
  lone.Say(peer, WatchPush{records}, 0);
  size_t told = 0;
  for (const WatchUpdate& update : lone.updates) told += update.records.size();
  EXPECT_EQ(told, 2u);
  lone.answer = [&](const Contact&, const LoneNode::Body&) { return FindReply{{}, records}; };
  lone.Get(kRoster, 0);
  lone.Run(Milliseconds(5));
  EXPECT_EQ(lone.gets.at(0).records.size(), 2u);
}

TEST_F(WatchTest, ItsEndIsToldToThoseThatPushAndWhatTheyPushAfterwardsIsUnwanted) {
  LoneNode::Player &peer = lone_.Meet(), &silent = lone_.Meet();
  silent.silent = true;
  lone_.Watch(kRoster);
  lone_.Run(Milliseconds(5));
  const auto end = [&] {
    lone_.Do([&](Node& node, Actions& out) { node.Unwatch(lone_.now(), kRoster, out); });
  };
  end();
  end();
  ASSERT_EQ(Asked(peer).size(), 2u);
  EXPECT_EQ(Asked(peer)[1].second.life, Duration());
  EXPECT_EQ(Asked(silent).size(), 1u) << "it never agreed to push";
  lone_.Say(peer, WatchPush{{lone_.Signed(peer, kRoster, 1, Seconds(9))}}, 0);
  EXPECT_EQ(Asked(peer).size(), 3u);
  EXPECT_EQ(lone_.Count("crowdsurf_dht_pushes_unwanted_total"), 1);
  for (const WatchUpdate& update : lone_.updates) EXPECT_TRUE(update.records.empty());
}

TEST_F(WatchTest, ALostConnectionHasItRenewedAndAskedWhetherItLives) {
  LoneNode::Player& peer = lone_.Meet();
  LoneNode::Player& other = lone_.Meet();
  lone_.Watch(kRoster);
  lone_.Run(Seconds(1));
  lone_.sent.clear();
  const auto down = [&](const Contact& contact, DownEvidence evidence) {
    lone_.Do(
        [&](Node& node, Actions& out) { node.OnPeerDown(lone_.clocks(), contact, evidence, out); });
    lone_.Run(Milliseconds(1));
  };
  down(peer.contact, DownEvidence::kUnreachable);
  EXPECT_EQ(Asked(peer).size(), 1u);
  EXPECT_TRUE(Asked(other).empty()) << "that one is not concerned";
  EXPECT_EQ(lone_.SentOf<FindRequest>(&peer.contact).size(), 1u);
  EXPECT_EQ(lone_.node().contacts(), 2u);
  down(peer.contact, DownEvidence::kRefused);
  EXPECT_EQ(lone_.node().contacts(), 1u);
}

TEST_F(WatchTest, TheNextNearestIsAskedAtOnceWhenOneDies) {
  std::vector<Contact> all;
  for (int i = 0; i < 5; ++i) all.push_back(lone_.Meet().contact);
  std::sort(all.begin(), all.end(),
            [](const Contact& a, const Contact& b) { return Closer(kRoster, a.id, b.id); });
  lone_.Watch(kRoster);
  lone_.Run(Seconds(1));
  const auto asked = [&](size_t i) { return lone_.SentOf<WatchRequest>(&all[i]).size(); };
  EXPECT_EQ(asked(2), 1u);
  EXPECT_EQ(asked(3), 0u);
  lone_.Do([&](Node& node, Actions& out) {
    node.OnPeerDown(lone_.clocks(), all[1], DownEvidence::kRefused, out);
  });
  EXPECT_EQ(asked(3), 1u);
  EXPECT_EQ(asked(4), 0u);
  EXPECT_EQ(asked(1), 1u);
}

TEST_F(WatchTest, ALonelyNodeAsksItsFirstPeerAtOnce) {
  lone_.Watch(kRoster);
  lone_.Put(KeyOf("own"), Seconds(600));
  lone_.Run(Seconds(100));
  EXPECT_TRUE(lone_.sent.empty());
  const Contact peer = lone_.Meet().contact;
  lone_.Run(Milliseconds(1));
  EXPECT_EQ(lone_.SentOf<WatchRequest>(&peer).size(), 1u);
  EXPECT_EQ(lone_.SentOf<StoreRequest>(&peer).size(), 2u) << "as its owner, and as its holder";
  std::set<Key> searched;
  for (const auto& [at, find] : lone_.SentOf<FindRequest>(&peer)) searched.insert(find.target);
  EXPECT_TRUE(searched.contains(kRoster));
  EXPECT_TRUE(searched.contains(KeyOf("own")));
}

TEST_F(WatchTest, WatchesAreBounded) {
  for (size_t i = 0; i < NodeConfig().watches; ++i) {
    ASSERT_TRUE(lone_.Watch(KeyOf(std::to_string(i))));
  }
  EXPECT_FALSE(lone_.Watch(kRoster));
  EXPECT_TRUE(lone_.Watch(KeyOf("0"))) << "that one is there already";
}

TEST(GetTest, WithEnoughItEndsAtTheFirstHolder) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  lone.Put(kRoster, Seconds(60));
  lone.Run(Seconds(1));
  lone.sent.clear();
  lone.Get(kRoster, 1);
  ASSERT_EQ(lone.gets.size(), 1u) << "this node holds it";
  EXPECT_EQ(lone.gets[0].records.size(), 1u);
  EXPECT_TRUE(lone.sent.empty());
  lone.Get(kRoster, 2);
  lone.Get(kRoster, 0);
  EXPECT_EQ(lone.gets.size(), 1u);
  const auto asked = lone.SentOf<FindRequest>(&peer.contact);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_TRUE(asked[0].second.values);
  EXPECT_EQ(asked[0].second.target, kRoster);
  lone.Run(Milliseconds(5));
  EXPECT_EQ(lone.gets.size(), 3u) << "one search ends with nobody left";
}

TEST(GetTest, ItGivesTheNewestRecordOfEachOwnerAndNoBadOne) {
  LoneNode lone;
  LoneNode::Player &a = lone.Meet(), &b = lone.Meet(), &c = lone.Add();
  const auto signed_by = [&](const LoneNode::Player& owner, uint64_t sequence) {
    return lone.Signed(owner, kRoster, sequence, Seconds(60));
  };
  Record forged = *signed_by(c, 9);
  forged.value = {6};
  const std::vector<RecordPtr> of_a = {signed_by(a, 2), signed_by(c, 1),
                                       std::make_shared<const Record>(forged)};
  const std::vector<RecordPtr> of_b = {signed_by(a, 1), signed_by(b, 7),
                                       lone.Signed(c, KeyOf("another"), 8, Seconds(60)),
                                       lone.Signed(c, kRoster, 8, Duration())};
  lone.answer = [&](const Contact& of,
                    const LoneNode::Body& request) -> std::optional<LoneNode::Body> {
    const auto* find = std::get_if<FindRequest>(&request);
    if (find == nullptr || !find->values) return LoneNode::Agree(request);
    return FindReply{{}, of == a.contact ? of_a : of_b};
  };
  lone.Get(kRoster, 0);
  lone.Run(Milliseconds(5));
  ASSERT_EQ(lone.gets.size(), 1u);
  std::map<PeerId, uint64_t> got;
  for (const RecordPtr& record : lone.gets[0].records) got[record->subkey] = record->sequence;
  const std::map<PeerId, uint64_t> wanted = {
      {a.contact.id, 2}, {b.contact.id, 7}, {c.contact.id, 1}};
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(lone.Count("crowdsurf_dht_records_forged_total"), 1);
}

TEST(GetTest, SearchesWaitTheirTurnAndBeyondThatAreAnsweredWithNothing) {
  NodeConfig config;
  config.lookups = 1;
  config.lookups_waiting = 1;
  LoneNode lone(config);
  lone.Meet().silent = true;
  for (int i = 0; i < 3; ++i) lone.Get(KeyOf(std::to_string(i)), 0);
  ASSERT_EQ(lone.gets.size(), 1u);
  EXPECT_EQ(lone.gets[0].key, KeyOf("2"));
  EXPECT_EQ(lone.Count("crowdsurf_dht_lookups_shed_total"), 1);
  lone.Run(Milliseconds(31));
  ASSERT_EQ(lone.gets.size(), 2u);
  EXPECT_EQ(lone.gets[1].key, KeyOf("0"));
  lone.Run(Seconds(1));
  ASSERT_EQ(lone.gets.size(), 3u);
  EXPECT_EQ(lone.gets[2].key, KeyOf("1"));
}

TEST(UpkeepTest, AContactThatFailsIsPingedAfterHalfASecondUntilItIsForgotten) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  peer.silent = true;
  lone.sent.clear();
  const Time start = lone.now();
  lone.Get(kRoster, 0);
  lone.Run(Seconds(5));
  std::vector<double> at;
  for (const auto& [time, find] : lone.SentOf<FindRequest>(&peer.contact)) {
    if (find.target == lone.point() && !find.values) at.push_back((time - start).seconds());
  }
  EXPECT_EQ(lone.node().contacts(), 0u);
  // The search fails at 30 ms; own look-ups run beside.
  EXPECT_THAT(at, testing::Contains(testing::DoubleNear(0.530, 0.001)));
  EXPECT_GE(lone.Count("crowdsurf_dht_requests_failed_total"), 3);
}

TEST(UpkeepTest, ANodeLooksItselfUpEverLessOftenAndEachBucketEveryTenMinutes) {
  LoneNode lone;
  const Time met = lone.now();
  LoneNode::Player& peer = lone.Meet();
  lone.sent.clear();
  lone.Run(Seconds(1000));
  std::vector<double> own;
  std::vector<std::pair<double, Key>> others;
  for (const auto& [time, find] : lone.SentOf<FindRequest>(&peer.contact)) {
    const double at = (time - met).seconds();
    if (find.target == lone.point()) {
      own.push_back(at);
    } else {
      others.emplace_back(at, find.target);
    }
  }
  ASSERT_GT(own.size(), 15u);
  EXPECT_GE(own[0], 0.1);
  EXPECT_LE(own[0], 0.302);
  double interval = 0.4;
  for (size_t i = 1; i < own.size(); ++i) {
    EXPECT_GE(own[i] - own[i - 1], interval * 0.7499) << i;
    EXPECT_LE(own[i] - own[i - 1], interval * 1.2501) << i;
    interval = std::min(interval * 2, 60.0);
  }
  ASSERT_EQ(others.size(), 1u);
  EXPECT_GE(others[0].first, 600.0);
  EXPECT_LE(others[0].first, 676.0);
  EXPECT_EQ(CommonPrefix(others[0].second, lone.point()),
            CommonPrefix(PointOf(peer.contact.id), lone.point()));
}

TEST(UpkeepTest, BeyondTheBoundOfOpenRequestsNothingIsSent) {
  NodeConfig config;
  config.requests_in_flight = 1;
  LoneNode lone(config);
  lone.Do([&](Node& node, Actions& out) { node.AddSeeds(lone.clocks(), {"a:1", "b:1"}, out); });
  ASSERT_EQ(lone.sent.size(), 1u);
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_shed_total"), 1);
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_total"), 1);
  lone.Say(lone.Add(), FindRequest{kRoster, false});
  EXPECT_EQ(lone.sent.size(), 2u) << "the answer, and no ping";
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_shed_total"), 2);
  lone.Run(Seconds(60));
  size_t of_b = 0;
  for (const LoneNode::Sent& sent : lone.sent) of_b += sent.to.endpoint == "b:1";
  EXPECT_GT(of_b, 0u) << "it was retried";
}

TEST(UpkeepTest, ASeedThatNeitherAnswersNorRefusesIsGivenUpAndRetried) {
  LoneNode lone;
  const Time start = lone.now();
  lone.Do([&](Node& node, Actions& out) { node.AddSeeds(lone.clocks(), {"a:1"}, out); });
  lone.Get(kRoster, 0);
  lone.Run(Milliseconds(2029));
  EXPECT_TRUE(lone.gets.empty());
  lone.Run(Milliseconds(2));
  EXPECT_EQ(lone.gets.size(), 1u) << "two seconds and 30 ms";
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_slow_total"), 0) << "nobody else is asked instead";
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_failed_total"), 1);
  lone.Run(Milliseconds(101));
  ASSERT_EQ(lone.sent.size(), 2u);
  EXPECT_GE(lone.sent[1].at - start, Milliseconds(2080));
}

TEST(UpkeepTest, APeerThatOnlyTheSeedKnowsIsAsked) {
  LoneNode lone;
  const std::string seed = lone.Add().contact.endpoint;
  const Contact stranger = lone.Add().contact;
  std::vector<Contact> named;
  lone.answer = [&](const Contact&, const LoneNode::Body& request) {
    const bool probe = lone.sent.back().to.id.none();
    return probe ? std::optional<LoneNode::Body>(FindReply{named, {}}) : LoneNode::Agree(request);
  };
  lone.Do([&](Node& node, Actions& out) { node.AddSeeds(lone.clocks(), {seed}, out); });
  lone.Run(Seconds(5));
  EXPECT_EQ(lone.node().contacts(), 1u);
  EXPECT_TRUE(lone.SentOf<FindRequest>(&stranger).empty());
  named = {stranger};
  lone.Run(Seconds(100));  // the seed is asked again
  EXPECT_FALSE(lone.SentOf<FindRequest>(&stranger).empty());
  EXPECT_EQ(lone.node().contacts(), 2u);
}

TEST(UpkeepTest, SeedsAreAskedByAddressAndSearchesWaitForTheirFirstAnswer) {
  LoneNode lone;
  const std::string own = lone.node().self().endpoint;
  lone.Do([&](Node& node, Actions& out) {
    node.AddSeeds(lone.clocks(), {"", own, "seed:1"}, out);
  });
  ASSERT_EQ(lone.sent.size(), 1u);
  EXPECT_EQ(lone.sent[0].to, (Contact{PeerId(), "seed:1"}));
  lone.Get(kRoster, 0);
  EXPECT_TRUE(lone.gets.empty());
  lone.Do([&](Node& node, Actions& out) {
    node.OnPeerDown(lone.clocks(), {PeerId(), "elsewhere:1"}, DownEvidence::kRefused, out);
  });
  EXPECT_TRUE(lone.gets.empty());
  lone.Do([&](Node& node, Actions& out) {
    node.OnPeerDown(lone.clocks(), lone.sent[0].to, DownEvidence::kRefused, out);
  });
  ASSERT_EQ(lone.gets.size(), 1u);
  EXPECT_TRUE(lone.gets[0].records.empty());
  const Time start = lone.now();
  lone.Run(Milliseconds(101));
  ASSERT_EQ(lone.sent.size(), 2u);
  EXPECT_GE(lone.sent[1].at - start, Milliseconds(50));
}

}  // namespace
}  // namespace crowdsurf::dht
