// How soon a node answers its caller, in message delays of a network under virtual time.
#include "coordinator-free-dht/core/node/node.h"

#include <gmock/gmock.h>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

// `n` nodes that know the first one, started together.
void Start(Network& network, size_t n) {
  network.AddPeer({});
  while (network.size() < n) network.AddPeer({network.peer(0).endpoint});
}

TEST(NodeTest, AFreshNodeHasItsFirstWatchAnsweredInAFewRoundTrips) {
  Network network({});
  Start(network, 8);
  network.Run(Seconds(2));
  for (size_t i = 0; i < 8; ++i) {
    network.Do(i, [&](Node& node, Actions& out) {
      ASSERT_EQ(node.Put(network.clocks(), kRoster, BytesOf("here"), Seconds(30), out),
                PutResult::kPublished);
    });
  }
  network.Run(Seconds(1));
  const Time start = network.now();
  const size_t fresh = network.AddPeer({network.peer(3).endpoint});
  network.Do(fresh, [&](Node& node, Actions& out) {
    ASSERT_TRUE(node.Watch(network.clocks(), kRoster, out));
  });
  ASSERT_TRUE(network.RunUntilDone(
      Seconds(1), [&] { return network.peer(fresh).watched[kRoster].size() == 8; }));
  EXPECT_LT((network.now() - start).milliseconds(), 10.0);  // delays are 0.2 to 0.8 ms
  ASSERT_TRUE(network.RunUntilDone(Seconds(1),
                                   [&] { return network.peer(fresh).synced.contains(kRoster); }));
  EXPECT_LT((network.now() - start).milliseconds(), 20.0);
}

TEST(NodeTest, APutReachesAllWatchersWithinTwoMessageDelays) {
  Network network({});
  Start(network, 8);
  for (size_t i = 0; i < 8; ++i) {
    network.Do(i, [&](Node& node, Actions& out) { node.Watch(network.clocks(), kRoster, out); });
  }
  network.Run(Seconds(5));
  const Time start = network.now();
  network.Do(5, [&](Node& node, Actions& out) {
    node.Put(network.clocks(), kRoster, BytesOf("news"), Seconds(3), out);
  });
  ASSERT_TRUE(network.RunUntilDone(Seconds(1), [&] {
    for (size_t i = 0; i < 8; ++i) {
      if (network.peer(i).watched[kRoster].empty()) return false;
    }
    return true;
  }));
  EXPECT_LE((network.now() - start).milliseconds(), 1.6);
  network.Run(Seconds(1));
  ASSERT_EQ(network.peer(5).puts.size(), 1u);
  EXPECT_EQ(network.peer(5).puts[0].stored, 8);
}

TEST(NodeTest, ALonelyNodeIsSyncedAtOnceAndAnswersItself) {
  Network network({});
  network.AddPeer({});
  network.Do(0, [&](Node& node, Actions& out) {
    node.Watch(network.clocks(), kRoster, out);
    node.Put(network.clocks(), kRoster, BytesOf("alone"), Seconds(3), out);
  });
  EXPECT_TRUE(network.peer(0).synced.contains(kRoster));
  EXPECT_EQ(network.peer(0).watched[kRoster].size(), 1u);
  ASSERT_EQ(network.peer(0).puts.size(), 1u);
  EXPECT_EQ(network.peer(0).puts[0].stored, 1);
}

}  // namespace
}  // namespace crowdsurf::dht
