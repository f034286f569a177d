// What keeps workers from being made at all, and what a person reads of it.
#include "operator/core/observe/observe.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

const Condition& Degraded(const World& world) {
  static const Condition kNone;
  const Condition* found = world.snapshot.status.Find(ConditionType::kDegraded);
  EXPECT_NE(found, nullptr);
  return found == nullptr ? kNone : *found;
}

TEST(LimitsTest, AJobAboveTheOperatorsLimitGetsNoPodsAboveItAndSaysSo) {
  World world(9);
  world.options.max_workers = 6;
  world.Settle();
  EXPECT_EQ(world.pods.size(), 6u);
  EXPECT_EQ(Degraded(world).reason, reason::kTooManyWorkers);
  EXPECT_NE(Degraded(world).message.find('9'), std::string::npos) << Degraded(world).message;
  EXPECT_NE(Degraded(world).message.find('6'), std::string::npos) << Degraded(world).message;
  world.StartAll();
  const Plan plan = world.Settle();
  EXPECT_EQ(Degraded(world).reason, reason::kTooManyWorkers) << "six of nine train";
  EXPECT_TRUE(Degraded(world).on);
  EXPECT_TRUE(plan.events.empty()) << "said once";

  world.snapshot.job.spec.replicas = 6;
  world.Settle();
  EXPECT_FALSE(Degraded(world).on) << Degraded(world).message;
}

TEST(LimitsTest, ALimitThatIsLoweredStopsNobodyThatTrains) {
  World world = Running(5);
  world.options.max_workers = 3;
  world.Settle();
  EXPECT_EQ(world.Alive(), 5);
  world.TakeNode("job-4-1");
  world.TakeNode("job-1-1");
  world.Settle();
  EXPECT_EQ(world.Alive(), 4) << "the one above the limit is not replaced";
  EXPECT_EQ(Degraded(world).reason, reason::kTooManyWorkers);
}

TEST(LimitsTest, TheShareOnDemandIsOfTheWorkersThereMayBe) {
  World world(10);
  world.options.max_workers = 4;
  world.snapshot.job.spec.capacity.on_demand_percentage_above_base = 50;
  world.Settle();
  int on_demand = 0;
  for (const auto& [name, pod] : world.pods) on_demand += pod.capacity == CapacityType::kOnDemand;
  EXPECT_EQ(on_demand, 2);
}

TEST(LimitsTest, NoNameIsUsedUpWhileSomethingIsInTheWayAndTheJobStartsWhenItHasGone) {
  World world(3);
  world.snapshot.obstacle = Obstacle{reason::kNameTaken, "Service/job-peers is nobody's"};
  Plan plan = world.Reconcile();
  EXPECT_TRUE(world.pods.empty());
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].reason, reason::kNameTaken);
  EXPECT_EQ(plan.events[0].type, EventType::kWarning);
  EXPECT_EQ(Degraded(world).reason, reason::kNameTaken);
  EXPECT_EQ(Degraded(world).message, "Service/job-peers is nobody's");
  EXPECT_EQ(world.snapshot.status.Find(ConditionType::kRunning)->reason, reason::kNameTaken);
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_LE(plan.requeue_at, world.now + Seconds(10)) << "nobody else tells that it has gone";
    world.now = plan.requeue_at;
    plan = world.Reconcile();
    EXPECT_TRUE(plan.events.empty()) << "said once";
  }
  world.snapshot.obstacle.reset();
  world.Settle();
  EXPECT_TRUE(world.pods.contains("job-0-1")) << "the first name is still free";
  EXPECT_EQ(world.pods.size(), 3u);
}

// kubernetes: a replacement may be refused by a quota until its predecessor has gone.
TEST(LimitsTest, ARefusalOfAQuotaIsForgottenWhenAPodOfTheNamespaceGoes) {
  World world = Running(1);
  world.TakeNode("job-0-1");
  world.snapshot.refusal =
      CreateRefusal{std::string(reason::kQuota), "exceeded quota", world.now, 8};
  Plan plan = world.Reconcile();
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_LE(plan.requeue_at, world.now + Seconds(2)) << "another job's pod may go";
  world.Wait(Seconds(1));
  world.snapshot.pod_gone_at = world.snapshot.refusal->at - Seconds(1);
  EXPECT_TRUE(world.Reconcile().creates.empty()) << "that one went before";
  world.snapshot.pod_gone_at = world.now;
  EXPECT_EQ(world.Reconcile().creates.size(), 1u);
}

TEST(LimitsTest, ARefusalOfTheAgentsContainerNamesTheField) {  // kubeblocks#2738, deckhouse#8919
  for (const auto& [reason, message, helped] :
       {std::tuple(reason::kQuota, "failed quota: q: must specify limits.cpu for: crowdsurf-agent",
                   true),
        {reason::kForbidden,
         "memory max limit to request ratio per Container is 4, but provided ratio is 20.000000",
         true},
        {reason::kForbidden, "maximum memory usage per Container is 1Gi, but limit is 2684354560",
         true},
        {reason::kQuota, "exceeded quota: gpus", false}}) {
    World world(1);
    world.snapshot.refusal = CreateRefusal{std::string(reason), message, world.now, 1};
    world.Reconcile();
    EXPECT_EQ(Degraded(world).message.starts_with(message), true);
    EXPECT_EQ(Degraded(world).message.find("spec.agent.resources") != std::string::npos, helped)
        << message;
  }
}

