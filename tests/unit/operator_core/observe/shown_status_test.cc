// The one word of `kubectl get tj`, and what else people read of a job.
#include <gtest/gtest.h>

#include "operator/core/observe/observe.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using Type = ConditionType;

TrainingJobStatus With(std::initializer_list<std::pair<Type, bool>> conditions,
                       const char* why = "Why") {
  TrainingJobStatus status;
  for (const auto& [type, on] : conditions)
    SetCondition(status, {type, on, why, "", 1, WallTime()});
  return status;
}

TEST(StateOfTest, TheFirstThatHoldsIsTheWord) {
  EXPECT_EQ(StateOf({}), "Starting");
  EXPECT_EQ(StateOf(With({{Type::kRunning, false}})), "Why") << "why it does not run";
  EXPECT_EQ(StateOf(With({{Type::kRunning, false}}, "")), "Starting");
  EXPECT_EQ(StateOf(With({{Type::kRunning, true}})), "Running");
  EXPECT_EQ(StateOf(With({{Type::kRunning, true}, {Type::kDegraded, false}})), "Running");
  EXPECT_EQ(StateOf(With({{Type::kRunning, true}, {Type::kDegraded, true}})), "Degraded");
  EXPECT_EQ(StateOf(With({{Type::kAccepted, false}})), "Why");
  EXPECT_EQ(StateOf(With({{Type::kAccepted, true}})), "Starting");
  EXPECT_EQ(StateOf(With({{Type::kAccepted, false}, {Type::kRunning, true}})), "Running")
      << "an earlier spec runs on";
  EXPECT_EQ(StateOf(With({{Type::kRunning, true}, {Type::kTargetReached, true}})), "Finishing");
  EXPECT_EQ(StateOf(With({{Type::kRunning, true}, {Type::kSuspended, true}})), "Suspended");
  EXPECT_EQ(StateOf(With({{Type::kSuspended, true}, {Type::kFailed, true}})), "Failed");
  EXPECT_EQ(StateOf(With({{Type::kTargetReached, true}, {Type::kSucceeded, true}})), "Succeeded");
}

TEST(ShownStatusTest, ThePercentageIsOfTheFirstTargetThatIsAnAmount) {
  const auto percent = [](const json& target, uint64_t samples, uint64_t step) {
    TrainingJob job;
    job.spec.target = target;
    TrainingJobStatus status;
    status.progress.samples = samples;
    status.progress.step = step;
    const json shown = ShownStatus(job, status);
    return shown["progress"].value("percent", "none");
  };
  EXPECT_EQ(percent({{"samples", 200}}, 51, 0), "25%") << "rounded down";
  EXPECT_EQ(percent({{"steps", 10}}, 51, 9), "90%");
  EXPECT_EQ(percent({{"samples", 200}, {"steps", 10}}, 51, 9), "25%");
  EXPECT_EQ(percent({{"samples", 200}}, 0, 0), "0%");
  EXPECT_EQ(percent({{"metric", {{"name", "loss"}}}}, 51, 9), "none");
  EXPECT_EQ(percent({{"samples", 0}}, 51, 9), "none");
  EXPECT_EQ(percent({{"samples", "200"}}, 51, 9), "none");
}

}  // namespace
}  // namespace crowdsurf::controller
