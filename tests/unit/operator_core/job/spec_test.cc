// Each choice of a manifest as the value that policies read (docs/manifest.md).
#include <gtest/gtest.h>

#include "operator/core/job/training_job.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

TrainingJobSpec Read(const json& spec) { return SpecFromJson(WithDefaults(spec)); }

TEST(SpecValuesTest, EveryChoiceIsItsEnumerator) {
  using enum CapacityType;
  for (const auto& [name, type] :
       {std::pair("Spot", kSpot), {"OnDemand", kOnDemand}, {"Any", kAny}}) {
    EXPECT_EQ(Read({{"capacity", {{"type", name}}}}).capacity.type, type) << name;
    EXPECT_EQ(Name(type), name);
  }
  for (const auto& [name, criterion] :
       {std::pair("TargetReached", SuccessCriterion::kTargetReached),
        {"AllSucceeded", SuccessCriterion::kAllSucceeded},
        {"AnySucceeded", SuccessCriterion::kAnySucceeded}}) {
    EXPECT_EQ(Read({{"successPolicy", {{"criterion", name}}}}).success, criterion) << name;
  }
  for (const auto& [name, policy] : {std::pair("Running", CleanPodPolicy::kRunning),
                                     {"All", CleanPodPolicy::kAll},
                                     {"None", CleanPodPolicy::kNone}}) {
    EXPECT_EQ(Read({{"runPolicy", {{"cleanPodPolicy", name}}}}).run.clean_pods, policy) << name;
  }
  for (const auto& [name, action] : {std::pair("FailJob", FailureAction::kFailJob),
                                     {"ReplaceWorker", FailureAction::kReplaceWorker},
                                     {"Ignore", FailureAction::kIgnore},
                                     {"Count", FailureAction::kCount}}) {
    const json rule = {{"action", name}, {"onExitCodes", {{"values", {1}}}}};
    const auto rules = Read({{"failurePolicy", {{"rules", json::array({rule})}}}}).failure_rules;
    ASSERT_EQ(rules.size(), 1u);
    EXPECT_EQ(rules[0].action, action) << name;
  }
}

TEST(SpecValuesTest, RulesOfFailuresAreReadWhole) {
  const json rules = json::parse(R"([
    {"name": "a", "onExitCodes": {"operator": "NotIn", "values": [3, 4]}, "action": "Ignore"},
    {"name": "b", "onPodConditions": [{"type": "T", "status": "False"}, {"type": "U"}]}])");
  const auto read = Read({{"failurePolicy", {{"rules", rules}}}}).failure_rules;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_FALSE(read[0].exit_codes_in);
  EXPECT_EQ(read[0].exit_codes, (std::vector<int>{3, 4}));
  EXPECT_TRUE(read[1].exit_codes.empty());
  EXPECT_EQ(read[1].conditions, (std::vector<PodCondition>{{"T", "False"}, {"U", "True"}}));
  EXPECT_EQ(read[1].action, FailureAction::kCount) << "the default";
}

TEST(SpecValuesTest, EveryNumberHasItsPlace) {
  const TrainingJobSpec spec = Read(json::parse(R"({
    "replicas": 5, "minReplicas": 2, "maxReplicas": 9, "suspend": true,
    "capacity": {"onDemandBase": 1, "onDemandPercentageAboveBase": 20,
                 "fallback": {"afterSeconds": 33, "maxOnDemand": 3}},
    "runPolicy": {"backoffLimit": 4, "failureWindowSeconds": 60, "activeDeadlineSeconds": 61,
                  "startDeadlineSeconds": 62, "ttlSecondsAfterFinished": 63},
    "disruption": {"graceSeconds": 11, "toleratedUnreachableSeconds": 12,
                   "forceDeleteAfterSeconds": 13, "doNotDisrupt": true,
                   "podDisruptionBudget": {"maxUnavailable": 2}},
    "network": {"policy": "Managed"}, "tls": {"mode": "Disabled"}, "discovery": {"bootstrapPeers": ["a:1", "b:2"]}})"));
  EXPECT_EQ(spec.replicas, 5);
  EXPECT_EQ(spec.min_replicas, 2);
  EXPECT_EQ(spec.max_replicas, 9);
  EXPECT_TRUE(spec.suspend);
  EXPECT_EQ(spec.capacity.on_demand_base, 1);
  EXPECT_EQ(spec.capacity.on_demand_percentage_above_base, 20);
  EXPECT_EQ(spec.capacity.fallback_after, Seconds(33));
  EXPECT_EQ(spec.capacity.fallback_max_on_demand, 3);
  EXPECT_EQ(spec.run.backoff_limit, 4);
  EXPECT_EQ(spec.run.failure_window, Seconds(60));
  EXPECT_EQ(spec.run.active_deadline, Seconds(61));
  EXPECT_EQ(spec.run.start_deadline, Seconds(62));
  EXPECT_EQ(spec.run.ttl_after_finished, Seconds(63));
  EXPECT_EQ(spec.disruption.grace, Seconds(11));
  EXPECT_EQ(spec.disruption.tolerated_unreachable, Seconds(12));
  EXPECT_EQ(spec.disruption.force_delete_after, Seconds(13));
  EXPECT_TRUE(spec.do_not_disrupt);
  EXPECT_EQ(spec.max_unavailable, 2);
  EXPECT_TRUE(spec.managed_network);
  EXPECT_TRUE(spec.tensors_in_clear);
  EXPECT_EQ(spec.bootstrap_peers, (std::vector<std::string>{"a:1", "b:2"}));
  const TrainingJobSpec plain = Read(json::object());
  EXPECT_FALSE(plain.suspend || plain.do_not_disrupt || plain.managed_network);
  EXPECT_FALSE(plain.tensors_in_clear);
  EXPECT_FALSE(plain.run.active_deadline.has_value());
  EXPECT_EQ(plain.run.start_deadline, Seconds(86'400));
  EXPECT_FALSE(plain.run.ttl_after_finished.has_value());
  EXPECT_TRUE(plain.max_unavailable.is_null());
}

}  // namespace
}  // namespace crowdsurf::controller
