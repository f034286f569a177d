// The ledger: each sample of an epoch is committed once, whatever members do.
#include "worker/core/shard/lease_ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/shard/epoch_order.h"

namespace crowdsurf::worker {
namespace {

constexpr DataSpec kData{.samples = 100, .unit = 8, .seed = 5};

ClaimSet ClaimsOf(const LeaseLedger& ledger, const std::vector<LeaseClaim>& claims,
                  const DataSpec& spec = kData) {
  ClaimSet all;
  for (const LeaseClaim& claim : claims)
    Merge({.spec = spec, .base = ledger.mark(), .claims = {claim}}, all);
  return all;
}

LeaseClaim Wants(int peer, uint32_t units) { return {Id(static_cast<uint8_t>(peer)), {}, units}; }
LeaseClaim Trained(int peer, StreamPosition at, uint32_t units = 0) {
  return {Id(static_cast<uint8_t>(peer)), at, units};
}

std::set<PeerId> Peers(const std::vector<int>& numbers) {
  std::set<PeerId> peers;
  for (const int number : numbers) peers.insert(Id(static_cast<uint8_t>(number)));
  return peers;
}

TEST(LeaseLedgerTest, GrantsRunsOfTheEpochInTheOrderOfPeers) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 2), Wants(2, 3)}), Peers({1, 2}));
  std::vector<Lease> granted;
  for (const auto& [peer, holder] : ledger.holders()) {
    EXPECT_EQ(holder.stream, 1u);
    granted.insert(granted.end(), holder.open.begin(), holder.open.end());
  }
  uint64_t end = 0;
  for (const Lease& lease : granted) {
    EXPECT_EQ(lease.begin, end);
    end += lease.count;
  }
  EXPECT_EQ(end, 40u);
}

TEST(LeaseLedgerTest, AClaimThatIsMadeAgainCommitsNothingNew) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4)}), Peers({1}));
  for (uint64_t k = 2; k < 5; ++k) {
    ledger.Commit(AveragingId(k), ClaimsOf(ledger, {Trained(1, {1, 16})}), Peers({1}));
    EXPECT_EQ(ledger.totals().committed, 16u);
  }
  // An averaging that was missed: the next claim covers it.
  ledger.Commit(AveragingId(7), ClaimsOf(ledger, {Trained(1, {1, 32})}), Peers({1}));
  EXPECT_EQ(ledger.totals().committed, 32u);
  // More than what was granted is not committed.
  ledger.Commit(AveragingId(8), ClaimsOf(ledger, {Trained(1, {1, 1000})}), Peers({1}));
  EXPECT_EQ(ledger.totals().committed, 32u);
}

TEST(LeaseLedgerTest, WhatAMemberThatIsGoneDidNotCommitIsGrantedFirst) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4), Wants(2, 1)}), Peers({1, 2}));
  const std::deque<Lease> held = ledger.Find(Id(1))->open;
  // It commits half a lease, and is gone in the same averaging.
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {Trained(1, {1, 20})}), Peers({2}));
  EXPECT_EQ(ledger.Find(Id(1)), nullptr);
  EXPECT_EQ(ledger.totals().committed, 20u);
  EXPECT_EQ(ledger.totals().returned, 12u);
  ledger.Commit(AveragingId(3), ClaimsOf(ledger, {Wants(3, 4)}), Peers({2, 3}));
  const std::deque<Lease>& again = ledger.Find(Id(3))->open;
  EXPECT_EQ(again.front(), (Lease{0, held.front().begin + 20, 12}));
  EXPECT_TRUE(ledger.returned().empty());
}

TEST(LeaseLedgerTest, AStreamThatWasTakenBackCommitsNothing) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4)}), Peers({1}));
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {}), Peers({2}));
  ledger.Commit(AveragingId(3), ClaimsOf(ledger, {Trained(1, {1, 32}, 1)}), Peers({1}));
  EXPECT_EQ(ledger.totals().committed, 0u);
  EXPECT_EQ(ledger.totals().void_claims, 1u);
  EXPECT_EQ(ledger.Find(Id(1))->stream, 3u) << "a new one is begun";
}

