// Many nodes under virtual time: churn, loss, death, split and merge.
#include <gmock/gmock.h>

#include <iostream>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

void Start(Network& network, size_t n) {
  network.AddPeer({});
  while (network.size() < n) {
    network.AddPeer({network.peer(network.rng().Uniform(network.size())).endpoint});
    network.Run(Milliseconds(10));
  }
  network.Run(Seconds(60));
}
void Put(Network& network, size_t index, const Key& key, const std::string& text, Duration life) {
  network.Do(index, [&](Node& node, Actions& out) {
    ASSERT_EQ(node.Put(network.clocks(), key, BytesOf(text), life, out), PutResult::kPublished);
  });
}
void Watch(Network& network, size_t index, const Key& key) {
  network.Do(index, [&](Node& node, Actions& out) {
    ASSERT_TRUE(node.Watch(network.clocks(), key, out));
  });
}
// Runs a Get to its end and gives its records.
std::vector<RecordPtr> Get(Network& network, size_t index, const Key& key, size_t enough = 0) {
  const size_t before = network.peer(index).gets.size();
  network.Do(index,
             [&](Node& node, Actions& out) { node.Get(network.clocks(), key, enough, out); });
  EXPECT_TRUE(
      network.RunUntilDone(Seconds(30), [&] { return network.peer(index).gets.size() > before; }));
  return network.peer(index).gets.back().records;
}

TEST(SwarmTest, ARecordLiesAtTheTrueTwentyNearestAndEveryoneFindsIt) {
  Network network({.seed = 1});
  Start(network, 128);
  for (int i = 0; i < 20; ++i) {
    const Key key = KeyOf("key/" + std::to_string(i));
    const size_t writer = network.rng().Uniform(network.size());
    Put(network, writer, key, "value", Seconds(300));
    network.Run(Seconds(1));
    ASSERT_FALSE(network.peer(writer).puts.empty());
    EXPECT_EQ(network.peer(writer).puts.back().stored, 20);
    EXPECT_EQ(network.peer(writer).puts.back().failed, 0);
    for (const PeerId& holder : network.TrueNearest(key, 20)) {
      EXPECT_EQ(network.node(network.IndexOf(holder)).store().Find(network.wall(), key).size(), 1u);
    }
    for (int j = 0; j < 5; ++j) {
      const auto records = Get(network, network.rng().Uniform(network.size()), key);
      ASSERT_EQ(records.size(), 1u);
      EXPECT_EQ(records[0]->subkey, network.id(writer));
      EXPECT_EQ(Get(network, network.rng().Uniform(network.size()), key, 1).size(), 1u);
    }
  }
}

TEST(SwarmTest, ASmallJobKeepsAsManyCopiesAsItHasPeers) {
  Network network({.seed = 2});
  Start(network, 7);
  Put(network, 3, kRoster, "value", Seconds(300));
  network.Run(Seconds(1));
  EXPECT_EQ(network.Copies(kRoster, network.id(3)), 7);
}

TEST(SwarmTest, NoValueIsLostWhileFewerThanAllHoldersDieAtOnce) {
  for (const bool hard : {true, false}) {
    Network network({.seed = 3, .hard_deaths = hard});
    Start(network, 100);
    std::vector<Key> keys;
    std::vector<PeerId> owners;
    for (int i = 0; i < 30; ++i) {
      keys.push_back(KeyOf("key/" + std::to_string(i)));
      const size_t writer = network.rng().Uniform(network.size());
      owners.push_back(network.id(writer));
      Put(network, writer, keys.back(), "value", Seconds(3000));
    }
    network.Run(Seconds(2));
    // A wave takes half of the job, writers included, but of each key at most 19 of 20 holders: it
    // is checked below that somebody holds it still.
    for (size_t i = 0; i < 100; i += 2) network.Kill(i);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_GT(network.Copies(keys[i], owners[i]), 0);
    network.Run(Seconds(1));
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(Get(network, 1 + 2 * network.rng().Uniform(50), keys[i]).size(), 1u)
          << "hard " << hard << " key " << i;
    }
    // Without the writers' help the holders bring the number of copies back.
    network.Run(Seconds(200));
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_GE(network.Copies(keys[i], owners[i]), 18) << "hard " << hard << " key " << i;
    }
    // And so it survives wave after wave.
    for (size_t i = 1; i < 100; i += 4) network.Kill(i);
    network.Run(Seconds(200));
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(Get(network, 3 + 4 * network.rng().Uniform(25), keys[i]).size(), 1u);
    }
  }
}

