// Which records a node keeps for others, rule by rule, and against a plain model on random
// histories.
#include "coordinator-free-dht/core/store/store.h"

#include <gmock/gmock.h>

#include <iostream>

#include "base/rng.h"

namespace crowdsurf::dht {
namespace {

constexpr Time kNow = Time::FromNanoseconds(1'000'000'000);
constexpr WallTime kWall = WallTime::FromNanoseconds(1'800'000'000'000'000'000);

PeerId Peer(uint8_t n) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = n;
  return PeerId(bytes);
}

RecordPtr Make(std::string_view key, uint8_t owner, uint64_t sequence, Duration life,
               size_t bytes = 10) {
  Record record;
  record.key = KeyOf(key);
  record.subkey = Peer(owner);
  record.sequence = sequence;
  record.expiry = kWall + life;
  record.value.assign(bytes, 7);
  return std::make_shared<const Record>(std::move(record));
}

class StoreTest : public testing::Test {
 protected:
  StoreResult Put(RecordPtr record, uint8_t source = 1, WallTime wall = kWall) {
    return store_.Put(kNow, wall, std::move(record), Peer(source));
  }
  NodeConfig config_;
  Store store_{config_};
};

TEST_F(StoreTest, ARefusedOlderRecordDoesNotShortenTheLifeOfTheNewerOne) {
  // hivemind lost the newer record here.
  EXPECT_EQ(Put(Make("k", 1, 5, Seconds(100))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("k", 1, 4, Milliseconds(300))), StoreResult::kStale);
  EXPECT_EQ(Put(Make("k", 1, 5, Milliseconds(300))), StoreResult::kStale);
  const WallTime later = kWall + Milliseconds(500);
  store_.Sweep(later);
  ASSERT_EQ(store_.Find(later, KeyOf("k")).size(), 1u);
  EXPECT_EQ(store_.Find(later, KeyOf("k"))[0]->sequence, 5u);
}

TEST_F(StoreTest, OfOnePublicKeyTheHighestBootAloneHasARecord) {
  const auto of = [](uint8_t owner, uint8_t key, uint64_t boot) {
    Record record = *Make("k", owner, 1, Seconds(9));
    record.public_key = {key};
    record.boot = boot;
    return std::make_shared<const Record>(std::move(record));
  };
  config_.key_records = 2;
  EXPECT_EQ(Put(of(1, 7, 4)), StoreResult::kStored);
  EXPECT_EQ(Put(of(2, 8, 9)), StoreResult::kStored);
  EXPECT_EQ(Put(of(3, 7, 3)), StoreResult::kOldBoot);
  EXPECT_EQ(Put(of(4, 7, 5)), StoreResult::kStored) << "the one that it replaces makes room";
  EXPECT_EQ(store_.records(), 2u);
  EXPECT_EQ(store_.bytes(), 20u);
  EXPECT_EQ(Put(of(1, 7, 4)), StoreResult::kOldBoot);
  std::vector<PeerId> owners;
  for (const RecordPtr& record : store_.Find(kWall, KeyOf("k"))) owners.push_back(record->subkey);
  EXPECT_THAT(owners, testing::ElementsAre(Peer(2), Peer(4)));
}

TEST_F(StoreTest, HigherSequenceWinsThenLaterExpiry) {
  EXPECT_EQ(Put(Make("k", 1, 5, Seconds(100))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("k", 1, 6, Seconds(1))), StoreResult::kStored);  // may live shorter
  EXPECT_EQ(Put(Make("k", 1, 6, Seconds(2))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("k", 1, 6, Seconds(2))), StoreResult::kHad);
  EXPECT_EQ(store_.records(), 1u);
}

TEST_F(StoreTest, ExpiredRecordsAreNeverShownAndMakeRoom) {
  config_.key_records = 2;
  EXPECT_EQ(Put(Make("k", 1, 1, Seconds(1))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("k", 2, 1, Seconds(9))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("k", 3, 1, Seconds(9))), StoreResult::kKeyFull);
  const WallTime later = kWall + Seconds(2);
  EXPECT_EQ(store_.Find(later, KeyOf("k")).size(), 1u);
  EXPECT_EQ(Put(Make("k", 3, 1, Seconds(9)), 1, later), StoreResult::kStored);
  store_.Sweep(kWall + Seconds(9));
  EXPECT_TRUE(store_.empty());
  EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(StoreTest, ExpiryMustBeAheadButNotTooFar) {
  EXPECT_EQ(Put(Make("k", 1, 1, Duration())), StoreResult::kExpired);
  EXPECT_EQ(Put(Make("k", 1, 1, config_.longest_life + Seconds(1))), StoreResult::kTooFar);
  EXPECT_EQ(Put(Make("k", 1, 1, Seconds(1), config_.value_bytes + 1)), StoreResult::kTooLarge);
  EXPECT_TRUE(store_.empty());
}

TEST_F(StoreTest, QuotasHoldPerKeyOwnerSourceAndInAll) {
  config_.key_bytes = 35;
  config_.owner_records = 3;
  config_.source_records = 4;
  config_.total_bytes = 60;
  EXPECT_EQ(Put(Make("a", 1, 1, Seconds(9))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("a", 2, 1, Seconds(9))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("a", 3, 1, Seconds(9))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("a", 4, 1, Seconds(9))), StoreResult::kKeyFull);
  EXPECT_EQ(Put(Make("b", 1, 1, Seconds(9))), StoreResult::kStored);
  EXPECT_EQ(Put(Make("c", 9, 1, Seconds(9))), StoreResult::kSourceFull);
  EXPECT_EQ(Put(Make("c", 1, 1, Seconds(9)), 2), StoreResult::kStored);
  EXPECT_EQ(Put(Make("d", 1, 1, Seconds(9)), 2), StoreResult::kOwnerFull);
  EXPECT_EQ(Put(Make("d", 5, 1, Seconds(9)), 2), StoreResult::kStored);
  EXPECT_EQ(Put(Make("e", 6, 1, Seconds(9)), 2), StoreResult::kFull);
  // Replacing one's own record needs no further room.
  EXPECT_EQ(Put(Make("a", 1, 2, Seconds(9))), StoreResult::kStored);
}

// Against a plain model: whatever is stored in whatever order, a key shows of each owner the newest
// record ever accepted that has not expired, and refused ones change nothing.
TEST_F(StoreTest, AgreesWithAPlainModelOnRandomHistories) {
  constexpr uint64_t kSeed = 77;
  Rng rng(kSeed);
  for (int history = 0; history < 200; ++history) {
    Store store(config_);
    std::map<std::pair<Key, PeerId>, RecordPtr> model;
    WallTime wall = kWall;
    for (int step = 0; step < 60; ++step) {
      wall = wall + Milliseconds(static_cast<int64_t>(rng.Uniform(200)));
      const std::string key(1, static_cast<char>('a' + rng.Uniform(3)));
      RecordPtr record = Make(key, static_cast<uint8_t>(rng.Uniform(3)), rng.Uniform(6),
                              Milliseconds(static_cast<int64_t>(rng.Uniform(8000))));
      auto& known = model[{record->key, record->subkey}];
      if (known && known->expiry <= wall) known = nullptr;
      const bool good = record->expiry > wall && (!known || Newer(*record, *known));
      const StoreResult result = store.Put(kNow, wall, record, Peer(1));
      ASSERT_EQ(result == StoreResult::kStored, good) << "seed " << kSeed << " " << Name(result);
      if (good) known = record;
      if (rng.Bernoulli(0.1)) store.Sweep(wall);
      for (const auto& [where, expected] : model) {
        const auto found = store.Find(wall, where.first);
        const auto it =
            std::find_if(found.begin(), found.end(),
                         [&subkey = where.second](const auto& r) { return r->subkey == subkey; });
        const bool alive = expected && expected->expiry > wall;
        ASSERT_EQ(it != found.end(), alive) << "seed " << kSeed;
        if (alive) {
          ASSERT_EQ(*it, expected) << "seed " << kSeed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace crowdsurf::dht