TEST(LeaseLedgerTest, AnotherDataSetChangesNothing) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4)}), Peers({1}));
  const DataSpec other{.samples = 101, .unit = 8, .seed = 5};
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {Trained(1, {1, 32}, 1)}, other), Peers({1}));
  EXPECT_EQ(ledger.totals().committed, 0u);
  // Who has a ledger decides whose claims stand, not the greater data set.
  ClaimSet mixed = ClaimsOf(ledger, {Trained(1, {1, 8})});
  Merge({.spec = other, .base = {}, .claims = {Wants(2, 1)}}, mixed);
  EXPECT_EQ(mixed.spec, kData);
  ClaimSet reverse{.spec = other, .base = {}, .claims = {Wants(2, 1)}};
  Merge(ClaimsOf(ledger, {Trained(1, {1, 8})}), reverse);
  EXPECT_EQ(reverse, mixed);
}

// Three samples make an epoch, so each lease has three of the 2^28 that are asked for.
TEST(LeaseLedgerTest, AGreedyClaimIsGrantedSoMuchAndLeavesTheOthersTheirs) {
  constexpr DataSpec kFew{.samples = 3, .unit = 16, .seed = 5};
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, kMaxWant), Wants(2, 1)}, kFew),
                Peers({1, 2}));
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {Trained(1, {1, 0}, kMaxWant)}, kFew),
                Peers({1, 2}));
  EXPECT_EQ(ledger.Find(Id(1))->open.size(), LeaseLedger::kMaxHeld);
  EXPECT_EQ(ledger.Find(Id(2))->end(), 16u);
  EXPECT_TRUE(LeaseLedger::Decode(ledger.Encode()).has_value());
}

TEST(LeaseLedgerTest, ManyGreedyClaimsTogetherAreBounded) {
  constexpr DataSpec kOne{.samples = 1, .unit = 1, .seed = 5};
  LeaseLedger ledger;
  std::vector<LeaseClaim> claims;
  std::vector<int> numbers;
  for (int i = 1; i <= 80; ++i) {
    claims.push_back(Wants(i, kMaxWant));
    numbers.push_back(i);
  }
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, claims, kOne), Peers(numbers));
  size_t open = 0;
  for (const auto& [peer, holder] : ledger.holders()) open += holder.open.size();
  EXPECT_EQ(open, LeaseLedger::kMaxOpen);
}

TEST(LeaseLedgerTest, SurvivesItsBytes) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4), Wants(2, 30)}), Peers({1, 2}));
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {Trained(1, {1, 9}, 1)}), Peers({1}));
  const Bytes bytes = ledger.Encode();
  const auto decoded = LeaseLedger::Decode(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, ledger);
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(LeaseLedger::Decode(ByteView(bytes).first(cut)).has_value());
}

// Its mark holds the hash of all of it. Most flips make a state that Commit could have made, too:
// another seed, another count, another holder.
TEST(LeaseLedgerTest, NoFlippedByteMakesAnotherLedger) {
  LeaseLedger ledger;
  ledger.Commit(AveragingId(1), ClaimsOf(ledger, {Wants(1, 4), Wants(2, 3)}), Peers({1, 2}));
  ledger.Commit(AveragingId(2), ClaimsOf(ledger, {Trained(1, {1, 9}, 1)}), Peers({1}));
  ASSERT_FALSE(ledger.returned().empty());
  const Bytes bytes = ledger.Encode();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Bytes bad = bytes;
      bad[i] = static_cast<uint8_t>(bad[i] ^ flip);
      EXPECT_FALSE(LeaseLedger::Decode(bad).has_value()) << "byte " << i << " ^ " << flip;
    }
  }
}

// A job in miniature: members come, die, and miss averagings. The checker keeps its own account, of
// samples by number: what a member has trained of its leases, and what is committed.
struct Model {
  struct Member {
    uint64_t stream = 0;
    uint64_t position = 0;
    std::vector<std::pair<uint64_t, uint64_t>> trained;  // epoch, position, of the stream
    LeaseLedger ledger;
  };

  explicit Model(uint64_t seed) : rng(seed) {}

  // Reads its leases from its own copy of the ledger, and trains some of them.
  void Train(int number, Member& member) {
    const LeaseLedger::Holder* holder = member.ledger.Find(Id(static_cast<uint8_t>(number)));
    if (holder == nullptr || (member.stream != 0 && holder->stream != member.stream)) return;
    if (member.stream == 0) member.stream = holder->stream;
    uint64_t at = holder->position;
    uint64_t left = rng.Uniform(30);
    for (const Lease& lease : holder->open)
      for (uint64_t i = 0; i < lease.count; ++i, ++at) {
        if (at < member.position) continue;
        if (left-- == 0) return;
        member.trained.emplace_back(lease.epoch, lease.begin + i);
        member.position = at + 1;
      }
  }

