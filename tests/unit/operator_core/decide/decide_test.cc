// Decide through histories of a platform that knows no policy (world.h): what it makes, deletes,
// says and counts.
#include "operator/core/decide/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::vector<CreatePod>& creates) {
  std::vector<std::string> names;
  names.reserve(creates.size());
  for (const CreatePod& create : creates) names.push_back(create.name);
  return names;
}

TEST(DecideTest, CreatesTheFirstWorkersUnderDeterministicNames) {
  World world(3);
  const Plan plan = world.Reconcile();
  EXPECT_THAT(Names(plan.creates), ElementsAre("job-0-1", "job-1-1", "job-2-1"));
  EXPECT_TRUE(plan.status_changed);
  EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kWorkersStarting);
  EXPECT_TRUE(plan.status.Is(ConditionType::kAccepted)) << "conditions from the first reconcile";
}

TEST(DecideTest, TensorsInTheClearAreSaidByAConditionAndOnceByAnEvent) {
  World world(2);
  EXPECT_EQ(world.Reconcile().status.Find(ConditionType::kTensorsInTheClear), nullptr);
  World plain(2);
  plain.snapshot.job.spec.tensors_in_clear = true;
  const auto said = [](const Plan& plan) {
    return std::count_if(plan.events.begin(), plan.events.end(),
                         [](const auto& event) { return event.reason == reason::kTlsDisabled; });
  };
  Plan plan = plain.Reconcile();
  EXPECT_TRUE(plan.status.Is(ConditionType::kTensorsInTheClear));
  EXPECT_EQ(said(plan), 1);
  plan = plain.Reconcile();
  EXPECT_TRUE(plan.status.Is(ConditionType::kTensorsInTheClear));
  EXPECT_EQ(said(plan), 0);
}

TEST(DecideTest, IsIdempotentOnceTheWorldHasSettled) {
  World world = Running(4);
  const Plan plan = world.Reconcile();
  EXPECT_FALSE(plan.status_changed);
  EXPECT_THAT(plan.creates, IsEmpty());
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_TRUE(plan.status.Is(ConditionType::kRunning));
  EXPECT_FALSE(plan.status.Is(ConditionType::kDegraded));
}

TEST(DecideTest, ExecutingAPlanAgainAfterACrashUsesTheSameNames) {
  World world(2);
  const Plan first = Decide(world.snapshot, world.now, world.options);
  const Plan again = Decide(world.snapshot, world.now + Seconds(9), world.options);
  EXPECT_EQ(Names(first.creates), Names(again.creates));
}

TEST(DecideTest, ALostNodeIsADisruptionAndItsReplacementHasANewNameAtOnce) {
  World world = Running(3);
  world.TakeNode("job-1-1");
  const Plan plan = world.Reconcile();
  EXPECT_THAT(Names(plan.creates), ElementsAre("job-1-2"));
  EXPECT_EQ(plan.status.disruptions, 1u);
  EXPECT_EQ(plan.status.disruptions_by_reason.at("NodeGone"), 1u);
  EXPECT_EQ(plan.status.failures, 0u);
  EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kReplacing);
}

TEST(DecideTest, APodThatVanishedWhileNobodyLookedIsCountedOnce) {
  World world(2);
  world.Settle();
  world.StartAll();
  world.Settle();
  EXPECT_EQ(world.snapshot.status.disruptions, 0u);
  world.pods.erase("job-1-1");  // deleted by force, or while no operator ran
  const Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.disruptions, 1u);
  EXPECT_EQ(plan.status.disruptions_by_reason.at(std::string(reason::kPodDeleted)), 1u);
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].name, "job-1-2");
  world.Settle();
  EXPECT_EQ(world.snapshot.status.disruptions, 1u);
}

TEST(DecideTest, APodThatWeDeletedOurselvesHasNotVanished) {
  World world(3);
  world.Settle();
  world.StartAll();
  world.Settle();
  world.snapshot.job.spec.replicas = 2;
  world.Settle();
  world.Bury();
  world.Settle();
  world.snapshot.status = StatusFromJson(StatusToJson(world.snapshot.status));  // another operator
  world.Settle();
  EXPECT_EQ(world.snapshot.status.disruptions, 0u);
  world.snapshot.job.spec.replicas = 3;
  world.Settle();
  EXPECT_EQ(world.snapshot.status.disruptions, 0u);
  EXPECT_TRUE(world.pods.count("job-2-2"));
}