TEST(LimitsTest, AJobThatWasScaledDownRemembersOneNumber) {
  World world = Running(500);
  world.options.max_creates = 1000;
  world.snapshot.job.spec.replicas = 5;
  world.Settle();
  world.Bury();
  world.Settle();
  const TrainingJobStatus& status = world.snapshot.status;
  EXPECT_EQ(status.incarnations.size(), 5u);
  EXPECT_EQ(status.counted.size(), 0u);
  EXPECT_EQ(status.incarnation_floor, 1);
  world.snapshot.status = StatusFromJson(StatusToJson(status));  // another operator
  world.snapshot.job.spec.replicas = 7;
  world.Settle();
  EXPECT_TRUE(world.pods.contains("job-5-2")) << "no name is used twice";
  EXPECT_EQ(world.snapshot.status.disruptions, 0u);
  world.Settle();
  EXPECT_EQ(world.snapshot.status.counted.size(), 0u);
}

TEST(LimitsTest, AGuardOfAnEditThatCannotBeIsSaidAndHealsOn) {
  World world = Running(2);
  world.snapshot.unguarded = "NetworkPolicy/job-workers is nobody's";
  world.TakeNode("job-0-1");
  world.Settle();
  EXPECT_EQ(world.Alive(), 2);
  EXPECT_EQ(world.snapshot.status.Find(ConditionType::kAccepted)->message,
            "the spec is valid; NetworkPolicy/job-workers is nobody's");
}

TEST(LimitsTest, WhatFailedBesideThePodsIsTriedAgainThoughNothingHappens) {
  World world = Running(2);
  const WallTime before = world.Settle().requeue_at;
  world.snapshot.look_again = world.now + Seconds(2);
  ASSERT_LT(world.snapshot.look_again, before);
  EXPECT_EQ(world.Reconcile().requeue_at, world.now + Seconds(2));
}

TEST(LimitsTest, FieldsThatDoNotActAreSaidWithTheAcceptance) {
  World world = Running(1);
  world.snapshot.warnings = "spec.averaging.groupSize: is ignored";
  world.Settle();
  EXPECT_EQ(world.snapshot.status.Find(ConditionType::kAccepted)->message,
            "the spec is valid; spec.averaging.groupSize: is ignored");
  world.snapshot.warnings.clear();
  world.Settle();
  EXPECT_EQ(world.snapshot.status.Find(ConditionType::kAccepted)->message, "the spec is valid");
}

TEST(LimitsTest, AnInvalidEditIsSaidOnceAndTheJobHealsWithTheSpecBefore) {
  World world = Running(2);
  world.snapshot.job.generation = 4;
  world.snapshot.accepted_generation = 4;
  world.Settle();
  world.snapshot.refused = RefusedSpec{5, "spec.averaging.groupSize: 1 is below 2"};
  Plan plan = world.Reconcile();
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].reason, reason::kInvalidSpec);
  world.TakeNode("job-0-1");
  plan = world.Settle();
  EXPECT_EQ(world.Alive(), 2) << "it heals";
  const TrainingJobStatus& status = world.snapshot.status;
  const Condition* accepted = status.Find(ConditionType::kAccepted);
  ASSERT_NE(accepted, nullptr);
  EXPECT_FALSE(accepted->on);
  EXPECT_EQ(accepted->message,
            "spec.averaging.groupSize: 1 is below 2; the job goes on with generation 4");
  EXPECT_EQ(accepted->observed_generation, 5);
  EXPECT_EQ(status.Find(ConditionType::kRunning)->observed_generation, 4);
  EXPECT_EQ(status.observed_generation, 5);
  EXPECT_EQ(status.accepted_generation, 4);
  EXPECT_NE(StateOf(status), "InvalidSpec") << "it runs";
  EXPECT_TRUE(world.Reconcile().events.empty()) << "said once";
  EXPECT_EQ(StatusFromJson(StatusToJson(status)).accepted_generation, 4) << "it is read back";

  world.snapshot.refused.reset();
  world.snapshot.job.generation = 6;
  world.Settle();
  EXPECT_TRUE(world.snapshot.status.Is(ConditionType::kAccepted));
  EXPECT_EQ(world.snapshot.status.observed_generation, 6);
}

TEST(LimitsTest, AKeptSpecOfAnotherVersionIsReadOrNotButEndsNobody) {
  for (const nlohmann::json& odd :
       {nlohmann::json("text"), nlohmann::json{{"replicas", "many"}},
        nlohmann::json{{"capacity", 3}},
        nlohmann::json{{"failurePolicy", {{"rules", {{{"onExitCodes", {{"values", "all"}}}}}}}}}}) {
    EXPECT_FALSE(ReadSpec(odd).has_value()) << odd;
  }
  const auto huge = ReadSpec({{"replicas", 1e300}, {"runPolicy", {{"backoffLimit", -1e300}}}});
  ASSERT_TRUE(huge.has_value());
  EXPECT_GT(huge->replicas, 0);
  EXPECT_EQ(ReadSpec({{"replicas", 3}, {"fieldOfTheFuture", 1}})->replicas, 3);
}

}  // namespace
}  // namespace crowdsurf::controller