  Rng rng;
  std::map<int, Member> members;
  std::map<std::pair<uint64_t, uint64_t>, int> committed;  // sample -> how often
  std::map<int, size_t> counted;                           // of a member's trained samples
};

TEST(LeaseLedgerTest, CommitsEachSampleOnceWhoeverDies) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Model model(seed);
    LeaseLedger job;
    int next = 0;
    for (uint64_t k = 1; k < 120; ++k) {
      while (model.members.size() < 2 + model.rng.Uniform(5)) model.members[next++].ledger = job;
      if (model.members.size() > 1 && model.rng.Bernoulli(0.3)) {
        auto dead = model.members.begin();
        std::advance(dead, model.rng.Uniform(model.members.size()));
        model.members.erase(dead);
      }
      std::vector<LeaseClaim> claims;
      std::set<PeerId> seated;
      for (auto& [number, member] : model.members) {
        model.Train(number, member);
        seated.insert(Id(static_cast<uint8_t>(number)));
        if (model.rng.Bernoulli(0.2)) continue;  // it is left out of the averaging
        claims.push_back({Id(static_cast<uint8_t>(number)),
                          {member.stream, member.position},
                          static_cast<uint32_t>(model.rng.Uniform(4))});
        size_t& counted = model.counted[number];
        for (; counted < member.trained.size(); ++counted)
          ++model.committed[member.trained[counted]];
      }
      job.Commit(AveragingId(k), ClaimsOf(job, claims), seated);
      // A member that was left out takes the ledger from another one.
      for (auto& [number, member] : model.members) member.ledger = job;
    }
    uint64_t total = 0;
    for (const auto& [sample, times] : model.committed) {
      ASSERT_EQ(times, 1) << "seed " << seed;
      total += static_cast<uint64_t>(times);
    }
    ASSERT_EQ(job.totals().committed, total) << "seed " << seed;
    ASSERT_EQ(job.totals().void_claims, 0u);
    // What is not committed is held, or to be granted again, or was never granted: nothing is lost.
    uint64_t open = 0;
    for (const Lease& lease : job.returned()) open += lease.count;
    for (const auto& [peer, holder] : job.holders())
      for (const Lease& lease : holder.open) open += lease.count;
    ASSERT_EQ(total + open, job.next().epoch * kData.samples + job.next().begin);
    ASSERT_TRUE(LeaseLedger::Decode(job.Encode()).has_value());
  }
}

// P7: the multiset of samples of an epoch does not depend on the number of workers.
TEST(LeaseLedgerTest, AnEpochHasTheSameSamplesForAnyNumberOfWorkers) {
  constexpr DataSpec kDigits{.samples = 1797, .unit = 32, .seed = 11};
  for (int workers = 1; workers <= 16; ++workers) {
    LeaseLedger job;
    std::vector<int> numbers;
    for (int i = 0; i < workers; ++i) numbers.push_back(i);
    std::vector<int> times(kDigits.samples);
    std::map<int, uint64_t> position;
    const EpochOrder order(kDigits.samples, kDigits.seed, 0);
    for (uint64_t k = 1; job.next().epoch < 2 || !job.returned().empty(); ++k) {
      std::vector<LeaseClaim> claims;
      for (const int i : numbers) {
        const LeaseLedger::Holder* holder = job.Find(Id(static_cast<uint8_t>(i)));
        if (holder != nullptr)
          for (const Lease& lease : holder->open)
            for (uint64_t at = lease.begin; at < lease.begin + lease.count && lease.epoch == 0;
                 ++at)
              ++times[order.At(at)];
        if (holder != nullptr) position[i] = holder->end();
        claims.push_back({Id(static_cast<uint8_t>(i)),
                          {holder == nullptr ? 0 : holder->stream, position[i]},
                          3});
      }
      job.Commit(AveragingId(k), ClaimsOf(job, claims, kDigits), Peers(numbers));
    }
    for (uint64_t sample = 0; sample < kDigits.samples; ++sample)
      ASSERT_EQ(times[sample], 1) << workers << " workers, sample " << sample;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