TEST(DecideTest, AReplacementDoesNotWaitForACorpse) {  // pod-lifecycle 3.1, 3.4
  World world = Running(2);
  world.pods.at("job-0-1").grace = Seconds(25);
  world.pods.at("job-0-1").deleted = world.now;  // Terminating for ever: its kubelet is frozen
  world.nodes.at("node-job-0-1").not_ready_since = world.now;
  EXPECT_THAT(Names(world.Reconcile().creates), ElementsAre("job-0-2"));
  EXPECT_EQ(world.snapshot.status.disruptions, 1u);
  world.Wait(Seconds(24 + 30));
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty());
  world.Wait(Seconds(2));
  const Plan plan = world.Reconcile();  // force delete only tidies
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].grace, Duration());
  EXPECT_EQ(plan.deletes[0].reason, reason::kStuck);
}

// pod-lifecycle 1.1, 1.5
TEST(DecideTest, AMarkBecomesANoticeAndAReplacementAtOnceAndADeleteOnlyBeforeTheDeadline) {
  World world = Running(2);
  world.nodes["node-job-0-1"].mark = Mark{"SpotInterruption", world.now + Seconds(30), false};
  Plan plan = world.Reconcile();
  ASSERT_EQ(plan.annotations.size(), 1u);
  EXPECT_EQ(plan.annotations[0].key, kNoticeAnnotation);
  const auto notice = nlohmann::json::parse(plan.annotations[0].value);
  EXPECT_EQ(notice["reason"], "SpotInterruption");
  EXPECT_DOUBLE_EQ(notice["deadline"], (world.now + Seconds(30)).seconds());
  EXPECT_THAT(Names(plan.creates), ElementsAre("job-0-2"));
  EXPECT_THAT(plan.deletes, IsEmpty()) << "deleting is never a way of telling";
  EXPECT_EQ(plan.requeue_at, world.now + Seconds(28));
  EXPECT_EQ(plan.status.disruptions, 1u);
  world.StartAll();
  world.Wait(Seconds(28));
  plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].name, "job-0-1");
  EXPECT_EQ(plan.deletes[0].grace, Seconds(2));
  world.Bury();
  EXPECT_EQ(world.Settle().status.disruptions, 1u) << "told once, counted once";
}

// pod-lifecycle 3.9, 4.8
TEST(DecideTest, AWithdrawnMarkCancelsTheNoticeAndTheNewestOfTwoGoes) {
  World world = Running(2);
  world.nodes["node-job-0-1"].mark = Mark{"Rebalance", std::nullopt, false};
  world.Reconcile();
  world.StartAll();
  world.nodes["node-job-0-1"].mark.reset();
  const Plan plan = world.Reconcile();
  ASSERT_FALSE(plan.annotations.empty());
  EXPECT_EQ(plan.annotations[0].value, "");
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].name, "job-0-2");
  EXPECT_EQ(plan.deletes[0].reason, reason::kSurplus);
}

// The node may have gone: an operator that has just begun knows no more of it.
TEST(DecideTest, ANoticeStandsWhileNothingIsKnownOfTheNode) {
  World world = Running(2);
  world.nodes["node-job-0-1"].mark = Mark{"Rebalance", std::nullopt, false};
  world.Reconcile();
  world.StartAll();
  world.nodes["node-job-0-1"] = NodeFacts();
  world.nodes["node-job-0-1"].unknown = true;
  const auto notices = [](const Plan& plan) {
    return std::count_if(plan.annotations.begin(), plan.annotations.end(),
                         [](const auto& one) { return one.key == kNoticeAnnotation; });
  };
  Plan plan = world.Reconcile();
  EXPECT_EQ(notices(plan), 0);
  EXPECT_THAT(plan.deletes, IsEmpty()) << "the replacement is needed if the node is gone";
  world.nodes["node-job-0-1"].unknown = false;
  plan = world.Reconcile();
  EXPECT_EQ(notices(plan), 1) << "it is there, without a mark";
}

TEST(DecideTest,
     ANodeThatIsNotReadyIsWaitedForAndNoneIsDeadWhenAllAreSilent) {  // pod-lifecycle 3.10
  World world = Running(2);
  const Duration tolerated = world.snapshot.job.spec.disruption.tolerated_unreachable;
  for (const char* name : {"job-0-1", "job-1-1"}) {
    world.nodes[world.pods.at(name).node].not_ready_since = world.now;
  }
  EXPECT_EQ(world.Reconcile().requeue_at, world.now + tolerated);
  world.snapshot.nodes_heard_since = WallTime::Infinite();
  world.Wait(tolerated + Seconds(60));
  const Plan silent = world.Reconcile();
  EXPECT_TRUE(silent.creates.empty());
  EXPECT_TRUE(silent.deletes.empty());
  EXPECT_EQ(silent.status.disruptions, 0);
  world.snapshot.nodes_heard_since = world.now;
  world.nodes[world.pods.at("job-0-1").node].not_ready_since.reset();
  EXPECT_TRUE(world.Reconcile().creates.empty()) << "the other has its full time from now on";
  world.Wait(tolerated);
  EXPECT_THAT(Names(world.Reconcile().creates), ElementsAre("job-1-2"));
}

