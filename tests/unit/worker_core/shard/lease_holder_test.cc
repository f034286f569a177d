// One member's side of the leases: its stream, its claims, and what happens when it loses both.
#include "worker/core/shard/lease_holder.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

constexpr DataSpec kData{.samples = 1000, .unit = 10, .seed = 1};

class LeaseHolderTest : public ::testing::Test {
 protected:
  // An averaging of holder_ and others that the test does not follow.
  void Average(bool counted = true) {
    ++k_;
    const ClaimSet claims = holder_.Claims(AveragingId(k_));
    job_.Commit(AveragingId(k_), counted ? claims : ClaimSet{kData, job_.mark(), {}}, members_);
    if (!hears_) return;
    if (counted) holder_.OnDelivered();
    holder_.OnDecided(AveragingId(k_), counted ? claims : ClaimSet{kData, claims.base, {}},
                      members_);
  }
  void Begin() {
    holder_.OnTrainer(TrainerPast::kNone);
    holder_.OnDeclared(kData);
    Average();
    news_ = holder_.TakeNews();
    ASSERT_TRUE(news_.has_value());
  }
  void TrainTo(uint64_t position) { holder_.OnSnapshot({news_->stream, position}); }

  LeaseHolder holder_{Id(1)};
  LeaseLedger job_;
  std::set<PeerId> members_{Id(1), Id(2)};
  uint64_t k_ = 0;
  bool hears_ = true;
  std::optional<LeasesGranted> news_;
};

// A joiner that holds an older average than the others.
TEST_F(LeaseHolderTest, WhatIsTrainedFromStaleValuesIsDiscardedUntilAMeanHasComeInTheirPlace) {
  holder_.OnTrainer(TrainerPast::kNone);
  holder_.Discard();
  EXPECT_TRUE(holder_.discards()) << "also without leases";
  holder_.OnDeclared(kData);
  hears_ = false;  // of its first averaging, which grants it leases
  Average();
  hears_ = true;
  holder_.OnLedger(job_);
  EXPECT_TRUE(holder_.discards());
  EXPECT_EQ(holder_.TakeNews()->stream, 0U) << "what it trained by them would be void";
  Average();
  EXPECT_FALSE(holder_.discards());
  EXPECT_EQ(holder_.TakeNews()->stream, k_);
  EXPECT_EQ(job_.totals().committed, 0U);
}

TEST_F(LeaseHolderTest, StarvesUntilItsFirstAveraging) {
  EXPECT_FALSE(holder_.starving()) << "its trainer draws no leases";
  holder_.OnTrainer(TrainerPast::kNone);
  holder_.OnDeclared(kData);
  EXPECT_FALSE(holder_.starving()) << "its trainer has not come to its loop";
  holder_.OnProgress({.at = {}, .waits = true});
  EXPECT_TRUE(holder_.starving());
  Begin();
  EXPECT_FALSE(holder_.starving());
  EXPECT_EQ(news_->stream, k_);
  ASSERT_EQ(news_->leases.size(), 1u);
  EXPECT_EQ(news_->leases[0], (Lease{0, 0, 40}));
  EXPECT_EQ(holder_.TakeNews(), std::nullopt) << "told once";
  holder_.OnProgress({.at = {news_->stream, 40}, .waits = true});
  EXPECT_TRUE(holder_.starving());
}

TEST_F(LeaseHolderTest, ATrainerThatHasUsedUpItsLeasesAndIsSilentHurriesNobody) {
  Begin();
  holder_.OnProgress({.at = {news_->stream, 40}, .waits = false});
  EXPECT_FALSE(holder_.starving());
}

TEST_F(LeaseHolderTest, BelievesNoTrainerMoreThanItWasGranted) {
  Begin();
  constexpr uint64_t kWrong = 1ULL << 59;
  holder_.OnProgress({.at = {news_->stream, kWrong}, .waits = false});
  TrainTo(kWrong);
  EXPECT_EQ(holder_.Claims(AveragingId(k_ + 1)).claims[0].trained.position, 40u);
  Average();
  EXPECT_EQ(job_.totals().committed, 40u);
  EXPECT_FALSE(holder_.brings()) << "all that it was granted is committed";
  news_ = holder_.TakeNews();
  EXPECT_EQ(news_->leases[0], (Lease{0, 40, 120}));
  holder_.OnProgress({.at = {news_->stream, 40}, .waits = true});
  holder_.Close();
  holder_.OnProgress({.at = {news_->stream, 40}, .waits = true});
  EXPECT_FALSE(holder_.hands_in()) << "it may leave";
}

TEST_F(LeaseHolderTest, AsksForAsMuchAsItUsesUp) {
  Begin();
  TrainTo(40);
  Average();
  news_ = holder_.TakeNews();
  EXPECT_EQ(news_->begin, 40u);
  EXPECT_EQ(news_->leases[0], (Lease{0, 40, 120}));  // three intervals
}

