// The averaging of real peers in a small world: counts, late ones, refusals.
// The counts are held against what the trainers have made.
#include "worker/core/averaging/averaging.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

TEST(AveragingTest, TheCountIsTheSumOfTheFinalWeightsAndNothingIsCountedTwice) {
  PeerWorld world(21, EveryTenSteps());
  for (int i = 0; i < 6; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 6; ++i)
    world.node(i).step_time = Milliseconds(8 + static_cast<int64_t>(i));  // fast and slow mix
  world.RunFor(Seconds(3));
  ExpectAgreement(world);
  double produced = 0;
  for (size_t i = 0; i < 6; ++i)
    produced += static_cast<double>(world.node(i).steps) * world.node(i).samples_per_step;
  double sum = 0;
  for (const Deliver& d : world.node(0).deliveries) {
    sum += d.samples;
    EXPECT_EQ(d.job_samples, sum);
  }
  EXPECT_LE(sum, produced);
  EXPECT_GT(sum, 0.8 * produced);
}

// Fast and slow weigh the same; the count is of samples all the same.
TEST(AveragingTest, WithEqualWeightingTheMeanIsPlainAndTheCountIsOfSamples) {
  AveragingConfig config = EveryTenSteps();
  config.weighting = Weighting::kEqual;
  PeerWorld world(24, config);
  for (int i = 0; i < 6; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 6; ++i) {
    world.node(i).step_time = Milliseconds(8 + 2 * static_cast<int64_t>(i));
  }
  world.RunFor(Seconds(3));
  ExpectAgreement(world);
  double sum = 0;
  double produced = 0;
  for (const Deliver& d : world.node(0).deliveries) {
    sum += d.samples;
    EXPECT_EQ(d.job_samples, sum);
  }
  for (size_t i = 0; i < 6; ++i)
    produced += static_cast<double>(world.node(i).steps) * world.node(i).samples_per_step;
  EXPECT_LE(sum, produced);
  EXPECT_GT(sum, 0.8 * produced);
  // In the 2 x 3 grid a vector stands for one worker, then for the two or three of its group.
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_GE(world.node(i).weights.size(), 2U);
    EXPECT_EQ(world.node(i).weights.front(), 1);
    for (const double weight : world.node(i).weights)
      EXPECT_TRUE(weight == 1 || weight == 2 || weight == 3) << weight;
  }
}

// A blocking trainer's snapshot is exactly an interval from the last result, whatever its speed: it
// is asked for within the interval's last step. A delayed one is asked when the interval is over.
TEST(AveragingTest, ASnapshotOfABlockingTrainerIsExactlyAnIntervalAfterTheLast) {
  for (const Overlap overlap : {Overlap::kBlocking, Overlap::kDelayed}) {
    AveragingConfig config = EveryTenSteps();
    config.overlap = overlap;
    PeerWorld world(25, config);
    for (int i = 0; i < 4; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Seconds(3));
    const auto& weights = world.node(2).weights;
    ASSERT_GE(weights.size(), 20U);
    const double steps = overlap == Overlap::kBlocking ? 10 : 11;
    for (size_t i = weights.size() - 10; i < weights.size(); ++i)
      EXPECT_EQ(weights[i], steps * world.node(2).samples_per_step);
  }
}

TEST(AveragingTest, OneWithALongStepDoesNotStopTheOthersForLong) {
  PeerWorld world(22, EveryTenSteps());
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(500));
  world.node(3).step_time = Seconds(2);
  const AveragingId before = world.Summary(0).averaging;
  world.RunFor(Seconds(5));
  EXPECT_GT(world.Summary(0).averaging, before + 5);
  EXPECT_EQ(world.Summary(0).divergence, 0U);
}