TEST(SwarmTest, LookupsRightAfterAQuarterDiedAreQuick) {
  for (const bool hard : {true, false}) {
    Network network({.seed = 4, .hard_deaths = hard});
    Start(network, 128);
    for (int i = 0; i < 50; ++i) {
      Put(network, network.rng().Uniform(128), KeyOf("key/" + std::to_string(i)), "v",
          Seconds(3000));
    }
    network.Run(Seconds(2));
    for (size_t i = 0; i < 128; i += 4) network.Kill(i);
    std::vector<double> first;
    std::vector<double> complete;
    int misses = 0;
    for (int i = 0; i < 200; ++i) {
      const size_t asker = 1 + 4 * network.rng().Uniform(32);
      const Key key = KeyOf("key/" + std::to_string(network.rng().Uniform(50)));
      const bool quick = i % 2 == 0;
      const Time start = network.now();
      misses += Get(network, asker, key, quick ? 1 : 0).empty();
      (quick ? first : complete).push_back((network.now() - start).milliseconds());
    }
    std::sort(first.begin(), first.end());
    std::sort(complete.begin(), complete.end());
    std::cout << (hard ? "told" : "silent") << ": first value p50 " << first[50] << " p99 "
              << first[98] << " ms, complete p50 " << complete[50] << " p99 " << complete[98]
              << " ms\n";
    EXPECT_EQ(misses, 0);
    EXPECT_LT(complete[50], 50);  // the aim, ms: 50 and 500
    EXPECT_LT(complete[98], 500);
  }
}

TEST(SwarmTest, WatchersHearOfEveryChangeAlsoWithLossAndDyingHolders) {
  Network network({.seed = 5, .loss = 0.01});
  Start(network, 64);
  for (size_t i = 0; i < 64; ++i) Watch(network, i, kRoster);
  network.Run(Seconds(5));
  // The five nearest holders die one after the other while somebody keeps writing.
  const std::vector<PeerId> nearest = network.TrueNearest(kRoster, 6);
  size_t writer = network.IndexOf(nearest[5]);
  std::set<size_t> dead;
  for (int round = 0; round < 20; ++round) {
    if (round % 4 == 3) {
      const size_t victim = network.IndexOf(nearest[static_cast<size_t>(round / 4)]);
      network.Kill(victim);
      dead.insert(victim);
    }
    Put(network, writer, kRoster, std::to_string(round), Seconds(30));
    network.Run(Seconds(1));
    size_t behind = 0;
    for (size_t i = 0; i < 64; ++i) {
      if (dead.contains(i)) continue;
      const auto& seen = network.peer(i).watched[kRoster];
      const auto it = seen.find(network.id(writer));
      behind += it == seen.end() || AsString(it->second->value) != std::to_string(round);
    }
    EXPECT_EQ(behind, 0u) << "round " << round;
  }
}

TEST(SwarmTest, AChangeIsPushedToEachWatcherAFewTimesOnly) {
  Network network({.seed = 6});
  Start(network, 64);
  for (size_t i = 0; i < 64; ++i) Watch(network, i, kRoster);
  network.Run(Seconds(15));
  const double before = network.registry().Value("crowdsurf_dht_pushes_total");
  Put(network, 1, kRoster, "x", Seconds(30));
  network.Run(Milliseconds(100));
  const double pushes = network.registry().Value("crowdsurf_dht_pushes_total") - before;
  EXPECT_LE(pushes, 64 * 4);
  EXPECT_GE(pushes, 60 * 2);
}

TEST(SwarmTest, WhoHoldsAKeyItselfIsPushedToByTheNearestHolderAlone) {
  Network network({.seed = 6});
  Start(network, 8);
  for (size_t i = 0; i < 8; ++i) Watch(network, i, kRoster);
  network.Run(Seconds(1));
  const double before = network.registry().Value("crowdsurf_dht_pushes_total");
  for (int beat = 0; beat < 10; ++beat) {
    for (size_t i = 0; i < 8; ++i) {
      Put(network, i, kRoster, "heartbeat " + std::to_string(beat), Seconds(3));
    }
    network.Run(Seconds(1));
  }
  const double pushes = network.registry().Value("crowdsurf_dht_pushes_total") - before;
  EXPECT_LE(pushes, 10 * 8 * 7) << "each change to each watcher once, beside its writer's store";
  EXPECT_GE(pushes, 10 * 7 * 6);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(network.node(i).store().Find(network.wall(), kRoster).size(), 8u) << i;
  }
}

TEST(SwarmTest, TwoSwarmsThatFormedApartMergeThroughASeedAndSeeEachOthersRecords) {
  Network network({.seed = 7});
  for (size_t i = 0; i < 60; ++i) {
    const size_t first = i < 30 ? 0 : 30;
    // Everybody knows both swarms' first node, as every agent gets the same list of seeds.
    network.AddPeer({network.EndpointOf(first), network.EndpointOf(30 - first)});
    network.peer(i).side = i < 30 ? 0 : 1;
    network.Run(Milliseconds(10));
  }
  for (size_t i = 0; i < 60; ++i) {
    Watch(network, i, kRoster);
    Put(network, i, kRoster, "here", Seconds(3000));
  }
  network.Run(Seconds(20));
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(network.peer(i).watched[kRoster].size(), 30u);
  for (size_t i = 0; i < 60; ++i) network.peer(i).side = 0;
  const Time healed = network.now();
  EXPECT_TRUE(network.RunUntilDone(Seconds(300), [&] {
    for (size_t i = 0; i < 60; ++i) {
      if (network.peer(i).watched[kRoster].size() != 60) return false;
    }
    return true;
  }));
  std::cout << "merged after " << (network.now() - healed).seconds() << " s\n";
  network.Run(Seconds(60));
  const auto copies = network.Copies(kRoster, network.id(5));
  EXPECT_GE(copies, 20);
}

