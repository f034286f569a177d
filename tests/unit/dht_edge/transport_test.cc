#include "coordinator-free-dht/edge/transport.h"

#include <gmock/gmock.h>

#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("job/roster/0");

class TransportTest : public testing::Test {
 protected:
  Agent& Add(const TestAuthority& authority, TransportOptions options = {}) {
    const auto directory = temporary_.path() / std::to_string(agents_.size());
    authority.Equip(directory, {});
    return AddAt(directory, options);
  }
  Agent& AddAt(const std::filesystem::path& directory, TransportOptions options = {}) {
    agents_.push_back(std::make_unique<Agent>(directory, options, &waiter_));
    EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    return *agents_.back();
  }
  bool SendText(Agent& from, const Contact& to, const std::string& text) {
    return from.transport().Send(to, ChannelKind::kWorker, Bytes(text.begin(), text.end()));
  }

  TemporaryDirectory temporary_;
  Waiter waiter_;
  TestAuthority authority_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

TEST_F(TransportTest, TwoAgentsExchangeMessagesOverMutualTlsAndKnowEachOther) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(SendText(a, b.contact(), std::to_string(i)));
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 100; }));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(b.received()[static_cast<size_t>(i)].first, a.contact());
    EXPECT_EQ(b.received()[static_cast<size_t>(i)].second, std::to_string(i));
  }
  EXPECT_TRUE(SendText(b, a.contact(), "back"));
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  EXPECT_EQ(a.received()[0].first, b.contact());
  EXPECT_THAT(a.up(), testing::ElementsAre(b.contact()));
  EXPECT_EQ(Count(b, "crowdsurf_peer_dials_total"), 0);  // it answered on the stream it had
}

TEST_F(TransportTest, ACertificateOfAnotherJobIsRefusedAndCountedOnTheServer) {
  const TestAuthority other("another job");
  Agent& a = Add(authority_);
  Agent& stranger = Add(other);
  EXPECT_TRUE(SendText(stranger, {PeerId(), a.contact().endpoint}, "let me in"));
  ASSERT_TRUE(waiter_.Wait([&] { return !stranger.down().empty(); }));
  EXPECT_TRUE(a.received().empty());
  EXPECT_TRUE(a.up().empty());
  EXPECT_GE(Count(a, "crowdsurf_peer_certificates_refused_total") +
                Count(stranger, "crowdsurf_peer_certificates_refused_total"),
            1);
}

TEST_F(TransportTest, AKilledPeerIsSeenAsHardDown) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  SendText(a, b.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
  const Contact dead = b.contact();
  b.Kill();
  ASSERT_TRUE(waiter_.Wait([&] { return !a.down().empty(); }));
  EXPECT_EQ(a.down().back().peer, dead);
  EXPECT_TRUE(a.down().back().hard);
}

TEST_F(TransportTest, FiveAgentsShareARoster) {
  std::vector<Agent*> all;
  for (int i = 0; i < 5; ++i) all.push_back(&Add(authority_));
  for (Agent* agent : all) {
    agent->AddSeeds({all[0]->contact().endpoint});
    agent->Watch(kRoster);
    agent->Put(kRoster, agent->contact().endpoint);
  }
  for (Agent* agent : all) {
    EXPECT_TRUE(waiter_.Wait([&] { return agent->watched().size() == 5; }));
    EXPECT_TRUE(waiter_.Wait([&] { return agent->contacts() == 4u; }));
  }
}

}  // namespace
}  // namespace crowdsurf::dht
