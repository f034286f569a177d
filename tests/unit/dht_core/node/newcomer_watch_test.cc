// A newcomer that belongs among a key's holders, in a swarm that is larger than a key has holders:
// who writes learns of it late, and who pushes counts on the writer.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

constexpr Duration kBeat = Seconds(1);

class NewcomerWatchTest : public ::testing::TestWithParam<size_t> {
 protected:
  void Put(Network& network, size_t index, const Key& key, int beat) {
    network.Do(index, [&](Node& node, Actions& out) {
      ASSERT_EQ(node.Put(network.clocks(), key, BytesOf(std::to_string(beat)), kBeat * 3, out),
                PutResult::kPublished);
    });
  }
  void Watch(Network& network, size_t index, const Key& key) {
    network.Do(index, [&](Node& node, Actions& out) {
      ASSERT_TRUE(node.Watch(network.clocks(), key, out));
    });
  }
  size_t Join(Network& network, const PublicKey* own_key = nullptr) {
    const size_t seed = network.rng().Uniform(network.size());
    return network.AddPeer({network.peer(seed).endpoint}, own_key);
  }
  // Of somebody who is nearer to `key` than all that are there.
  static PublicKey Nearer(Network& network, const Key& key) {
    const PeerId nearest = network.TrueNearest(key, 1).front();
    for (PublicKey own{};;) {
      for (uint8_t& byte : own) byte = static_cast<uint8_t>(network.rng().Next());
      if (Closer(key, PeerIdOf(own, 1), nearest)) return own;
    }
  }
  void Start(Network& network, size_t n) {
    network.AddPeer({});
    while (network.size() < n) {
      Join(network);
      network.Run(Milliseconds(10));
    }
    network.Run(Seconds(60));
  }
};

// Every node watches a key and renews its record there each second; then a node joins that is
// nearest to the key of all, and does likewise.
TEST_P(NewcomerWatchTest, TheNewNearestHolderHearsOfEveryRecordAtOnce) {
  const size_t n = GetParam();
  const Key key = KeyOf("charlm/roster/0");
  Network network({.seed = 1});
  Start(network, n);
  for (size_t i = 0; i < n; ++i) Watch(network, i, key);
  int beat = 0;
  const auto all_put = [&](size_t count) {
    ++beat;
    for (size_t i = 0; i < count; ++i) {
      Put(network, i, key, beat);
      network.Run(kBeat * (1.0 / static_cast<double>(count)));
    }
  };
  // Until the writers look their holders up as seldom as they ever do.
  for (int i = 0; i < 5; ++i) {
    all_put(n);
    network.Run(Seconds(10));
  }
  const PublicKey own = Nearer(network, key);
  const size_t fresh = Join(network, &own);
  Watch(network, fresh, key);
  all_put(n + 1);  // it may be busy with joining
  for (int i = 0; i < 20; ++i) {
    all_put(n + 1);
    network.Run(Milliseconds(50));
    size_t behind = 0;
    for (size_t other = 0; other <= n; ++other) {
      const auto& seen = network.peer(fresh).watched[key];
      const auto it = seen.find(network.id(other));
      behind += it == seen.end() || it->second->value != BytesOf(std::to_string(beat));
    }
    EXPECT_EQ(behind, 0u) << i << " s after it came";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NewcomerWatchTest, ::testing::Values(12, 30));

}  // namespace
}  // namespace crowdsurf::dht
