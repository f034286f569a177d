// Which holders a node asks to push a key's changes, and when.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

class WatchTest : public testing::Test {
 protected:
  std::vector<std::pair<Time, WatchRequest>> Asked(const LoneNode::Player& peer) {
    return lone_.SentOf<WatchRequest>(&peer.contact);
  }
  // The nearest to the key first.
  std::vector<LoneNode::Player*> MeetSix() {
    std::vector<LoneNode::Player*> all;
    all.reserve(6);
    for (int i = 0; i < 6; ++i) all.push_back(&lone_.Meet());
    std::sort(all.begin(), all.end(), [&](const auto* a, const auto* b) {
      return Closer(kRoster, a->contact.id, b->contact.id);
    });
    return all;
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

TEST_F(WatchTest, OfOnePublicKeyTheRecordOfTheHighestBootIsReported) {
  LoneNode::Player &peer = lone_.Meet(), &owner = lone_.Add();
  const auto of_boot = [&](uint64_t boot) {
    Record record = *lone_.Signed(owner, kRoster, 1, Seconds(60));
    record.subkey = PeerIdOf(owner.public_key, boot);
    record.boot = boot;
    record.signature = UnsafeHashAuthority(owner.public_key).Sign(SignedBytes(record));
    return std::make_shared<const Record>(record);
  };
  lone_.Watch(kRoster);
  lone_.Run(Milliseconds(5));
  lone_.updates.clear();
  for (const uint64_t boot : {2, 1, 3}) lone_.Say(peer, WatchPush{{of_boot(boot)}}, 0);
  ASSERT_EQ(lone_.updates.size(), 2u);
  EXPECT_EQ(lone_.updates[0].records.at(0)->boot, 2u);
  EXPECT_EQ(lone_.updates[1].records.at(0)->boot, 3u);
  lone_.Run(Seconds(11));
  EXPECT_EQ(Asked(peer).back().second.have.size(), 1u) << "the lower boot's is forgotten";
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

TEST_F(WatchTest, AHolderThatCouldNotBeAskedIsAskedAtTheRhythmOfRenewals) {
  NodeConfig config;
  config.requests_in_flight = 4;
  LoneNode lone(config);
  const Contact peer = lone.Meet().contact;
  for (size_t i = 0; i < config.requests_in_flight; ++i) {
    LoneNode::Player& stranger = lone.Add();
    stranger.silent = true;  // what asks it whether it lives stays open
    lone.Say(stranger, FindRequest{kRoster, false});
  }
  const Time start = lone.now();
  lone.Watch(kRoster);
  EXPECT_EQ(lone.Count("crowdsurf_dht_requests_shed_total"), 2) << "the watch, and its lookup";
  EXPECT_TRUE(lone.SentOf<WatchRequest>(&peer).empty());
  lone.Run(Seconds(11));
  const auto asked = lone.SentOf<WatchRequest>(&peer);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_NEAR((asked[0].first - start).seconds(), 10.0, 0.02);
  ASSERT_EQ(lone.updates.size(), 1u);
  EXPECT_TRUE(lone.updates[0].synced);
}

TEST_F(WatchTest, TheThreeNearestPushAndTheNextOneWhenOneOfThemIsSlow) {
  const std::vector<LoneNode::Player*> all = MeetSix();
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

TEST_F(WatchTest, AHolderThatIsSlowToRenewIsReplacedOnlyWhenItFails) {
  const std::vector<LoneNode::Player*> all = MeetSix();
  const Time start = lone_.now();
  lone_.Watch(kRoster);
  lone_.Run(start + Seconds(9.9) - lone_.now());
  all[2]->silent = true;
  lone_.Run(start + Seconds(10.02) - lone_.now());  // slow after some, failed after 30
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Asked(*all[i]).size(), i < 3 ? 2u : 0u) << i;
  }
  lone_.Run(Milliseconds(20));
  EXPECT_EQ(Asked(*all[3]).size(), 1u);
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
  records.reserve(3);
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
  all.reserve(5);
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

// The one that answers is as new as this node. The seed may hold the records of the job.
TEST_F(WatchTest, NoRecordIsThereOnlyOnceEachSeedAnsweredOrFailed) {
  LoneNode::Player& seed = lone_.Add();
  seed.silent = true;
  lone_.Do([&](Node& node, Actions& out) {
    node.AddSeeds(lone_.clocks(), {seed.contact.endpoint}, out);
  });
  lone_.Meet();
  lone_.Watch(kRoster);
  lone_.Run(NodeConfig().seed_patience * 0.9);
  EXPECT_TRUE(lone_.updates.empty());
  lone_.Run(NodeConfig().seed_patience);
  ASSERT_EQ(lone_.updates.size(), 1u);
  EXPECT_TRUE(lone_.updates[0].synced);
}

TEST_F(WatchTest, WatchesAreBounded) {
  for (size_t i = 0; i < NodeConfig().watches; ++i) {
    ASSERT_TRUE(lone_.Watch(KeyOf(std::to_string(i))));
  }
  EXPECT_FALSE(lone_.Watch(kRoster));
  EXPECT_TRUE(lone_.Watch(KeyOf("0"))) << "that one is there already";
}

}  // namespace
}  // namespace crowdsurf::dht
