// Who holds a key, against a sort of all who are known, and how often that is looked up.
#include "coordinator-free-dht/core/store/replica_tracker.h"

#include <gmock/gmock.h>

#include "coordinator-free-dht/core/routing/routing_table.h"

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

PeerId RandomPeer(Rng& rng) {
  std::array<uint8_t, 32> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return PeerId(bytes);
}
Contact At(const PeerId& id) { return {id, id.brief() + ":1"}; }

class ReplicaTrackerTest : public testing::Test {
 protected:
  ReplicaTrackerTest() { config_.k = 4; }
  void Meet(const Contact& contact) { table_.OnReply(kStart, contact, Milliseconds(1)); }
  std::vector<Contact> Random(size_t n) {
    std::vector<Contact> out;
    while (out.size() < n) out.push_back(At(RandomPeer(rng_)));
    return out;
  }

  Rng rng_{8};
  NodeConfig config_;
  const PeerId self_ = RandomPeer(rng_);
  RoutingTable table_{self_, config_};
  ReplicaTracker tracker_{self_, config_, table_, Rng(9)};
  const Key key_ = KeyOf("roster");
};

TEST_F(ReplicaTrackerTest, HoldersAreTheNearestOfTableLookupAndSelf) {
  int with_self = 0;
  for (int i = 0; i < 300; ++i) {
    const Key key = KeyOf(std::to_string(i));
    RoutingTable table(self_, config_);
    ReplicaTracker tracker(self_, config_, table, Rng(9));
    // Few enough for the table to keep them all.
    const std::vector<Contact> met = Random(rng_.Uniform(4)), found = Random(rng_.Uniform(4));
    for (const Contact& contact : met) table.OnReply(kStart, contact, Milliseconds(1));
    tracker.Follow(key);
    tracker.OnLookedUp(kStart, key, found);
    std::vector<PeerId> all = {self_};
    for (const Contact& contact : met) all.push_back(contact.id);
    for (const Contact& contact : found) all.push_back(contact.id);
    std::sort(all.begin(), all.end(),
              [&](const PeerId& a, const PeerId& b) { return Closer(key, a, b); });
    if (all.size() > config_.k) all.resize(config_.k);

    const ReplicaTracker::Holders holders = tracker.Of(key);
    std::vector<PeerId> got;
    for (const Contact& contact : holders.others) got.push_back(contact.id);
    const auto own = std::find(all.begin(), all.end(), self_);
    EXPECT_EQ(holders.self, own != all.end());
    with_self += holders.self;
    if (own != all.end()) all.erase(own);
    EXPECT_EQ(got, all);
  }
  EXPECT_GT(with_self, 50);
  EXPECT_LT(with_self, 290);
}

TEST_F(ReplicaTrackerTest, AFollowedKeyIsLookedUpAtOnceAndThenEverLessOften) {
  EXPECT_TRUE(tracker_.TakeDue(kStart).empty());
  EXPECT_TRUE(tracker_.NextDeadline().infinite());
  tracker_.Follow(key_);
  EXPECT_LE(tracker_.NextDeadline(), kStart);
  Time now = kStart;
  Duration interval = config_.holders_first;
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(tracker_.TakeDue(now), testing::ElementsAre(key_));
    EXPECT_TRUE(tracker_.TakeDue(now + Seconds(1000)).empty()) << "it is being looked up";
    EXPECT_TRUE(tracker_.NextDeadline().infinite());
    EXPECT_EQ(tracker_.Known(key_), i > 0);
    tracker_.OnLookedUp(now, key_, {});
    EXPECT_GE(tracker_.NextDeadline(), now + interval * 0.7499);
    EXPECT_LE(tracker_.NextDeadline(), now + interval * 1.2501);
    EXPECT_TRUE(tracker_.TakeDue(tracker_.NextDeadline() - Nanoseconds(1)).empty());
    interval = std::min(interval * 2.0, config_.holders_refresh);
    now = tracker_.NextDeadline();
  }
  EXPECT_EQ(interval, config_.holders_refresh);
  tracker_.Hurry(now - Seconds(5));
  EXPECT_EQ(tracker_.NextDeadline(), now - Seconds(5));
  tracker_.TakeDue(now);
  tracker_.OnLookedUp(now, key_, {});
  EXPECT_LE(tracker_.NextDeadline(), now + config_.holders_first * 1.2501) << "and soon again";
}

TEST_F(ReplicaTrackerTest, AKeyIsFollowedUntilItsLastFollowerLeaves) {
  tracker_.Follow(key_);
  tracker_.Follow(key_);
  tracker_.OnLookedUp(kStart, key_, {});
  tracker_.Unfollow(key_);
  EXPECT_TRUE(tracker_.Known(key_));
  tracker_.Unfollow(key_);
  EXPECT_FALSE(tracker_.Known(key_));
  EXPECT_TRUE(tracker_.TakeDue(kStart + Seconds(1000)).empty());
  tracker_.Unfollow(key_);
  tracker_.OnLookedUp(kStart, key_, Random(1));  // of a lookup that was under way
  EXPECT_FALSE(tracker_.Known(key_));
  EXPECT_TRUE(tracker_.Of(key_).others.empty());
}

TEST_F(ReplicaTrackerTest, APeerThatIsGoneIsNoHolder) {
  tracker_.Follow(key_);
  const std::vector<Contact> found = Random(2);
  tracker_.OnLookedUp(kStart, key_, found);
  ASSERT_EQ(tracker_.Of(key_).others.size(), 2u);
  tracker_.Remove(found[0].id);
  EXPECT_THAT(tracker_.Of(key_).others, testing::ElementsAre(found[1]));
}

}  // namespace
}  // namespace crowdsurf::dht
