// rounds: One among real peers in a small world: what a round does to the mean and to the spread,
// the job's count, newcomers, deaths, switches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_core/world/training_world.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kStep = Milliseconds(10);  // of every trainer here

AveragingConfig OneRound(uint16_t group, Weighting weighting = Weighting::kEqual) {
  AveragingConfig config = EveryTenSteps(group);
  config.rounds = RoundsMode::kOne;
  config.weighting = weighting;
  return config;
}

std::vector<size_t> Living(const PeerWorld& world) {
  std::vector<size_t> living;
  for (size_t i = 0; i < world.size(); ++i)
    if (world.Alive(i)) living.push_back(i);
  return living;
}

// By coordinate over the living workers: the mean, and the mean over coordinates of the variance.
struct Spread {
  std::vector<double> mean;
  double variance = 0;
};
Spread SpreadOf(PeerWorld& world, const std::vector<double>& weights = {}) {
  const std::vector<size_t> living = Living(world);
  const size_t length = world.node(living[0]).x.size();
  Spread spread{.mean = std::vector<double>(length, 0), .variance = 0};
  double total = 0;
  for (const size_t i : living) total += weights.empty() ? 1 : weights[i];
  for (size_t e = 0; e < length; ++e) {
    for (const size_t i : living)
      spread.mean[e] += (weights.empty() ? 1 : weights[i]) * world.node(i).x[e] / total;
    for (const size_t i : living)
      spread.variance += std::pow(world.node(i).x[e] - spread.mean[e], 2) /
                         static_cast<double>(living.size() * length);
  }
  return spread;
}

