#include "worker/core/strategy/mixing_interval.h"

#include <gtest/gtest.h>

#include <variant>

namespace crowdsurf::worker {
namespace {

MixingInterval Every(double length, IntervalUnit unit) {
  AveragingConfig config;
  config.interval = length;
  config.interval_unit = unit;
  MixingInterval interval;
  interval.SetLength(config);
  return interval;
}

TEST(MixingIntervalTest, IsOverOneStepEarlyOrAtItsSamplesOrSeconds) {
  const Time start = Time::FromNanoseconds(1) + Seconds(100);
  MixingInterval steps = Every(5, IntervalUnit::kSteps);
  steps.OnPace(10, 80);
  steps.Begin(start);
  EXPECT_EQ(std::get<WakeAtTotals>(steps.Wake()).steps, 14u);
  steps.OnPace(13, 104);
  EXPECT_FALSE(steps.IsOver(start));
  steps.OnPace(14, 112);
  EXPECT_TRUE(steps.IsOver(start));

  MixingInterval samples = Every(40, IntervalUnit::kSamples);
  samples.OnPace(10, 80);
  samples.Begin(start);
  EXPECT_EQ(std::get<WakeAtTotals>(samples.Wake()).samples, 120);
  samples.OnPace(14, 119);
  EXPECT_FALSE(samples.IsOver(start));
  samples.OnPace(15, 120);
  EXPECT_TRUE(samples.IsOver(start));

  MixingInterval seconds = Every(2, IntervalUnit::kSeconds);
  seconds.Begin(start);
  EXPECT_EQ(std::get<SetStrategyTimer>(seconds.Wake()).at, start + Seconds(2));
  EXPECT_FALSE(seconds.IsOver(start + Seconds(1.9)));
  EXPECT_TRUE(seconds.IsOver(start + Seconds(2)));
}

// A trainer tells its totals while its snapshot is on the way: they count for the next interval,
// which begins with the snapshot all the same.
TEST(MixingIntervalTest, TotalsToldAfterASnapshotAreNotForgotten) {
  const Time now = Time::FromNanoseconds(1);
  MixingInterval steps = Every(5, IntervalUnit::kSteps);
  steps.OnPace(14, 112);
  steps.BeginAt(now, 10, 80);
  EXPECT_TRUE(steps.IsOver(now));  // 14 + 1 is 5 after 10

  MixingInterval samples = Every(40, IntervalUnit::kSamples);
  samples.OnPace(15, 119);
  samples.BeginAt(now, 10, 80);
  EXPECT_FALSE(samples.IsOver(now));
  EXPECT_EQ(std::get<WakeAtTotals>(samples.Wake()).samples, 120);
  samples.OnPace(15, 120);
  EXPECT_TRUE(samples.IsOver(now));
}

// And a snapshot is news of the totals.
TEST(MixingIntervalTest, ASnapshotTellsTotalsToo) {
  const Time now = Time::FromNanoseconds(1);
  MixingInterval steps = Every(5, IntervalUnit::kSteps);
  steps.OnPace(3, 24);
  steps.BeginAt(now, 10, 80);
  steps.Begin(now);  // at the totals told last: the snapshot's
  EXPECT_EQ(std::get<WakeAtTotals>(steps.Wake()).steps, 14u);
}

}  // namespace
}  // namespace crowdsurf::worker
