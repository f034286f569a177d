// Workers that the platform takes: what is counted, what pauses, which node is avoided, and who is
// deleted by force.
#include <gmock/gmock.h>

#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Condition& Degraded(const World& world) {
  return *world.snapshot.status.Find(ConditionType::kDegraded);
}

// Every pod that was just made is refused by the kubelet of `node`.
int RefuseAll(World& world, const Plan& plan, const std::string& node, const std::string& why) {
  world.nodes[node];
  for (const CreatePod& create : plan.creates) {
    PodFacts& pod = world.pods.at(create.name);
    pod.node = node;
    pod.phase = PodPhase::kFailed;
    pod.status_reason = why;
    pod.status_message = "Pod was rejected: words of kubelet";
  }
  return static_cast<int>(plan.creates.size());
}

TEST(DisruptionsTest, ANodeThatRefusesEveryPodGetsOneNowAndThen) {
  World world = Running(8);
  world.TakeNode("job-0-1");
  int made = 0;
  for (int turn = 0; turn < 600; ++turn) {  // a minute
    made += RefuseAll(world, world.Reconcile(), "bad", "UnexpectedAdmissionError");
    world.Bury();
    world.Wait(Milliseconds(100));
  }
  EXPECT_LE(made, 7) << "1, 2, 4, ... s apart";
  EXPECT_GE(made, 5);
  const TrainingJobStatus& status = world.snapshot.status;
  EXPECT_EQ(status.failures, 0u);
  EXPECT_EQ(status.disruptions, 1u + static_cast<uint64_t>(made));
  EXPECT_EQ(Degraded(world).reason, reason::kBackingOff);
  EXPECT_THAT(Degraded(world).message, HasSubstr("refused by node bad: UnexpectedAdmissionError"));
  EXPECT_THAT(Degraded(world).message, HasSubstr("words of kubelet"));
  EXPECT_EQ(status.ready_replicas, 7);
}

TEST(DisruptionsTest, ARefusalThatLastsFailsNoJob) {
  World world = Running(8);
  world.TakeNode("job-0-1");
  int made = 0;
  for (int turn = 0; turn < 40; ++turn) {
    made += RefuseAll(world, world.Reconcile(), "numa", "TopologyAffinityError");
    world.Bury();
    world.Wait(Seconds(61));
  }
  EXPECT_EQ(made, 20) << "one a turn, and a turn of back-off each: it is still tried";
  EXPECT_FALSE(world.snapshot.status.finished());
  EXPECT_EQ(world.snapshot.status.failures, 0u);
}

TEST(DisruptionsTest, TheNextWorkersPreferOtherNodesForMinutes) {
  World world = Running(2);
  world.TakeNode("job-0-1");
  RefuseAll(world, world.Reconcile(), "bad", "OutOfcpu");
  world.Reconcile();
  world.Wait(Seconds(2));
  Plan plan = world.Reconcile();
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_THAT(plan.creates[0].other_nodes_first, ElementsAre("bad"));
  EXPECT_THAT(plan.creates[0].avoid_nodes, IsEmpty()) << "where no other fits, it is tried again";
  world.Start(plan.creates[0].name);
  EXPECT_EQ(StatusFromJson(StatusToJson(world.snapshot.status)), world.snapshot.status)
      << "another operator keeps it up";
  world.Wait(Seconds(600));
  world.TakeNode("job-1-1");
  plan = world.Reconcile();
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_THAT(plan.creates[0].other_nodes_first, IsEmpty());
  EXPECT_FALSE(StatusToJson(plan.status).contains("avoidedNodes"));
}

TEST(DisruptionsTest, NodesThatRefuseAreRememberedWithinABound) {
  World world = Running(1);
  world.TakeNode("job-0-1");
  std::string last;
  for (int turn = 0; turn < 40; ++turn) {
    last = "node-" + std::to_string(100 + turn);
    RefuseAll(world, world.Reconcile(), last, "OutOfcpu");
    world.Reconcile();
    world.Bury();
    world.snapshot.status.retry.clear();
  }
  ASSERT_EQ(world.snapshot.status.avoided.size(), 16u);
  EXPECT_EQ(world.snapshot.status.avoided.back().node, last) << "the latest stay";
}

TEST(DisruptionsTest, WhoIsTakenAfterItTrainedIsReplacedAtOnceHoweverOften) {
  World world = Running(2);
  for (int round = 2; round < 12; ++round) {
    const std::string before = "job-0-" + std::to_string(round - 1);
    world.pods.at(before).disruption_target = "PreemptionByScheduler";
    EXPECT_EQ(world.Reconcile().creates.size(), 1u) << round;
    world.Bury();
    world.Start("job-0-" + std::to_string(round));
    world.Wait(Seconds(1));
  }
  EXPECT_TRUE(world.snapshot.status.retry.empty());
}

// A policy engine or a descheduler that takes each pod before it runs.
TEST(DisruptionsTest, PodsThatSomebodyTakesBeforeTheyRunPauseToo) {
  for (const bool by_force : {false, true}) {
    World world(1);
    int made = 0;
    for (int turn = 0; turn < 600; ++turn) {
      for (const CreatePod& create : world.Reconcile().creates) {
        ++made;
        if (by_force) {
          world.pods.erase(create.name);
        } else {
          world.pods.at(create.name).deleted = world.now;
        }
      }
      world.Bury();
      world.Wait(Milliseconds(100));
    }
    EXPECT_LE(made, 8) << by_force;
    EXPECT_GE(made, 5) << by_force;
    EXPECT_EQ(world.snapshot.status.failures, 0u);
  }
}

