// What a node asks of its own accord: contacts, its own point, buckets and seeds.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

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