TEST_F(LeaseHolderTest, SaysAfterAMissedAveragingTheSameAndMore) {
  Begin();
  TrainTo(10);
  hears_ = false;
  Average();  // it counted, and this member does not know
  EXPECT_EQ(job_.totals().committed, 10u);
  TrainTo(30);
  EXPECT_TRUE(holder_.OnLedger(job_));
  hears_ = true;
  Average();
  EXPECT_EQ(job_.totals().committed, 30u);
  EXPECT_EQ(job_, holder_.ledger());
}

TEST_F(LeaseHolderTest, NeedsAnotherLedgerWhereTheOthersHaveANewerOne) {
  Begin();
  LeaseLedger ahead = job_;
  ahead.Commit(AveragingId(k_ + 1), {kData, ahead.mark(), {}}, members_);
  EXPECT_FALSE(holder_.OnDecided(AveragingId(k_ + 2), {kData, ahead.mark(), {}}, members_));
  EXPECT_TRUE(holder_.OnLedger(ahead));
  EXPECT_FALSE(holder_.OnLedger(job_)) << "it is older";
  EXPECT_TRUE(holder_.OnDecided(AveragingId(k_ + 2), {kData, ahead.mark(), {}}, members_));
  EXPECT_TRUE(holder_.OnDecided(AveragingId(k_ + 1), {kData, job_.mark(), {}}, members_)) << "over";
}

TEST_F(LeaseHolderTest, DiscardsWhatOthersTrainNow) {
  Begin();
  TrainTo(20);
  LeaseLedger without = job_;
  without.Commit(AveragingId(++k_), {kData, without.mark(), {}}, {Id(2)});
  job_ = without;
  EXPECT_TRUE(holder_.OnLedger(without));
  EXPECT_TRUE(holder_.discards());
  news_ = holder_.TakeNews();
  EXPECT_EQ(news_->stream, 0u) << "the trainer is to leave its stream";
  // A snapshot of a trainer that has not done so: no weight, and no leases for it.
  holder_.OnSnapshot({1, 25});
  EXPECT_EQ(holder_.Claims(AveragingId(k_ + 1)).claims[0].want, 0u);
  Average();
  EXPECT_TRUE(holder_.discards());
  holder_.OnSnapshot({});
  Average();
  EXPECT_FALSE(holder_.discards());
  EXPECT_EQ(job_.totals().committed, 0u);
  news_ = holder_.TakeNews();
  EXPECT_EQ(news_->stream, k_);
  EXPECT_EQ(news_->leases[0], (Lease{0, 0, 40})) << "the same, from the start";
}

TEST_F(LeaseHolderTest, LosesNothingWhereAllOfItWasCommitted) {
  Begin();
  TrainTo(20);
  Average();
  LeaseLedger without = job_;
  without.Commit(AveragingId(++k_), {kData, without.mark(), {}}, {Id(2)});
  EXPECT_TRUE(holder_.OnLedger(without));
  EXPECT_FALSE(holder_.discards());
}

TEST_F(LeaseHolderTest, ATrainerThatIsOlderThanItsAgentDiscards) {
  holder_.OnTrainer(TrainerPast::kUnknown);
  EXPECT_FALSE(holder_.discards()) << "it may draw no leases at all";
  holder_.OnDeclared(kData);
  EXPECT_TRUE(holder_.discards());
}

TEST_F(LeaseHolderTest, ADeadTrainersLeasesAreGivenBack) {
  Begin();
  TrainTo(20);
  Average();
  holder_.OnTrainer(TrainerPast::kNone);  // another one
  holder_.OnDeclared(kData);
  Average();
  news_ = holder_.TakeNews();
  EXPECT_EQ(news_->stream, k_);
  EXPECT_EQ(news_->leases[0].begin, 20u);
  EXPECT_EQ(job_.totals().committed, 20u);
}

TEST_F(LeaseHolderTest, HandsInBeforeItLeaves) {
  Begin();
  holder_.OnProgress({.at = {news_->stream, 30}, .waits = false});
  EXPECT_FALSE(holder_.hands_in());
  holder_.Close();
  news_ = holder_.TakeNews();
  EXPECT_TRUE(news_->closed);
  EXPECT_TRUE(news_->leases.empty());
  EXPECT_TRUE(holder_.hands_in());
  TrainTo(30);
  Average();
  EXPECT_TRUE(holder_.hands_in()) << "the trainer may go on";
  holder_.OnProgress({.at = {news_->stream, 30}, .waits = true});
  EXPECT_FALSE(holder_.hands_in());
}

TEST_F(LeaseHolderTest, SaysThatTheJobHasAnotherDataSet) {
  Begin();
  LeaseHolder other(Id(2));
  other.OnTrainer(TrainerPast::kNone);
  DataSpec longer = kData;
  longer.samples = 1001;
  other.OnDeclared(longer);
  EXPECT_TRUE(other.TakeNews()->other.none());
  EXPECT_TRUE(other.OnLedger(job_));
  EXPECT_EQ(other.TakeNews()->other, kData);
  EXPECT_TRUE(other.Claims(AveragingId(5)).claims.empty());
}

}  // namespace
}  // namespace crowdsurf::worker