TEST(SwarmTest, TwoSwarmsMergeEvenWhenOnlyOneNodeOfEachKnowsOfTheOther) {
  Network network({.seed = 8});
  for (size_t i = 0; i < 40; ++i) {
    network.AddPeer({network.EndpointOf(i < 20 ? 0 : 20)});
    network.Run(Milliseconds(10));
  }
  for (size_t i = 0; i < 40; ++i) {
    Watch(network, i, kRoster);
    Put(network, i, kRoster, "here", Seconds(3000));
  }
  network.Run(Seconds(100));
  network.Do(7, [&](Node& node, Actions& out) {
    node.AddSeeds(network.clocks(), {network.peer(33).endpoint}, out);
  });
  const Time start = network.now();
  EXPECT_TRUE(network.RunUntilDone(Seconds(300), [&] {
    for (size_t i = 0; i < 40; ++i) {
      if (network.peer(i).watched[kRoster].size() != 40) return false;
    }
    return true;
  }));
  std::cout << "merged after " << (network.now() - start).seconds() << " s\n";
}

TEST(SwarmTest, ANodeThatLostEverybodyRejoinsThroughItsSeeds) {
  Network network({.seed = 9});
  Start(network, 10);
  network.peer(4).side = 1;
  network.Do(4, [&](Node& node, Actions& out) {
    node.AddSeeds(network.clocks(), {network.peer(0).endpoint}, out);
    for (size_t i = 0; i < 10; ++i) {
      if (i == 4) continue;
      node.OnPeerDown(network.clocks(), network.node(i).self(), DownEvidence::kRefused, out);
    }
  });
  EXPECT_EQ(network.node(4).contacts(), 0u);
  network.Run(Seconds(300));
  EXPECT_EQ(network.node(4).contacts(), 0u);
  network.peer(4).side = 0;
  EXPECT_TRUE(network.RunUntilDone(Seconds(60), [&] { return network.node(4).contacts() == 9; }));
}

TEST(SwarmTest, ChurnLeavesNoStaleContactsAndNoLostRecords) {
  Network network({.seed = 10, .loss = 0.01, .hard_deaths = false});
  Start(network, 60);
  std::vector<size_t> alive;
  for (size_t i = 0; i < 60; ++i) alive.push_back(i);
  Put(network, 59, kRoster, "long lived", Seconds(5000));
  // Every 4 s one goes and one comes, for 400 s: the job is replaced more than once.
  for (int step = 0; step < 100; ++step) {
    const size_t victim = network.rng().Uniform(alive.size());
    network.Kill(alive[victim]);
    alive.erase(alive.begin() + static_cast<ptrdiff_t>(victim));
    alive.push_back(
        network.AddPeer({network.peer(alive[network.rng().Uniform(alive.size())]).endpoint,
                         network.peer(alive[network.rng().Uniform(alive.size())]).endpoint}));
    network.Run(Seconds(4));
  }
  network.Run(Seconds(60));
  EXPECT_GE(network.Copies(kRoster, network.id(59)), 15);
  for (const size_t i : alive) {
    size_t stale = 0;
    for (const Contact& contact : network.node(i).Nearest(PointOf(network.id(i)))) {
      stale += !network.peer(network.IndexOf(contact.id)).alive;
    }
    EXPECT_LE(stale, 1u) << "node " << i;  // among the 20 nearest
  }
}

TEST(SwarmTest, AnIdleNodeIsSmallAndQuiet) {
  Network network({.seed = 11});
  Start(network, 300);
  network.Run(Seconds(300));
  const uint64_t before = network.messages();
  network.Run(Seconds(60));
  const double rate = static_cast<double>(network.messages() - before) / 60 / 300;
  size_t most = 0;
  for (size_t i = 0; i < 300; ++i) most = std::max(most, network.node(i).MemoryBytes());
  std::cout << rate << " messages a second, " << most / 1024 << " KiB at most\n";
  EXPECT_LT(most, 64u * 1024);
  EXPECT_LT(rate, 2);
}

TEST(SwarmTest, OneSeedGivesOneHistory) {
  uint64_t messages[2];
  for (uint64_t& count : messages) {
    Network network({.seed = 12, .loss = 0.05});
    Start(network, 40);
    Put(network, 7, kRoster, "x", Seconds(100));
    network.Kill(3);
    network.Run(Seconds(100));
    count =
        network.messages() * 1000 + static_cast<uint64_t>(network.Copies(kRoster, network.id(7)));
  }
  EXPECT_EQ(messages[0], messages[1]);
}

}  // namespace
}  // namespace crowdsurf::dht