// Until all the living have taken one more mean, and their trainers have it.
void RunToMean(PeerWorld& world) {
  std::vector<uint64_t> before;
  for (size_t i = 0; i < world.size(); ++i)
    before.push_back(world.Alive(i) ? world.Summary(i).averagings_delivered : 0);
  const auto all = [&] {
    for (const size_t i : Living(world))
      if (world.Summary(i).averagings_delivered == before[i]) return false;
    return true;
  };
  for (int ms = 0; ms < 5'000 && !all(); ++ms) world.RunFor(Milliseconds(1));
  ASSERT_TRUE(all());
  world.RunFor(kStep * 2);
}

// `members` in one view, each of which has taken means, and none of which moves by itself.
void FillAndRest(PeerWorld& world, size_t members) {
  Fill(world, members);
  for (int turn = 0; turn < 2; ++turn) RunToMean(world);
  for (size_t i = 0; i < members; ++i) world.node(i).drift = 0;
}

// Every worker draws its values anew.
void Scatter(PeerWorld& world, uint64_t seed) {
  Rng rng(seed);
  for (const size_t i : Living(world))
    for (double& value : world.node(i).x) value = rng.Normal();
}

// A round over random values is one over a random split into r groups: by the variance of a mean of
// a sample without replacement the spread shrinks to (r - 1) / (N - 1), whatever the groups' sizes.
// After a turn of each axis of a full grid nothing is left of it.
void ExpectContraction(size_t members, uint16_t group, const std::vector<size_t>& groups,
                       bool full) {
  SCOPED_TRACE(std::to_string(members) + " members");
  PeerWorld world(members, OneRound(group), 1500);
  FillAndRest(world, members);
  ASSERT_EQ(world.Summary(0).view->radices.size(), groups.size());
  Scatter(world, 11);
  const Spread before = SpreadOf(world);
  for (size_t turn = 0; turn < groups.size(); ++turn) {
    RunToMean(world);
    const Spread after = SpreadOf(world);
    if (turn == 0) {
      for (size_t e = 0; e < before.mean.size(); ++e)
        ASSERT_NEAR(after.mean[e], before.mean[e], 1e-12);
      const double factor = static_cast<double>(groups[0] - 1) / static_cast<double>(members - 1);
      EXPECT_NEAR(after.variance / before.variance, factor, 0.08 * factor);
    } else if (full && turn + 1 < groups.size()) {
      const double factor =
          static_cast<double>(groups[turn] - 1) / static_cast<double>(members - 1);
      EXPECT_NEAR(after.variance / before.variance, factor, 0.08 * factor);
    } else if (full) {
      EXPECT_LT(after.variance, 1e-24);
    } else {
      EXPECT_LT(after.variance, before.variance);
    }
  }
}

TEST(TurnsTest, ARoundShrinksTheSpreadByTheClosedFormAndATurnOfAllAxesEndsIt) {
  // How many groups hold one value after the first axis, the second and so on.
  ExpectContraction(4, 2, {2, 1}, true);
  ExpectContraction(8, 2, {4, 2, 1}, true);
  ExpectContraction(9, 3, {3, 1}, true);
}

TEST(TurnsTest, AHoleIsNotSpokenForAndTheMeanStays) { ExpectContraction(3, 2, {2, 2}, false); }

// Weights are samples, so trainers of constant speeds keep the mean that their speeds weigh.
TEST(TurnsTest, TheMeanWeighedBySpeedStays) {
  PeerWorld world(3, OneRound(2, Weighting::kSamples));
  const std::vector<double> speeds = {8, 16, 24, 48};
  Fill(world, 4);
  for (size_t i = 0; i < 4; ++i) world.node(i).samples_per_step = speeds[i];
  for (int turn = 0; turn < 3; ++turn) RunToMean(world);
  for (size_t i = 0; i < 4; ++i) world.node(i).drift = 0;
  Scatter(world, 5);
  const Spread before = SpreadOf(world, speeds);
  for (int turn = 0; turn < 8; ++turn) RunToMean(world);
  const Spread after = SpreadOf(world, speeds);
  EXPECT_LT(after.variance, 0.01 * before.variance);
  // All take as many steps from mean to mean, give or take the one under way.
  for (size_t e = 0; e < before.mean.size(); ++e) EXPECT_NEAR(after.mean[e], before.mean[e], 0.2);
}

double Made(PeerWorld& world) {
  double made = 0;
  for (size_t i = 0; i < world.size(); ++i)
    made += world.node(i).samples_per_step * static_cast<double>(world.node(i).steps);
  return made;
}

// What all agents know of their trainers.
double Known(PeerWorld& world) {
  double known = 0;
  for (const size_t i : Living(world)) known += world.Summary(i).samples;
  return known;
}

// Runs, and holds each new count against what was known when it began and is known now.
size_t WatchCounts(PeerWorld& world, Duration time) {
  size_t counts = 0;
  AveragingId seen = world.Summary(0).averaging;
  std::vector<double> known;
  for (int ms = 0; ms < time.seconds() * 1000; ++ms) {
    known.push_back(Known(world));
    world.RunFor(Milliseconds(1));
    const PeerSummary summary = world.Summary(0);
    if (summary.averaging == seen) continue;
    seen = summary.averaging;
    ++counts;
    EXPECT_LE(summary.job_samples, Known(world)) << "averaging " << seen;
    EXPECT_GE(summary.job_samples, known[known.size() - std::min<size_t>(known.size(), 20)])
        << "averaging " << seen;
  }
  return counts;
}

TEST(TurnsTest, TheCountIsWhatTrainersHaveMade) {
  PeerWorld world(21, OneRound(2, Weighting::kSamples));
  Fill(world, 6);
  for (size_t i = 0; i < 6; ++i) world.node(i).samples_per_step = 8.0 * static_cast<double>(i + 1);
  RunToMean(world);
  EXPECT_GE(WatchCounts(world, Seconds(4)), 20U);
  // Nothing but the last interval is out of it, and all know the same.
  const double job = world.Summary(0).job_samples;
  EXPECT_LE(job, Made(world));
  EXPECT_GE(job, 0.9 * Made(world));
  world.RunFor(Milliseconds(5));
  for (size_t i = 1; i < 6; ++i)
    if (world.Summary(i).averaging == world.Summary(0).averaging) {
      EXPECT_EQ(world.Summary(i).job_samples, world.Summary(0).job_samples);
    }
}

// Its steps are longer than it takes from a round to the count. Whatever they meet, its snapshots
// come into rounds: those are late at first, and then the others know how long to wait.
TEST(TurnsTest, ACountOvertakesNoSnapshot) {
  PeerWorld world(24, OneRound(2));
  Fill(world, 4);
  for (size_t i = 0; i < 4; ++i) world.node(i).step_time = Milliseconds(i == 3 ? 1500 : 100);
  world.RunFor(Seconds(3));
  for (size_t i = 0; i < 4; ++i) world.node(i).opened.clear();
  world.RunFor(Seconds(40));
  const auto snapshots = [&](size_t i) {
    return std::ranges::count_if(world.node(i).opened, [](const OpenBuffers& open) {
      return open.from == Region::kOutbox && open.chunks.front().count > 0;
    });
  };
  EXPECT_GE(snapshots(0), 10);
  EXPECT_GE(snapshots(3), snapshots(0) - 2);
}

TEST(TurnsTest, AWorkerDiesAndTheOthersGoOnMixingAndCounting) {
  PeerWorld world(22, OneRound(2));
  FillAndRest(world, 8);
  RunToMean(world);
  const double lost = world.Summary(5).samples;
  world.Kill(5);
  // What it trained since the last count is out of the job's, or in it.
  const AveragingId seen = world.Summary(0).averaging;
  world.RunFor(Seconds(3));
  EXPECT_GT(world.Summary(0).averaging, seen + 4);
  EXPECT_LE(world.Summary(0).job_samples, Known(world) + lost);
  EXPECT_GE(world.Summary(0).job_samples, 0.9 * Known(world));
  Scatter(world, 23);
  const double before = SpreadOf(world).variance;
  for (int turn = 0; turn < 9; ++turn) RunToMean(world);
  EXPECT_LT(SpreadOf(world).variance, 0.1 * before);
}

// One that comes has a model of its own until its first mean. It takes that, and moves it by next
// to nothing, also where all weigh alike.
TEST(TurnsTest, ANewcomerTakesTheMeanOfTheOthers) {
  for (const Weighting weighting : {Weighting::kEqual, Weighting::kSamples}) {
    PeerWorld world(31, OneRound(2, weighting));
    FillAndRest(world, 5);
    RunToMean(world);
    const size_t late = world.Add();
    for (int ms = 0; ms < 5'000 && !world.node(late).running; ++ms) world.RunFor(Milliseconds(1));
    for (double& value : world.node(late).x) value = 1000;
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    for (int turn = 0; turn < 8; ++turn) RunToMean(world);
    for (const size_t i : Living(world))
      for (const double value : world.node(i).x) ASSERT_LT(std::abs(value), 20);
  }
}

// Of a live job, and back: each time all begin equal, and the count goes on.
TEST(TurnsTest, AJobSwitchesBetweenOneRoundAndAll) {
  PeerWorld world(41, EveryTenSteps(2));
  Fill(world, 4);
  RunToDelivery(world, 0);
  AveragingConfig config = EveryTenSteps(2);
  double job = world.Summary(0).job_samples;
  for (uint64_t generation = 1; generation <= 4; ++generation) {
    SCOPED_TRACE("generation " + std::to_string(generation));
    config.generation = generation;
    config.rounds = generation % 2 == 1 ? RoundsMode::kOne : RoundsMode::kAll;
    for (size_t i = 0; i < 4; ++i) world.Local(i, ConfigChanged{config});
    RunToDelivery(world, 0);  // a whole average, whichever it is
    world.RunFor(Seconds(1));
    const size_t delivered = world.node(0).deliveries.size();
    const uint64_t means = world.Summary(0).averagings_delivered;
    world.RunFor(Seconds(1));
    EXPECT_GT(world.Summary(0).averagings_delivered, means + 5);
    const size_t whole = world.node(0).deliveries.size() - delivered;
    if (config.rounds == RoundsMode::kOne) {
      EXPECT_EQ(whole, 0U);
    } else {
      EXPECT_GT(whole, 5U);
    }
    EXPECT_GT(world.Summary(0).job_samples, job);
    job = world.Summary(0).job_samples;
    EXPECT_LE(job, Made(world));
    EXPECT_GE(job, 0.9 * Made(world));
  }
  ExpectAgreement(world);
}

}  // namespace
}  // namespace crowdsurf::worker
