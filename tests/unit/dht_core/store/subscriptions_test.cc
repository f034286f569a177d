// Who is told of a key's changes and until when, within which bounds.
#include "coordinator-free-dht/core/store/subscriptions.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <utility>

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);
const Key kA = KeyOf("a"), kB = KeyOf("b"), kC = KeyOf("c");

Contact Peer(uint8_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = number;
  return {PeerId(bytes), "peer-" + std::to_string(number) + ":1"};
}

class SubscriptionsTest : public testing::Test {
 protected:
  SubscriptionsTest() {
    config_.watch_life = Seconds(30);
    config_.watchers_per_key = 2;
    config_.watcher_keys = 2;
    config_.watchers = 4;
  }
  bool Add(const Key& key, uint8_t peer, Time now = kStart, Duration life = Seconds(10)) {
    return subscriptions_.Add(now, key, Peer(peer), life);
  }
  std::vector<std::string> Watching(const Key& key, Time now = kStart) {
    std::vector<std::string> out;
    for (const auto& watcher : subscriptions_.Watchers(now, key)) {
      out.push_back(watcher.contact.endpoint);
    }
    return out;
  }
  Time Since(const Key& key, Time now) { return subscriptions_.Watchers(now, key).at(0).since; }

  NodeConfig config_;
  Subscriptions subscriptions_{config_};
};

TEST_F(SubscriptionsTest, OneEndsWithItsLifeWhichIsBounded) {
  EXPECT_TRUE(Add(kA, 1));
  EXPECT_TRUE(Add(kB, 1, kStart, Seconds(1e6)));
  EXPECT_THAT(Watching(kA, kStart + Seconds(10) - Nanoseconds(1)),
              testing::ElementsAre("peer-1:1"));
  EXPECT_TRUE(Watching(kA, kStart + Seconds(10)).empty());
  EXPECT_EQ(Watching(kB, kStart + Seconds(30) - Nanoseconds(1)).size(), 1u);
  EXPECT_TRUE(Watching(kB, kStart + Seconds(30)).empty());
  EXPECT_TRUE(Watching(kC).empty());
}

TEST_F(SubscriptionsTest, ARenewalMovesItsEndAndAddressAndKeepsItsBeginning) {
  Add(kA, 1);
  const Time later = kStart + Seconds(9);
  Contact moved = Peer(1);
  moved.endpoint = "elsewhere:1";
  EXPECT_TRUE(subscriptions_.Add(later, kA, moved, Seconds(10)));
  EXPECT_THAT(Watching(kA, kStart + Seconds(18)), testing::ElementsAre("elsewhere:1"));
  EXPECT_EQ(Since(kA, later), kStart);
  EXPECT_EQ(subscriptions_.size(), 1u);
  const Time ended = later + Seconds(10);
  EXPECT_TRUE(Add(kA, 1, ended));
  EXPECT_EQ(Since(kA, ended), ended) << "it had ended: what was pushed meanwhile did not come";
}

TEST_F(SubscriptionsTest, TheyAreBoundedPerKeyPerWatcherAndInAll) {
  EXPECT_TRUE(Add(kA, 1));
  EXPECT_TRUE(Add(kA, 2));
  EXPECT_FALSE(Add(kA, 3)) << "two of a key";
  EXPECT_TRUE(Add(kA, 2)) << "a renewal is no new one";
  EXPECT_TRUE(Add(kB, 1));
  EXPECT_FALSE(Add(kC, 1)) << "two keys of a watcher";
  EXPECT_TRUE(Add(kB, 3));
  EXPECT_FALSE(Add(kC, 4)) << "four in all";
  EXPECT_TRUE(Watching(kC).empty());
  EXPECT_EQ(subscriptions_.size(), 4u);

  subscriptions_.Remove(kA, Peer(1).id);
  EXPECT_EQ(subscriptions_.size(), 3u);
  EXPECT_TRUE(Add(kC, 1)) << "there is room for one, and it watches one key less";
  EXPECT_FALSE(Add(kA, 4));
}

