// A lookup by itself, its answers given by hand: whom it asks, when it is over, and what liars
// achieve. Who is nearest is checked by sorting all.
#include "coordinator-free-dht/core/routing/lookup.h"

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

TEST(LookupTest, ItRemembersFourTimesAsManyAsItNeedsTheNearest) {
  Rng rng(6);
  NodeConfig config;
  config.k = 3;
  const Key target = KeyOf("x");
  std::vector<Contact> all = RandomContacts(50, rng);
  Lookup lookup(target, RandomPeer(rng), config, all);
  std::sort(all.begin(), all.end(),
            [&](const Contact& a, const Contact& b) { return Closer(target, a.id, b.id); });
  all.resize(12);
  std::vector<Contact> asked;
  while (const auto contact = lookup.Next()) {
    asked.push_back(*contact);
    lookup.OnFailure(contact->id);
  }
  EXPECT_EQ(asked, all);
  EXPECT_TRUE(lookup.Done());
  EXPECT_TRUE(lookup.Nearest().empty());
}

TEST(LookupTest, ASlowOneThatFailsMakesRoomOnce) {
  Rng rng(7);
  NodeConfig config;
  config.alpha = 1;
  Lookup lookup(KeyOf("x"), RandomPeer(rng), config, RandomContacts(5, rng));
  const Contact slow = *lookup.Next();
  EXPECT_FALSE(lookup.Next());
  lookup.OnSlow(slow.id);
  const Contact next = *lookup.Next();
  lookup.OnSlow(slow.id);
  lookup.OnFailure(slow.id);
  EXPECT_FALSE(lookup.Next()) << "one is in flight";
  lookup.OnSuccess(slow.id, {});  // it lives after all
  EXPECT_FALSE(lookup.Next());
  lookup.OnSlow(slow.id);
  lookup.OnFailure(slow.id);
  EXPECT_THAT(lookup.Nearest(), testing::ElementsAre(slow)) << "an answer stands";
  lookup.OnFailure(next.id);
  EXPECT_TRUE(lookup.Next());
}

TEST(LookupTest, StrangersDoNotAnswerForOthers) {
  Rng rng(8);
  Lookup lookup(KeyOf("x"), RandomPeer(rng), NodeConfig(), RandomContacts(3, rng));
  while (lookup.Next()) {
  }
  const PeerId stranger = RandomPeer(rng);
  lookup.OnSuccess(stranger, RandomContacts(3, rng));
  lookup.OnSlow(stranger);
  lookup.OnFailure(stranger);
  EXPECT_FALSE(lookup.Next());
  EXPECT_EQ(lookup.queries(), 3);
  EXPECT_FALSE(lookup.Done());
}

TEST(LookupTest, HopsAreTheLongestChainToAnAnswer) {
  Rng rng(9);
  NodeConfig config;
  config.k = 8;
  const std::vector<Contact> chain = RandomContacts(4, rng);
  Lookup lookup(KeyOf("x"), RandomPeer(rng), config, {chain[0], chain[3]});
  EXPECT_EQ(lookup.hops(), 0);
  for (size_t i = 0; i < 2; ++i) {
    while (lookup.Next()) {
    }
    lookup.OnSuccess(chain[i].id, {chain[i + 1], chain[3]});
    EXPECT_EQ(lookup.hops(), static_cast<int>(i) + 1);
  }
  lookup.OnSuccess(chain[3].id, {});
  EXPECT_EQ(lookup.hops(), 2) << "that one was known from the start";
  while (lookup.Next()) {
  }
  lookup.OnFailure(chain[2].id);
  EXPECT_EQ(lookup.hops(), 2) << "it told nothing";
}

TEST(LookupTest, ItIsNotOverBeforeThoseThatItMayAskHaveAnswered) {
  Rng rng(10);
  NodeConfig config;
  config.queries_per_lookup = 2;
  Lookup lookup(KeyOf("x"), RandomPeer(rng), config, RandomContacts(5, rng));
  EXPECT_FALSE(lookup.Done());
  std::vector<Contact> asked;
  while (const auto contact = lookup.Next()) asked.push_back(*contact);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(lookup.Done());
  lookup.OnSuccess(asked[0].id, {});
  EXPECT_FALSE(lookup.Done()) << "no more may be asked, but one may still answer";
  lookup.OnFailure(asked[1].id);
  EXPECT_TRUE(lookup.Done());
}

}  // namespace
}  // namespace crowdsurf::dht