TEST(AveragingTest, ASnapshotThatIsRefusedLeavesThatMemberOutOfOneAveraging) {
  PeerWorld world(23, EveryTenSteps());
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(500));
  while (!world.node(1).publish) world.RunFor(Microseconds(100));
  const AveragingId k = *std::exchange(world.node(1).publish, std::nullopt);
  world.RunFor(Milliseconds(30));  // the others' READYs wait at it for the snapshot
  world.Local(1, PublishRefused{k});
  // They are answered: nobody sits its start deadline of 250 ms out.
  world.RunFor(Milliseconds(100));
  EXPECT_GE(world.Summary(0).averaging, k);
  world.RunFor(Seconds(3));
  EXPECT_EQ(world.Summary(1).averagings_abandoned, 1U);
  EXPECT_GE(world.node(1).deliveries.size(), 5U);
  EXPECT_EQ(world.Summary(1).job_samples, world.Summary(0).job_samples);
  for (const Deliver& d : world.node(1).deliveries) EXPECT_NE(d.averaging, k);
}

// Three in a grid of two by two; a seat, from an averaging on that is under way, moves one of them
// to the free cell at any instant of it: before its first round, between the two, after them.
TEST(AveragingTest, WhoIsMovedInTheMiddleOfAnAveragingIsNotCountedTwice) {
  constexpr size_t kMoved = 1;
  size_t abandoned = 0;
  for (int64_t at = 0; at < 150; at += 2) {
    PeerWorld world(31, EveryTenSteps(2));
    for (int i = 0; i < 3; ++i) world.Add();
    // Twice its samples are more than all three produce while an averaging lasts.
    for (size_t i = 0; i < 3; ++i) world.node(i).samples_per_step = i == kMoved ? 80 : 8;
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.jitter = 20;  // rounds take tens of milliseconds
    world.RunFor(Milliseconds(500 + at));
    const PeerSummary summary = world.Summary(0);
    ASSERT_EQ(summary.members.size(), 3U);
    const Grid grid{summary.view->radices};
    std::set<CellIndex> taken;
    for (const auto& member : summary.members) taken.insert(CellAt(grid, member.cell));
    CellIndex free = 0;
    while (taken.contains(free)) ++free;
    const PeerId moved = world.node(kMoved).id();
    const message::SeatingNews news{.view = summary.view->hash,
                                    .seats = {Seat{.member = {.id = moved, .cell = free},
                                                   .steward = summary.members[0].id,
                                                   .sitting = 1,
                                                   .first_averaging = AveragingId(1)}},
                                    .vacancies = {Vacancy{moved, 0, AveragingId(1)}},
                                    .contacts = {},
                                    .all = {}};
    for (size_t i = 0; i < 3; ++i) world.Tell(i, (i + 1) % 3, news);
    for (int ms = 0; ms < 500; ++ms) {
      world.RunFor(Milliseconds(1));
      double produced = 0;
      for (size_t i = 0; i < 3; ++i)
        produced += static_cast<double>(world.node(i).steps) * world.node(i).samples_per_step;
      for (size_t i = 0; i < 3; ++i) ASSERT_LE(world.Summary(i).job_samples, produced) << at;
    }
    for (size_t i = 0; i < 3; ++i) abandoned += world.Summary(i).averagings_abandoned;
  }
  EXPECT_GT(abandoned, 0U) << "no seat came in the middle of an averaging: this tested nothing";
}

// Due because its trainer waits for leases, and then the trainer goes on before the averaging has
// begun. It stays due, and says so once a heartbeat: a deadline that has passed may not stand.
TEST(AveragingTest, WhoWasDueForLeasesThatCameOtherwiseStaysDue) {
  AveragingConfig config = EveryTenSteps();
  config.interval = 1000;
  PeerWorld world(26, config);
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(500));
  size_t said = 0;
  world.lose = [&](size_t, size_t, const Message& message) {
    said += std::holds_alternative<message::DueFor>(message);
    return std::holds_alternative<message::LeasesWanted>(message);  // so that it is due alone
  };
  world.Local(0, DataDeclared{{.samples = 2000, .unit = 10, .seed = 42}});
  Progress progress{50, 400, 1.0, {}};
  progress.leases.waits = true;
  world.Local(0, progress);
  world.RunFor(Milliseconds(100));
  ASSERT_EQ(said, 3U) << "one is due, and tells the three others";
  progress.leases.waits = false;
  world.Local(0, progress);
  world.RunFor(Seconds(3));  // ends the test where a deadline stands: PeerWorld bounds its events
  EXPECT_EQ(said, 3U * 4) << "and again with each heartbeat";
}

}  // namespace
}  // namespace crowdsurf::worker
