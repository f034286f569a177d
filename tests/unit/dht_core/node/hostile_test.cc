// What a peer with a good certificate and bad manners can do to a node: be counted, no more.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

class HostileTest : public testing::Test {
 protected:
  HostileTest() : network_({.seed = 1}) {
    network_.AddPeer({});
    network_.AddPeer({network_.peer(0).endpoint});
    network_.Run(Seconds(1));
  }
  // A record as peer 1 would sign it.
  Record Signed(uint64_t sequence, Duration life) {
    Record record;
    record.key = kRoster;
    record.subkey = network_.id(1);
    record.boot = 1;
    record.sequence = sequence;
    record.written = network_.wall();
    record.expiry = network_.wall() + life;
    record.value = BytesOf("value");
    record.public_key = network_.peer(1).public_key;
    record.signature = network_.peer(1).authority->Sign(SignedBytes(record));
    return record;
  }
  // Peer 1 says `body` to node 0, which answers with these.
  Actions Say(decltype(Message::body) body, uint64_t id = 77) {
    Actions out;
    network_.node(0).OnMessage(network_.clocks(), network_.node(1).self(),
                               Message{id, std::move(body)}, out);
    return out;
  }
  StoreReply Store(Record record) {
    const Actions out = Say(StoreRequest{{std::make_shared<const Record>(std::move(record))}});
    for (const Action& action : out) {
      const auto* send = std::get_if<Send>(&action);
      if (send == nullptr) continue;
      if (const auto* reply = std::get_if<StoreReply>(&send->message.body)) return *reply;
    }
    return {};
  }
  double Count(const std::string& name, const MetricLabels& labels = {}) {
    return network_.registry().Value(name, labels);
  }
  size_t Held() { return network_.node(0).store().Find(network_.wall(), kRoster).size(); }

  Network network_;
};

TEST_F(HostileTest, AGoodRecordIsTaken) {
  EXPECT_EQ(Store(Signed(1, Seconds(9))).stored, 1);
  EXPECT_EQ(Held(), 1u);
}

TEST_F(HostileTest, ARecordChangedInAnyFieldIsForged) {
  const auto change = [&](const std::function<void(Record&)>& edit) {
    Record record = Signed(1, Seconds(9));
    edit(record);
    return Store(record).refused;
  };
  EXPECT_EQ(change([](Record& r) { r.value.push_back('!'); }), 1);
  EXPECT_EQ(change([](Record& r) { r.sequence = 99; }), 1);
  EXPECT_EQ(change([](Record& r) { r.expiry = r.expiry + Seconds(1); }), 1);
  EXPECT_EQ(change([](Record& r) { r.written = r.written - Seconds(1); }), 1);
  EXPECT_EQ(change([](Record& r) { r.key = KeyOf("another"); }), 1);
  EXPECT_EQ(change([](Record& r) { r.boot = 2; }), 1);
  EXPECT_EQ(change([](Record& r) { r.signature[3] ^= 1; }), 1);
  EXPECT_EQ(change([&](Record& r) { r.subkey = network_.id(0); }), 1);  // somebody else's name
  EXPECT_EQ(Count("crowdsurf_dht_records_forged_total"), 8);
  EXPECT_TRUE(network_.node(0).store().empty());
}

TEST_F(HostileTest, AnOldSignedRecordPlayedAgainChangesNothing) {
  const Record old = Signed(1, Seconds(9));
  EXPECT_EQ(Store(Signed(2, Seconds(100))).stored, 1);
  EXPECT_EQ(Store(old).refused, 1);
  network_.Run(Seconds(20));
  EXPECT_EQ(Held(), 1u);
}

TEST_F(HostileTest, RepliesToNothingOrFromAnotherPeerAreCounted) {
  EXPECT_TRUE(Say(FindReply{}, 123456).empty());
  EXPECT_TRUE(Say(StoreReply{1, 0}, 5).empty());
  EXPECT_EQ(Count("crowdsurf_dht_replies_unmatched_total"), 2);
}

TEST_F(HostileTest, AReplyOfTheWrongKindIsAFailureNotACrash) {
  Actions out;
  network_.node(0).Get(network_.clocks(), kRoster, 0, out);
  ASSERT_EQ(out.size(), 1u);
  const auto* send = std::get_if<Send>(&out[0]);
  ASSERT_NE(send, nullptr);
  const Actions answer = Say(WatchReply{true, {}}, send->message.id);
  ASSERT_EQ(answer.size(), 1u);  // the search ends with nothing found
  EXPECT_TRUE(std::get<GetDone>(answer[0]).records.empty());
}

TEST_F(HostileTest, APushOfAKeyThatIsNotWatchedIsCountedAndTurnedOff) {
  const auto record = std::make_shared<const Record>(Signed(1, Seconds(9)));
  const Actions out = Say(WatchPush{{record}}, 0);
  EXPECT_EQ(Count("crowdsurf_dht_pushes_unwanted_total"), 1);
  ASSERT_EQ(out.size(), 1u);
  const auto& request = std::get<WatchRequest>(std::get<Send>(out[0]).message.body);
  EXPECT_EQ(request.life, Duration());
}

TEST_F(HostileTest, AForgedPushIsNotReported) {
  network_.Do(0, [&](Node& node, Actions& out) { node.Watch(network_.clocks(), kRoster, out); });
  network_.Run(Seconds(1));
  Record record = Signed(1, Seconds(9));
  record.value = BytesOf("lie");
  for (const Action& action : Say(WatchPush{{std::make_shared<const Record>(record)}}, 0)) {
    EXPECT_EQ(std::get_if<WatchUpdate>(&action), nullptr);
  }
  EXPECT_EQ(Count("crowdsurf_dht_records_forged_total"), 1);
}

