#include "operator/core/job/training_job.h"

#include <gtest/gtest.h>

#include "operator/core/job/rfc3339.h"

namespace crowdsurf::controller {
namespace {

WallTime At(double seconds) {
  return WallTime::FromNanoseconds(static_cast<int64_t>(seconds * 1e6) * 1000);
}

TEST(Rfc3339Test, AgreesWithDatesKnownFromElsewhere) {
  EXPECT_EQ(FormatInstant(At(0)), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatInstant(At(951782400)), "2000-02-29T00:00:00Z");  // date -u -d @951782400
  EXPECT_EQ(FormatInstant(At(1795342978.25)), "2026-11-22T10:22:58.250000Z");
  EXPECT_EQ(ParseInstant("2000-02-29T00:00:00Z"), At(951782400));
  EXPECT_EQ(ParseInstant("2026-11-22T10:22:58.25Z"), At(1795342978.25));
}

TEST(Rfc3339Test, RefusesWhatIsNoInstant) {
  for (const char* text :
       {"", "2000-02-29", "2000-13-01T00:00:00Z", "2000-02-29T00:00:00+01:00",
        "2000-02-29T00:00:00.Zx", "x000-02-29T00:00:00Z", "1900-01-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseInstant(text).has_value()) << text;
  }
}

TEST(Rfc3339Test, EveryDayOfACenturyComesBack) {
  for (int64_t day = 0; day < 36525; ++day) {
    const WallTime time = At(static_cast<double>(day * 86400 + day % 86400));
    ASSERT_EQ(ParseInstant(FormatInstant(time)), time) << day;
  }
}

TEST(StatusTest, ComesBackFromJsonUnchanged) {
  TrainingJobStatus status;
  status.observed_generation = 3;
  status.conditions = {{ConditionType::kAccepted, true, "Valid", "ok", 3, At(100)},
                       {ConditionType::kDegraded, false, "AllWorkersReady", "", 2, At(90)}};
  status.replicas = 8;
  status.ready_replicas = 7;
  status.spot_replicas = 8;
  status.disruptions = 4;
  status.disruptions_by_reason = {{"NodeGone", 4}};
  status.last_disruption = At(99.5);
  status.failures = 2;
  status.counted_failures = {At(50), At(60.25)};
  status.last_failure = FailureNote{"charlm-1-2", "ExitCode", 3, "boom", At(60.25)};
  status.incarnations = {{0, 1}, {1, 3}};
  status.retry = {{1, {2, At(70)}}};
  status.succeeded = {4};
  status.counted = {"charlm-1-2"};
  status.start_time = At(10);
  status.running_time = At(12);
  status.completion_time = At(110);
  status.progress = {1000, 20, 3.25, 5, true, 120.5, .94, 1064, At(100)};
  EXPECT_EQ(StatusFromJson(StatusToJson(status)), status);
  EXPECT_EQ(StatusFromJson(StatusToJson(TrainingJobStatus())), TrainingJobStatus());
}

TEST(StatusTest, ReadsGarbageAsDefaults) {
  const auto garbage = nlohmann::json::parse(
      R"({"conditions": [1, {"type": 3}], "incarnations": {"x": 1, "1": "y"}, "failures": 4,
          "retry": {"2": []}, "startTime": "never", "progress": [], "disruptions": {"byReason": []}})");
  const TrainingJobStatus status = StatusFromJson(garbage);
  EXPECT_TRUE(status.conditions.empty());
  EXPECT_TRUE(status.incarnations.empty());
  EXPECT_FALSE(status.start_time.has_value());
}

}  // namespace
}  // namespace crowdsurf::controller
