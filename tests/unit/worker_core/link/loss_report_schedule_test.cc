// Which lost workers are reported, and when: against the times that loss_report_schedule.h
// promises.
#include "worker/core/link/loss_report_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

using Reporter = LossReportSchedule::Reporter;

using testing::ElementsAre;
using testing::IsEmpty;

Time At(double seconds) { return Time::FromNanoseconds(1) + Seconds(seconds); }

TEST(LossReportScheduleTest, WhoStaysLostIsNamedAfterAWhileAndAgainUntilItIsPointless) {
  LossReportSchedule schedule;
  std::vector<double> named;
  for (double at = 0; at < 200; at += 0.5) {
    if (!schedule.Look(At(at), {"w1"}, Reporter::kWitness).empty()) named.push_back(at);
  }
  ASSERT_GE(named.size(), 2u);
  EXPECT_EQ(named[0], 2);
  for (size_t i = 1; i < named.size(); ++i) EXPECT_EQ(named[i] - named[i - 1], 5);
  EXPECT_LE(named.back(), 120);
  EXPECT_GT(named.back(), 110);
}

TEST(LossReportScheduleTest, AnAgentThatIsRestartedIsNotNamed) {
  LossReportSchedule schedule;
  for (int crash = 0; crash < 5; ++crash) {
    const double from = 10.0 * crash;
    for (double at = 0; at < 1.9; at += 0.1) {
      EXPECT_THAT(schedule.Look(At(from + at), {"w1"}, Reporter::kWitness), IsEmpty());
    }
    schedule.Look(At(from + 2), {}, Reporter::kWitness);
    EXPECT_EQ(schedule.notes(), 0u);
  }
}

TEST(LossReportScheduleTest, OnlyWitnessesReportAndOneThatBecomesOneDoesAtOnce) {
  LossReportSchedule schedule;
  EXPECT_THAT(schedule.Look(At(0), {"w1"}, Reporter::kMember), IsEmpty());
  EXPECT_THAT(schedule.Look(At(3), {"w1"}, Reporter::kMember), IsEmpty());
  EXPECT_THAT(schedule.Look(At(4), {"w1"}, Reporter::kWitness), ElementsAre("w1"));
}

TEST(LossReportScheduleTest, AWaveIsNamedInPortionsAndTheTableIsBounded) {
  LossReportSchedule schedule;
  std::vector<std::string> lost;
  for (size_t i = 0; i < LossReportSchedule::kMaxNotes + 5; ++i)
    lost.push_back("w" + std::to_string(i));
  schedule.Look(At(0), lost, Reporter::kWitness);
  EXPECT_EQ(schedule.notes(), LossReportSchedule::kMaxNotes);
  EXPECT_EQ(schedule.dropped(), 5u);
  lost.resize(100);
  const auto first = schedule.Look(At(2), lost, Reporter::kWitness),
             second = schedule.Look(At(2.5), lost, Reporter::kWitness);
  EXPECT_EQ(first.size(), LossReportSchedule::kMaxNamed);
  EXPECT_EQ(second.size(), 100 - LossReportSchedule::kMaxNamed);
  for (const std::string& name : second) {
    EXPECT_EQ(std::count(first.begin(), first.end(), name), 0) << name;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