TEST(DecideTest, ANodeWhoseLeaseIsRenewedIsNotGivenUp) {  // an API server was away and is back
  World world = Running(1);
  const Duration tolerated = world.snapshot.job.spec.disruption.tolerated_unreachable;
  NodeFacts& node = world.nodes[world.pods.at("job-0-1").node];
  node.not_ready_since = world.now;
  world.Wait(tolerated);
  node.renewed_at = world.now;
  const Plan plan = world.Reconcile();
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(plan.requeue_at, world.now + tolerated) << "looked at again when it is over";
  world.Wait(tolerated);
  EXPECT_THAT(Names(world.Reconcile().creates), ElementsAre("job-0-2"));
}

TEST(DecideTest, SuspendTakesEveryPodAndResumeBringsThemBackUnderNewNames) {
  World world = Running(2);
  world.snapshot.job.spec.suspend = true;
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.deletes.size(), 2u);
  EXPECT_TRUE(plan.status.Is(ConditionType::kSuspended));
  EXPECT_FALSE(plan.status.start_time.has_value());
  world.Bury();
  world.snapshot.job.spec.suspend = false;
  plan = world.Reconcile();
  EXPECT_THAT(Names(plan.creates), ElementsAre("job-0-2", "job-1-2"));
  EXPECT_EQ(plan.status.disruptions, 0u) << "the user asked for it";
  EXPECT_FALSE(plan.status.Is(ConditionType::kSuspended));
}

TEST(DecideTest, ScalesDownFromTheHighestIndexAndUpAgain) {
  World world = Running(4);
  world.snapshot.job.spec.replicas = 2;
  Plan plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 2u);
  EXPECT_EQ(plan.deletes[0].name, "job-2-1");
  EXPECT_EQ(plan.deletes[0].reason, reason::kScaleDown);
  world.Bury();
  world.snapshot.job.spec.replicas = 3;
  EXPECT_THAT(Names(world.Reconcile().creates), ElementsAre("job-2-2"));
}

TEST(DecideTest, OnDemandBaseAndShareAreMetBeforeSpot) {
  World world(10);
  world.snapshot.job.spec.capacity.on_demand_base = 2;
  world.snapshot.job.spec.capacity.on_demand_percentage_above_base = 25;  // of 8: 2
  const Plan plan = world.Reconcile();
  EXPECT_EQ(std::count_if(plan.creates.begin(), plan.creates.end(),
                          [](const CreatePod& c) { return c.capacity == CapacityType::kOnDemand; }),
            4);
}

// The share is a lower bound on stable capacity, so it is rounded up: 10 % of 3 is one worker.
TEST(DecideTest, TheShareOnDemandIsRoundedUp) {
  struct Row {
    int replicas, base, percentage, on_demand;
  };
  for (const Row& row : {Row{3, 0, 10, 1}, Row{7, 0, 25, 2}, Row{10, 2, 26, 5}, Row{4, 0, 0, 0},
                         Row{8, 0, 50, 4}, Row{5, 5, 100, 5}}) {
    World world(row.replicas);
    world.snapshot.job.spec.capacity.on_demand_base = row.base;
    world.snapshot.job.spec.capacity.on_demand_percentage_above_base = row.percentage;
    const Plan plan = world.Reconcile();
    const auto on_demand = [](const CreatePod& c) { return c.capacity == CapacityType::kOnDemand; };
    EXPECT_EQ(std::count_if(plan.creates.begin(), plan.creates.end(), on_demand), row.on_demand)
        << row.percentage << " % of " << row.replicas << " above " << row.base;
  }
}

TEST(DecideTest, FallsBackToOnDemandWhenSpotHasHadNoRoom) {
  World world = Running(3);
  world.snapshot.job.spec.capacity.fallback_max_on_demand = 1;
  for (const char* name : {"job-1-1", "job-2-1"}) {
    PodFacts& pod = world.pods.at(name);
    pod.phase = PodPhase::kPending;
    pod.ready_since.reset();
    pod.node.clear();
    pod.waiting_reason = reason::kNoSpotCapacity;
  }
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kNoSpotCapacity);
  EXPECT_EQ(plan.requeue_at, world.now + Seconds(300));
  world.Wait(Seconds(300));
  plan = world.Reconcile();
  ASSERT_EQ(plan.creates.size(), 1u) << "maxOnDemand is 1";
  EXPECT_EQ(plan.creates[0].capacity, CapacityType::kOnDemand);
  EXPECT_EQ(plan.deletes[0].name, "job-1-1");
}