TEST_F(SubscriptionsTest, TheKeysOfAWatcherAreCountedDownOneByOne) {
  config_.watchers = 100;
  EXPECT_TRUE(Add(kA, 1));
  EXPECT_TRUE(Add(kB, 1));
  for (int i = 0; i < 3; ++i) {
    subscriptions_.Remove(kA, Peer(1).id);
    EXPECT_TRUE(Add(kA, 1)) << i;
    EXPECT_FALSE(Add(kC, 1)) << i;
  }
}

TEST_F(SubscriptionsTest, AWatcherThatIsGoneWatchesNothing) {
  Add(kA, 1);
  Add(kA, 2);
  Add(kB, 1);
  subscriptions_.RemoveWatcher(Peer(9).id);
  EXPECT_EQ(subscriptions_.size(), 3u);
  subscriptions_.RemoveWatcher(Peer(1).id);
  EXPECT_EQ(subscriptions_.size(), 1u);
  EXPECT_THAT(Watching(kA), testing::ElementsAre("peer-2:1"));
  EXPECT_TRUE(Watching(kB).empty());
  EXPECT_TRUE(Add(kA, 1));
  EXPECT_TRUE(Add(kB, 1)) << "its keys were counted down";
}

TEST_F(SubscriptionsTest, ToRemoveWhatIsNotThereChangesNothing) {
  Add(kA, 1);
  subscriptions_.Remove(kB, Peer(1).id);
  subscriptions_.Remove(kA, Peer(2).id);
  EXPECT_EQ(subscriptions_.size(), 1u);
  EXPECT_THAT(Watching(kA), testing::ElementsAre("peer-1:1"));
}

TEST_F(SubscriptionsTest, TheirMemoryGrowsWithEachKeyWatcherAndSubscription) {
  size_t before = subscriptions_.MemoryBytes();
  const auto grown = [&] {
    const size_t was = std::exchange(before, subscriptions_.MemoryBytes());
    return static_cast<ptrdiff_t>(before - was);
  };
  Add(kA, 1);
  EXPECT_GT(grown(), 0);
  Add(kB, 1);
  const ptrdiff_t with_key = grown();
  Add(kA, 2);
  const ptrdiff_t with_watcher = grown();
  Add(kB, 2);
  const ptrdiff_t alone = grown();
  // Each at least as much as what it keeps: a key and an id once, a watcher under its id.
  EXPECT_GE(alone, ptrdiff_t{sizeof(PeerId) + sizeof(Contact)});
  EXPECT_GE(with_key - alone, ptrdiff_t{sizeof(Key)});
  EXPECT_GE(with_watcher - alone, ptrdiff_t{sizeof(PeerId)});
  subscriptions_.Remove(kB, Peer(2).id);
  EXPECT_EQ(grown(), -alone);
}

TEST_F(SubscriptionsTest, WhatHasEndedLeavesNothing) {
  const size_t empty = subscriptions_.MemoryBytes();
  Add(kA, 1);
  subscriptions_.Remove(kA, Peer(1).id);
  EXPECT_EQ(subscriptions_.MemoryBytes(), empty) << "it was ended";
  Add(kA, 1);
  subscriptions_.RemoveWatcher(Peer(1).id);
  EXPECT_EQ(subscriptions_.MemoryBytes(), empty) << "its watcher is gone";
  Add(kA, 1);
  subscriptions_.Sweep(kStart + Seconds(10));
  EXPECT_EQ(subscriptions_.MemoryBytes(), empty) << "its time is over";
}

TEST_F(SubscriptionsTest, ASweepDropsWhatHasEnded) {
  Add(kA, 1);
  Add(kA, 2, kStart, Seconds(20));
  Add(kB, 1);
  subscriptions_.Sweep(kStart + Seconds(10) - Nanoseconds(1));
  EXPECT_EQ(subscriptions_.size(), 3u);
  subscriptions_.Sweep(kStart + Seconds(10));
  EXPECT_EQ(subscriptions_.size(), 1u);
  EXPECT_THAT(Watching(kA, kStart + Seconds(10)), testing::ElementsAre("peer-2:1"));
}

}  // namespace
}  // namespace crowdsurf::dht
