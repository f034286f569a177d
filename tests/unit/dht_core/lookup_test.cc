#include "coordinator-free-dht/core/lookup.h"

#include <gmock/gmock.h>

#include <map>

#include "base/rng.h"

namespace crowdsurf::dht {
namespace {

PeerId RandomPeer(Rng& rng) {
  std::array<uint8_t, 32> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return PeerId(bytes);
}
Contact At(const PeerId& id) { return {id, id.brief() + ":1"}; }

std::vector<Contact> RandomContacts(size_t n, Rng& rng) {
  std::vector<Contact> out;
  for (size_t i = 0; i < n; ++i) out.push_back(At(RandomPeer(rng)));
  return out;
}

TEST(LookupTest, AlphaQueriesAreInFlightAndASlowOneMakesRoomForAnother) {
  Rng rng(1);
  NodeConfig config;
  Lookup lookup(KeyOf("x"), RandomPeer(rng), config, RandomContacts(20, rng));
  std::vector<Contact> asked;
  while (const auto contact = lookup.Next()) asked.push_back(*contact);
  ASSERT_EQ(asked.size(), 3u);
  lookup.OnSlow(asked[0].id);
  ASSERT_TRUE(lookup.Next().has_value());
  EXPECT_FALSE(lookup.Next().has_value());
  lookup.OnSuccess(asked[0].id, {});  // late, but counts
  EXPECT_FALSE(lookup.Next().has_value());
  lookup.OnFailure(asked[1].id);
  EXPECT_TRUE(lookup.Next().has_value());
  EXPECT_FALSE(lookup.Done());
}

TEST(LookupTest, ItEndsWhenTheKNearestThatLiveHaveAnswered) {
  Rng rng(2);
  NodeConfig config;
  config.k = 4;
  std::vector<Contact> all = RandomContacts(12, rng);
  const Key target = KeyOf("x");
  Lookup lookup(target, RandomPeer(rng), config, all);
  std::sort(all.begin(), all.end(),
            [&](const Contact& a, const Contact& b) { return Closer(target, a.id, b.id); });
  while (const auto contact = lookup.Next()) {
    // The two nearest are dead.
    if (contact->id == all[0].id || contact->id == all[1].id) {
      lookup.OnFailure(contact->id);
    } else {
      lookup.OnSuccess(contact->id, {});
    }
  }
  EXPECT_TRUE(lookup.Done());
  EXPECT_THAT(lookup.Nearest(), testing::ElementsAre(all[2], all[3], all[4], all[5]));
  EXPECT_EQ(lookup.queries(), 6);
}

TEST(LookupTest, WithNobodyToAskItIsOverAtOnce) {
  const Lookup lookup(KeyOf("x"), PeerId(), NodeConfig(), {});
  EXPECT_TRUE(lookup.Done());
  EXPECT_TRUE(lookup.Nearest().empty());
}

TEST(LookupTest, ItNeverAsksItselfOrTheSamePeerTwice) {
  Rng rng(4);
  const PeerId self = RandomPeer(rng);
  std::vector<Contact> start = RandomContacts(5, rng);
  start.push_back(At(self));
  start.push_back(start[0]);
  start.push_back({PeerId(), "seed:1"});
  Lookup lookup(KeyOf("x"), self, NodeConfig(), start);
  std::map<PeerId, int> asked;
  while (const auto contact = lookup.Next()) {
    ++asked[contact->id];
    lookup.OnSuccess(contact->id, start);
  }
  EXPECT_TRUE(lookup.Done());
  EXPECT_EQ(asked.size(), 5u);
  EXPECT_FALSE(asked.contains(self));
}

TEST(LookupTest, LiarsWhoAlwaysKnowSomebodyNearerCannotKeepItAlive) {
  Rng rng(5);
  NodeConfig config;
  const Key target = KeyOf("x");
  Lookup lookup(target, RandomPeer(rng), config, RandomContacts(20, rng));
  std::array<uint8_t, 32> bytes = target.bytes();
  int answers = 0;
  while (const auto contact = lookup.Next()) {
    std::vector<Contact> nearer;
    for (int i = 0; i < 20; ++i) {
      // Ever nearer to the target, and different every time.
      for (size_t b = 8 + static_cast<size_t>(std::min(answers / 8, 20)); b < 32; ++b) {
        bytes[b] = static_cast<uint8_t>(rng.Next());
      }
      nearer.push_back(At(PeerId(bytes)));
    }
    lookup.OnSuccess(contact->id, nearer);
    ASSERT_LE(++answers, static_cast<int>(config.queries_per_lookup));
  }
  EXPECT_TRUE(lookup.Done());
}

}  // namespace
}  // namespace crowdsurf::dht