TEST(DecideTest, SaysWhyAWorkerCannotStartAndLooksAgainWhileItDoesNotKnow) {
  World world(2);
  world.Reconcile();
  world.nodes["node-1"];
  for (const char* name : {"job-0-1", "job-1-1"}) world.pods.at(name).node = "node-1";
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kWorkersStarting);
  EXPECT_EQ(plan.requeue_at, world.now + Seconds(10));
  world.pods.at("job-1-1").waiting_reason = reason::kCannotStart;
  world.pods.at("job-1-1").waiting_message = "secret \"s3\" not found";
  plan = world.Reconcile();
  const Condition& degraded = *plan.status.Find(ConditionType::kDegraded);
  EXPECT_EQ(degraded.reason, reason::kCannotStart);
  EXPECT_EQ(degraded.message, "job-1-1: secret \"s3\" not found");
}

// pod-lifecycle 6.1, 6.2
TEST(DecideTest, PushesSeedsWhileTheFirstWorkersStartAndThenOnlyWhenTheyAreDead) {
  World world(3);
  world.Reconcile();
  world.Start("job-1-1");
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.annotations.size(), 2u) << "the other two learn of the first";
  world.StartAll();
  world.Settle();
  EXPECT_EQ(world.pods.at("job-0-1").Annotation(kSeedsAnnotation), "job-1-1:7946\njob-2-1:7946\n");
  world.TakeNode("job-2-1");
  plan = world.Reconcile();
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].seeds, "job-0-1:7946\njob-1-1:7946\n") << "known at creation";
}

TEST(DecideTest, AWorkerOfRelaySumIsToldOfItsNeighboursInTheTreeBesideTheElders) {
  for (const char* strategy : {"RelaySum", "Moshpit"}) {
    World world(10);
    world.snapshot.job.spec.averaging["strategy"] = strategy;
    world.Reconcile();
    for (int i = 0; i < 10; ++i) {  // one after the other: the first two are enough elders
      world.Start("job-" + std::to_string(i) + "-1");
      world.Settle();
    }
    const std::string seeds = world.pods.at("job-9-1").Annotation(kSeedsAnnotation);
    const bool on_tree = std::string(strategy) == "RelaySum";
    EXPECT_EQ(seeds.find("job-8-1:7946\n") != std::string::npos, on_tree) << "a chain's\n" << seeds;
    EXPECT_EQ(seeds.find("job-4-1:7946\n") != std::string::npos, on_tree) << "a binary tree's";
    EXPECT_NE(seeds.find("job-0-1:7946\n"), std::string::npos);
    EXPECT_TRUE(world.Reconcile().annotations.empty()) << "once";
  }
}

TEST(DecideTest, PeersReportsAreActedUponSlowlyAndNotAtAllWhenMostAreReported) {
  World world = Running(30);  // pod-lifecycle 3.7: max(1, 10 %) a minute
  for (int i = 0; i < 10; ++i)
    world.pods.at("job-" + std::to_string(i) + "-1").reported_dead = true;
  Plan plan = world.Reconcile();
  EXPECT_EQ(plan.deletes.size(), 3u);
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty()) << "three a minute";
  World split = Running(10);  // pod-lifecycle 3.8
  for (int i = 0; i < 6; ++i) split.pods.at("job-" + std::to_string(i) + "-1").reported_dead = true;
  plan = split.Reconcile();
  EXPECT_THAT(plan.deletes, IsEmpty());
  EXPECT_TRUE(plan.status.Is(ConditionType::kPartitioned));
}

// pod-lifecycle 7.4
TEST(DecideTest, ARefusedCreateIsSleptOverAndNamedInACondition) {
  World world(2);
  world.snapshot.refusal =
      CreateRefusal{std::string(reason::kQuota), "exceeded quota: gpus", world.now, 3};
  const Plan plan = world.Reconcile();
  EXPECT_THAT(plan.creates, IsEmpty());
  EXPECT_EQ(plan.status.Find(ConditionType::kDegraded)->reason, reason::kQuota);
  EXPECT_LE(plan.requeue_at, world.now + Seconds(4));
  world.Wait(Seconds(4));
  EXPECT_EQ(world.Reconcile().creates.size(), 2u);
}

TEST(DecideTest, CreatesOfAHugeJobComeInTurns) {
  World world(2000);
  const Plan plan = world.Reconcile();
  EXPECT_EQ(plan.creates.size(), 500u);
  EXPECT_EQ(plan.requeue_at, world.now);
}

}  // namespace
}  // namespace crowdsurf::controller
