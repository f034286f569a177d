// Instants and statuses to text and back. Instants are compared with those that date(1) gives.
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

TEST(Rfc3339Test, EveryPartHasBothItsBounds) {
  EXPECT_EQ(ParseInstant("1970-01-01T00:00:00Z"), At(0));
  EXPECT_EQ(ParseInstant("2261-12-31T23:59:59Z"), At(9214646399));  // date -u -d 2261-12-31...
  EXPECT_EQ(ParseInstant("2016-12-31T23:59:60Z"), At(1483228800)) << "a leap second";
  EXPECT_EQ(ParseInstant("1970-01-01T00:00:00.1234567899999Z")->nanoseconds(), 123456789);
  for (const char* text : {"1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "2000-00-01T00:00:00Z",
                           "2000-01-00T00:00:00Z", "2000-01-32T00:00:00Z", "2000-01-01T24:00:00Z",
                           "2000-01-01T00:60:00Z", "2000-01-01T00:00:61Z", "2000-01-01 00:00:00Z",
                           "2000-01-01T00:00:00", "2000-01-01T00:00:00ZZ", "2000-1-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseInstant(text).has_value()) << text;
  }
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
  status.accepted_generation = 2;
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
  status.target_time = At(105);
  status.spot_short_since = At(101);
  status.completion_time = At(110);
  status.agent_image = "agent:1";
  status.progress = {1000, 20, 3.25, 5, true, 120.5, 0, .94, 1064, At(100)};
  EXPECT_EQ(StatusFromJson(StatusToJson(status)), status);
  EXPECT_EQ(StatusFromJson(StatusToJson(TrainingJobStatus())), TrainingJobStatus());
}

TEST(StatusTest, TheLastFailureHasOneLineForAColumn) {
  TrainingJobStatus status;
  status.last_failure = FailureNote{"charlm-1-2", "ExitCode", 1, "step 7\nout of data\n", At(60)};
  EXPECT_EQ(StatusToJson(status)["failures"]["last"]["message"], "out of data");
}

// A status is input when it is read back: anybody with the right may have written it.
TEST(StatusTest, ReadsNoMoreThanItWouldWrite) {
  nlohmann::json in = {{"incarnations", {{"999999", 2}, {"1000000", 3}, {"", 4}, {"-1", 5}}},
                       {"retry", {{"7", {{"failures", 2}}}, {"x", {{"failures", 3}}}}},
                       {"succeeded", {1, "2", 3.5}},
                       {"counted", {"a", 7}},
                       {"failures", {{"counted", {"never", "2026-11-22T10:22:58Z", 3}}}},
                       {"progress", {{"targetMet", "true"}, {"loss", "low"}, {"goodput", "high"}}}};
  for (int i = 0; i < 100; ++i) in["disruptions"]["byReason"]["r" + std::to_string(i)] = 1u;
  in["disruptions"]["byReason"]["a"] = -1;
  const TrainingJobStatus status = StatusFromJson(in);
  EXPECT_EQ(status.incarnations, (std::map<int, int>{{999999, 2}}));
  ASSERT_EQ(status.retry.size(), 1u);
  EXPECT_EQ(status.retry.at(7).failures, 2);
  EXPECT_EQ(status.succeeded, std::vector<int>{1});
  EXPECT_EQ(status.counted, std::vector<std::string>{"a"});
  EXPECT_EQ(status.counted_failures.size(), 1u);
  EXPECT_EQ(status.disruptions_by_reason.size(), 64u);
  EXPECT_FALSE(status.progress.target_met);
  EXPECT_FALSE(status.progress.loss || status.progress.goodput);
}

TEST(StatusTest, ConditionsComeInTheirOrderAndOnceEach) {
  const auto item = [](const char* type, const char* on) {
    return nlohmann::json{{"type", type}, {"status", on}};
  };
  const TrainingJobStatus status =
      StatusFromJson({{"conditions",
                       {item("Failed", "False"), item("Other", "True"), item("Accepted", "True"),
                        item("Accepted", "False")}}});
  ASSERT_EQ(status.conditions.size(), 2u);
  EXPECT_EQ(status.conditions[0].type, ConditionType::kAccepted);
  EXPECT_TRUE(status.conditions[0].on) << "the first of two";
  EXPECT_EQ(status.conditions[1].type, ConditionType::kFailed);
  EXPECT_FALSE(status.conditions[1].on);
}

TEST(StatusTest, AConditionKeepsItsInstantWhileItStaysOnOrOff) {
  TrainingJobStatus status;
  const auto set = [&](ConditionType type, bool on, double at) {
    SetCondition(status, {type, on, "", "", 1, At(at)});
  };
  set(ConditionType::kRunning, true, 100.75);
  EXPECT_EQ(status.Find(ConditionType::kRunning)->changed, At(100)) << "whole seconds";
  set(ConditionType::kRunning, true, 200);
  EXPECT_EQ(status.Find(ConditionType::kRunning)->changed, At(100));
  set(ConditionType::kRunning, false, 300);
  EXPECT_EQ(status.Find(ConditionType::kRunning)->changed, At(300));
  set(ConditionType::kFailed, true, 400);
  set(ConditionType::kAccepted, true, 400);
  std::vector<ConditionType> order;
  for (const Condition& condition : status.conditions) order.push_back(condition.type);
  EXPECT_EQ(order, (std::vector{ConditionType::kAccepted, ConditionType::kRunning,
                                ConditionType::kFailed}));
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
