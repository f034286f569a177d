// Snapshots that go out while the trainer copies them. Results are held against the mean of what
// the trainers gave; values that are not there yet are NaN, which a mean would keep.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/worker_core/world/peer_world.h"
#include "worker/core/averaging/averaging.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 64;
constexpr size_t kSlow = 1;  // whose trainer copies slowly

// A job of four, whose trainer kSlow was asked for a snapshot and has not answered.
class Filling : public testing::Test {
 protected:
  void Start(const AveragingConfig& config = EveryTenSteps()) {
    world_ = std::make_unique<PeerWorld>(41, config, kElements);
    for (int i = 0; i < 4; ++i) world_->Add();
    ASSERT_TRUE(world_->UntilTogether(Seconds(5)));
    for (size_t i = 0; i < 4; ++i) world_->node(i).drift = static_cast<double>(i + 1);
    world_->RunFor(Milliseconds(500));
    while (!slow().publish) world_->RunFor(Microseconds(100));
    averaging_ = *std::exchange(slow().publish, std::nullopt);
    snapshot_ = Published{.averaging = averaging_,
                          .samples = static_cast<double>(slow().steps) * slow().samples_per_step,
                          .step = slow().steps};
    values_ = slow().x;
    slow().At(Region::kOutbox).values.assign(kElements, std::numeric_limits<double>::quiet_NaN());
  }
  PeerWorld::Node& slow() { return world_->node(kSlow); }
  void FillUpTo(size_t elements) {
    std::copy_n(values_.begin(), elements, slow().At(Region::kOutbox).values.begin());
    world_->Local(kSlow, Filled{snapshot_, elements});
  }
  void FillAll() {
    slow().At(Region::kOutbox).values = values_;
    world_->Local(kSlow, snapshot_);
  }
  bool Delivered(size_t i) const {
    const auto& all = world_->node(i).deliveries;
    return !all.empty() && all.back().averaging >= averaging_;
  }
  size_t Opened() {
    size_t count = 0;
    for (const OpenBuffers& open : slow().opened) count += open.from == Region::kOutbox ? 1 : 0;
    return count;
  }

  std::unique_ptr<PeerWorld> world_;
  AveragingId averaging_;
  Published snapshot_;
  PeerWorld::Values values_;
};

TEST_F(Filling, WhatIsThereGoesOutAndTheAveragingEndsWithTheLastOfIt) {
  Start();
  const size_t before = Opened();
  FillUpTo(24);  // three chunks of eight
  world_->RunFor(Milliseconds(20));
  EXPECT_EQ(Opened(), before + 1) << "the round is open while the trainer copies";
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(Delivered(i)) << i;
  FillUpTo(60);
  world_->RunFor(Milliseconds(20));
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(Delivered(i)) << i;
  FillAll();
  world_->RunFor(Milliseconds(10));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(Delivered(i)) << i;
    for (const double value : world_->node(i).At(world_->node(i).deliveries.back().region).values)
      EXPECT_EQ(value, value) << "a value that was not there is in the mean";
  }
  world_->RunFor(Seconds(1));
  ExpectAgreement(*world_);
}

TEST_F(Filling, APartThatIsNotFiniteLeavesThatMemberOutOfOneAveraging) {
  Start();
  FillUpTo(24);
  world_->RunFor(Milliseconds(20));
  world_->Local(kSlow, PublishRefused{averaging_});
  world_->RunFor(Milliseconds(100));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Delivered(i), i != kSlow) << i;
  EXPECT_EQ(world_->Summary(kSlow).averagings_abandoned, 1U);
  world_->RunFor(Seconds(2));
  ExpectAgreement(*world_);
  EXPECT_TRUE(Delivered(kSlow));
  double produced = 0;
  for (size_t i = 0; i < 4; ++i)
    produced += static_cast<double>(world_->node(i).steps) * world_->node(i).samples_per_step;
  EXPECT_LE(world_->Summary(0).job_samples, produced);
}

TEST_F(Filling, ATrainerThatDiesWhileItCopiesIsMissedByNobody) {
  Start();
  FillUpTo(24);
  world_->RunFor(Milliseconds(20));
  world_->Local(kSlow, TrainerGone{});
  world_->RunFor(Milliseconds(100));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Delivered(i), i != kSlow) << i;
}

// Stopped, or its device hangs: its agent lives and answers. The others may have waited for the
// first part as long as for one that does not come.
TEST_F(Filling, ATrainerThatStopsWhileItCopiesIsGivenUpAndMayGoOnLater) {
  for (const int64_t late : {0, 50, 100, 150, 200, 240}) {
    SCOPED_TRACE(late);
    Start();
    world_->RunFor(Milliseconds(late));
    FillUpTo(24);
    world_->RunFor(Seconds(4));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(Delivered(i), i != kSlow) << i;
      EXPECT_EQ(world_->Summary(i).averagings_abandoned, i == kSlow ? 1U : 0U) << i;
    }
    FillUpTo(40);  // of an averaging that is over
    FillAll();
    world_->RunFor(Seconds(2));
    ExpectAgreement(*world_);
    EXPECT_TRUE(Delivered(kSlow));
  }
}

// The others decide without it. Its trainer is given their mean, and the snapshot that it has
// copied meanwhile is not released before: the change is taken from both.
TEST_F(Filling, WhoIsLeftBehindIsGivenTheMeanOfTheOthers) {
  Start();
  FillUpTo(8);
  for (size_t i = 0; i < 4; ++i)
    if (i != kSlow) world_->Slander(i, kSlow);
  world_->RunFor(Milliseconds(300));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(i == kSlow || Delivered(i)) << i;
  FillAll();
  world_->RunFor(Seconds(2));
  ExpectAgreement(*world_);
}

// Changes from a base are looked at as a whole.
TEST_F(Filling, ChangesWaitForTheWholeSnapshot) {
  AveragingConfig config = EveryTenSteps(64);
  config.compression = WireFormat::kInt8;
  Start(config);
  const size_t before = Opened();
  FillUpTo(24);
  world_->RunFor(Milliseconds(20));
  EXPECT_EQ(Opened(), before);
  FillAll();
  world_->RunFor(Milliseconds(100));
  EXPECT_TRUE(Delivered(kSlow));
}

TEST_F(Filling, ASnapshotOfAnotherAveragingIsNotTaken) {
  Start();
  const size_t before = Opened();
  world_->Local(kSlow, Filled{{.averaging = averaging_ + 1}, 24});
  world_->RunFor(Milliseconds(20));
  EXPECT_EQ(Opened(), before);
  FillAll();
  world_->RunFor(Milliseconds(100));
  EXPECT_TRUE(Delivered(kSlow));
}

}  // namespace
}  // namespace crowdsurf::worker