TEST_F(HostileTest, ARecordIsVerifiedOnceWhetherItsStoreOrItsPushIsQuicker) {
  network_.Do(0, [&](Node& node, Actions& out) { node.Watch(network_.clocks(), kRoster, out); });
  network_.Run(Seconds(1));
  const auto verified = [&] { return network_.peer(0).authority->verified; };
  const uint64_t before = verified();
  const auto push = [](const Record& record) {
    return WatchPush{{std::make_shared<const Record>(record)}};
  };
  Say(push(Signed(1, Seconds(9))), 0);
  EXPECT_EQ(Store(Signed(1, Seconds(9))).stored, 1);
  EXPECT_EQ(verified() - before, 1u);
  EXPECT_EQ(Store(Signed(2, Seconds(9))).stored, 1);
  Say(push(Signed(2, Seconds(9))), 0);
  EXPECT_EQ(verified() - before, 2u);

  Say(push(Signed(3, Seconds(9))), 0);
  Record other = Signed(3, Seconds(9));
  other.value = BytesOf("lie");  // what was reported vouches for its very bytes alone
  EXPECT_EQ(Store(other).stored, 0);
  EXPECT_EQ(verified() - before, 4u);
}

TEST_F(HostileTest, SubscriptionsAreBoundedPerWatcherAndEnd) {
  int accepted = 0;
  const auto watch = [&](int i) {
    const Actions out = Say(WatchRequest{KeyOf(std::to_string(i)), Seconds(1e6), {}});
    for (const Action& action : out) {
      const auto* send = std::get_if<Send>(&action);
      if (send == nullptr) continue;
      const auto* reply = std::get_if<WatchReply>(&send->message.body);
      if (reply != nullptr) accepted += reply->accepted;
    }
  };
  for (int i = 0; i < 1000; ++i) watch(i);
  EXPECT_EQ(accepted, static_cast<int>(NodeConfig().watcher_keys));
  network_.Run(NodeConfig().watch_life + Seconds(10));  // nobody renewed
  accepted = 0;
  watch(5000);
  EXPECT_EQ(accepted, 1);
}

TEST_F(HostileTest, AFloodIsCutToItsSendersRateAndHarmsNobodyElse) {
  const NodeConfig config;
  size_t answered = 0, asked = 0;
  const Time start = network_.now();
  for (; asked < 40'000; ++asked) {
    answered += !Say(FindRequest{PointOf(network_.id(1)), false}).empty();
  }
  EXPECT_NEAR(static_cast<double>(answered), config.source_burst, 100);
  EXPECT_EQ(Count("crowdsurf_dht_requests_limited_total"), static_cast<double>(asked - answered));
  // A third one, in the same instant, is served as ever.
  network_.AddPeer({network_.peer(0).endpoint});
  network_.Run(Seconds(1));
  EXPECT_GE(network_.node(2).contacts(), 1u);
  EXPECT_EQ(network_.now() - start, Seconds(1));
  EXPECT_FALSE(Say(FindRequest{PointOf(network_.id(1)), false}).empty()) << "by now it may again";
}

TEST_F(HostileTest, ForgedRecordsCostTheirSenderMoreThanGoodOnes) {
  Record forged = Signed(1, Seconds(9));
  forged.value = BytesOf("another");
  const std::vector<RecordPtr> ten(10, std::make_shared<const Record>(forged));
  for (int i = 0; i < 1000; ++i) Say(StoreRequest{ten});
  // Each costs 1 + 20; at most one request beyond the last token.
  EXPECT_LE(Count("crowdsurf_dht_records_forged_total"), NodeConfig().source_burst / 20);
  EXPECT_GT(Count("crowdsurf_dht_requests_limited_total"), 900);
}

TEST_F(HostileTest, ContactsOfNobodyAreNotEnteredAndCostAFewQueries) {
  // Node 1's answers name a hundred peers that do not exist.
  Actions out;
  network_.node(0).Get(network_.clocks(), kRoster, 0, out);
  FindReply lies;
  for (int i = 0; i < 60; ++i) {
    lies.contacts.push_back(
        {PeerId(KeyOf(std::to_string(i)).bytes()), "nowhere:" + std::to_string(i)});
  }
  const uint64_t id = std::get<Send>(out[0]).message.id;
  network_.Do(0, [&](Node& node, Actions& more) {
    node.OnMessage(network_.clocks(), network_.node(1).self(), Message{id, lies}, more);
  });
  EXPECT_TRUE(network_.RunUntilDone(Seconds(10), [&] { return !network_.peer(0).gets.empty(); }));
  EXPECT_EQ(network_.node(0).contacts(), 1u);
  EXPECT_LE(Count("crowdsurf_dht_requests_failed_total"), 64);
}

TEST_F(HostileTest, NoiseThroughTheCodecNeverHarmsANode) {
  Rng rng(99);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes = Encode(Message{
        rng.Next(),
        StoreRequest{{std::make_shared<const Record>(Signed(rng.Uniform(5), Seconds(9)))}}});
    bytes[1] = static_cast<uint8_t>(rng.Uniform(7));
    for (int m = 0; m < 3; ++m) bytes[rng.Uniform(bytes.size())] = static_cast<uint8_t>(rng.Next());
    bytes[0] = 1;
    const auto message = Decode(bytes);
    if (message) Say(message->body, message->id);
  }
  // What node 0 asked meanwhile was not delivered here, so it may have forgotten its only peer,
  // which looks for it again before it has been quiet for so long.
  network_.Run(Seconds(5));
  EXPECT_EQ(network_.node(0).contacts(), 1u);
}

}  // namespace
}  // namespace crowdsurf::dht
