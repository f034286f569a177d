// Claims of the Kademlia paper (Maymounkov and Mazieres 2002) checked against brute force.
//
// Section 2.3: a lookup finds the k nodes nearest to a key. Section 3 (sketch of proof): it takes
// ceil(log2 n) + c steps; with buckets of k contacts fewer (reference: at most 4 at n = 1024).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

Key RandomKey(Rng& rng) {
  std::array<uint8_t, 32> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return Key(bytes);
}

// `n` nodes that joined one after the other through a random earlier one, settled.
void Grow(Network& network, size_t n) {
  network.AddPeer({});
  while (network.size() < n) {
    const size_t seed = network.rng().Uniform(network.size());
    network.AddPeer({network.peer(seed).endpoint});
    network.Run(Milliseconds(5));
  }
  network.Run(Seconds(40));
}

struct Size {
  size_t nodes;
  double hops;  // mean, at most
};

class KademliaPaperTest : public testing::TestWithParam<Size> {};

TEST_P(KademliaPaperTest, LookupsFindTheTrueKNearestInFewRoundTrips) {
  Network::Options options;
  options.seed = 20 + GetParam().nodes;
  Network network(options);
  Grow(network, GetParam().nodes);
  constexpr int kLookups = 200;
  size_t found = 0;
  size_t wanted = 0;
  double hops = 0;
  for (int i = 0; i < kLookups; ++i) {
    const size_t asker = network.rng().Uniform(network.size());
    const Key key = RandomKey(network.rng());
    // The real iterative lookup over the real tables, answered synchronously.
    Lookup lookup(key, network.id(asker), options.config, network.node(asker).Nearest(key));
    while (const auto contact = lookup.Next()) {
      const size_t asked = network.IndexOf(contact->id);
      lookup.OnSuccess(contact->id, network.node(asked).Nearest(key));
    }
    ASSERT_TRUE(lookup.Done());
    std::vector<PeerId> truth;
    for (const PeerId& id : network.TrueNearest(key, options.config.k + 1)) {
      if (id != network.id(asker) && truth.size() < options.config.k) truth.push_back(id);
    }
    const std::vector<Contact> nearest = lookup.Nearest();
    for (size_t j = 0; j < truth.size(); ++j) {
      found += j < nearest.size() && nearest[j].id == truth[j];
    }
    wanted += truth.size();
    hops += lookup.hops();
  }
  EXPECT_EQ(found, wanted) << "seed " << options.seed;
  EXPECT_LE(hops / kLookups, GetParam().hops) << "seed " << options.seed;
  std::cout << GetParam().nodes << " nodes: " << hops / kLookups << " round trips a lookup\n";
}

INSTANTIATE_TEST_SUITE_P(Sizes, KademliaPaperTest,
                         testing::Values(Size{8, 1}, Size{64, 2}, Size{128, 3}, Size{1000, 4}));

}  // namespace
}  // namespace crowdsurf::dht