TEST(DisruptionsTest, AWorkerThatTrainsForAWhileEndsTheRow) {
  World world = Running(1);
  world.TakeNode("job-0-1");
  RefuseAll(world, world.Reconcile(), "bad", "OutOfcpu");
  world.Reconcile();
  world.Wait(Seconds(2));
  world.Start(world.Reconcile().creates.at(0).name);
  world.Reconcile();
  EXPECT_EQ(world.snapshot.status.retry.at(0).disruptions, 1);
  world.Wait(world.options.healthy_after);
  world.Reconcile();
  EXPECT_TRUE(world.snapshot.status.retry.empty());
}

// Two watches: a replica that takes over may have the status before the pods.
TEST(DisruptionsTest, APodThatIsMissingIsAskedForBeforeItCountsAsGone) {
  World world(8);
  world.Reconcile();
  world.StartAll();
  world.Settle();
  JobSnapshot behind = world.snapshot;
  behind.asks_pods = true;
  behind.pods.resize(5);
  Plan plan = Decide(behind, world.now);
  EXPECT_THAT(plan.ask_pods, ElementsAre("job-5-1", "job-6-1", "job-7-1"));
  EXPECT_THAT(plan.creates, IsEmpty()) << "they may be there";
  EXPECT_EQ(plan.status.disruptions, 0u);
  behind.status = plan.status;
  behind.gone_pods = {"job-6-1"};
  plan = Decide(behind, world.now);
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].name, "job-6-2");
  EXPECT_EQ(plan.status.disruptions, 1u);
  EXPECT_THAT(plan.ask_pods, ElementsAre("job-5-1", "job-7-1"));
  behind.status = plan.status;
  behind.pods = world.snapshot.pods;
  PodFacts& made = behind.pods.emplace_back(behind.pods.front());
  std::tie(made.name, made.index, made.incarnation) = std::tuple("job-6-2", 6, 2);
  plan = Decide(behind, world.now);
  EXPECT_THAT(plan.ask_pods, IsEmpty());
  EXPECT_EQ(plan.status.disruptions, 1u);
}

// 409, 5xx or kill -9 between the annotation and the status.
TEST(DisruptionsTest, ANoticeWhoseStatusWasNotWrittenIsCounted) {
  World world = Running(2);
  world.nodes.at("node-job-0-1").mark = Mark{"SpotInterruption", world.now + Seconds(100), false};
  const TrainingJobStatus before = world.snapshot.status;
  EXPECT_EQ(world.Reconcile().status.disruptions, 1u);
  world.snapshot.status = before;
  world.names.clear();
  EXPECT_EQ(world.Reconcile().status.disruptions, 1u);
  world.Reconcile();
  world.Wait(Seconds(98));
  world.Reconcile();
  world.Bury();
  world.nodes.erase("node-job-0-1");
  EXPECT_EQ(world.Reconcile().status.disruptions, 1u) << "once";
  EXPECT_EQ(world.snapshot.status.disruptions_by_reason.at("NodeMarked"), 1u);
}

TEST(DisruptionsTest, ANoticeThatWasNeverCountedIsCountedWhenItsPodHasEnded) {
  World world = Running(2);
  world.nodes.at("node-job-0-1").mark = Mark{"SpotInterruption", world.now + Seconds(100), false};
  const TrainingJobStatus before = world.snapshot.status;
  world.Reconcile();
  world.snapshot.status = before;
  world.names.clear();
  world.EndTrainer("job-0-1", 143);  // before any operator looked again
  world.Reconcile();
  EXPECT_EQ(world.snapshot.status.disruptions_by_reason.at("NodeMarked"), 1u);
  EXPECT_EQ(world.snapshot.status.failures, 0u);
}

TEST(DisruptionsTest, OnlyWhoseNodeIsGoneIsDeletedByForce) {  // pod-lifecycle 3.4
  World world = Running(1);
  PodFacts& pod = world.pods.at("job-0-1");
  pod.deleted = world.now;
  pod.grace = Seconds(25);
  world.Reconcile();
  world.Wait(Seconds(3600));  // a slow unmount, a core dump
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty());
  world.nodes.at("node-job-0-1").not_ready_since = world.now;
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty());
  EXPECT_EQ(world.Reconcile().requeue_at, world.now + Seconds(30))
      << "no watch tells that it is over";
  world.Wait(Seconds(30));
  const Plan plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].grace, Duration());
  EXPECT_EQ(plan.deletes[0].reason, reason::kStuck);
}

TEST(DisruptionsTest, APodThatSomebodysFinalizerHoldsIsForcedOnce) {
  World world = Running(1);
  PodFacts pod = world.pods.at("job-0-1");
  world.nodes.erase("node-job-0-1");
  pod.deleted = world.now - Seconds(600);
  pod.grace = Duration();  // what the API server writes of a forced delete
  world.pods["job-0-1"] = pod;
  world.Reconcile();
  for (int turn = 0; turn < 3; ++turn) {
    world.Wait(Seconds(60));
    world.pods["job-0-1"] = pod;  // it is held, whoever deletes it
    const Plan plan = world.Reconcile();
    EXPECT_THAT(plan.deletes, IsEmpty());
    EXPECT_THAT(plan.events, IsEmpty());
  }
}

}  // namespace
}  // namespace crowdsurf::controller
