// Rules of docs/pod-lifecycle.md that no other table or history of these tests has.
#include <gmock/gmock.h>

#include "operator/core/decide/classify.h"
#include "operator/core/job/json_path.h"
#include "operator/core/observe/observe.h"
#include "operator/core/pods/pod_builder.h"
#include "tests/unit/operator_core/decide/world.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LifecycleTest, AnAgentThatDiesBeforeTheTrainerStartsIsSeenThroughItsBackOff) {
  // pod-lifecycle 2.7: such a pod is Pending for ever, its sidecar waiting to be started again.
  const json pod = json::parse(R"({
    "metadata": {"name": "job-0-1", "namespace": "ml", "uid": "p",
      "labels": {"crowdsurf.io/worker-index": "0", "crowdsurf.io/incarnation": "1"},
      "ownerReferences": [{"kind": "TrainingJob", "name": "job", "uid": "u", "controller": true}]},
    "spec": {"nodeName": "n", "containers": [{"name": "trainer"}]},
    "status": {"phase": "Pending", "initContainerStatuses": [{"name": "crowdsurf-agent",
      "state": {"waiting": {"reason": "CrashLoopBackOff"}},
      "lastState": {"terminated": {"exitCode": 2, "message": "no such host"}}}]}})");
  const PodFacts facts = ObservePod(pod)->facts;
  ASSERT_TRUE(facts.agent.has_value());
  EXPECT_EQ(facts.agent->exit_code, 2);
  const NodeFacts node;
  const Verdict verdict = Classify(facts, &node, JudgeContext{});
  EXPECT_EQ(verdict.fate, Fate::kFailed);
  EXPECT_EQ(verdict.reason, reason::kAgentNeverStarted);
}

TEST(LifecycleTest, APodGoesOnceItsTrainerHasEndedWhateverElseRunsInIt) {  // pod-lifecycle 4.6
  World world = Running(2);
  world.EndTrainer("job-0-1", 1);
  ASSERT_EQ(world.pods.at("job-0-1").phase, PodPhase::kRunning) << "an injected container runs on";
  const Plan plan = world.Reconcile();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_EQ(plan.deletes[0].name, "job-0-1");
  EXPECT_EQ(plan.deletes[0].reason, reason::kEnded);
}

TEST(LifecycleTest, ACordonTellsNobodyAndReplacesNobody) {  // pod-lifecycle 4.7
  World world = Running(2);
  world.nodes[world.pods.at("job-0-1").node].mark = Mark{"Cordon", std::nullopt, true};
  const Plan plan = world.Reconcile();
  EXPECT_THAT(plan.annotations, IsEmpty());
  EXPECT_THAT(plan.creates, IsEmpty());
  EXPECT_THAT(plan.deletes, IsEmpty());
  EXPECT_EQ(plan.status.disruptions, 0u);
}

TEST(LifecycleTest, ABusErrorNamesSharedMemory) {  // pod-lifecycle 5.12
  World world = Running(2);
  world.EndTrainer("job-0-1", 135);
  const Plan plan = world.Reconcile();
  ASSERT_FALSE(plan.events.empty());
  EXPECT_THAT(plan.events[0].message, HasSubstr("/dev/shm"));
  world.EndTrainer("job-1-1", 134);
  EXPECT_THAT(world.Reconcile().events[0].message, Not(HasSubstr("/dev/shm")));
}

std::string Accepted(const Plan& plan) {
  return plan.status.Find(ConditionType::kAccepted)->message;
}

TEST(LifecycleTest, ALimitRangeThatThrottlesTheAgentIsNamedInACondition) {  // pod-lifecycle 5.11
  json pod = json::parse(R"({
    "metadata": {"name": "job-0-1", "namespace": "ml", "uid": "p", "annotations": {},
      "labels": {"crowdsurf.io/worker-index": "0", "crowdsurf.io/incarnation": "1"},
      "ownerReferences": [{"kind": "TrainingJob", "name": "job", "uid": "u", "controller": true}]},
    "spec": {"initContainers": [{"name": "crowdsurf-agent", "image": "agent:1",
      "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}})");
  const auto limit = [&](const char* said) {
    pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = said;
    return ObservePod(pod)->facts.agent_cpu_limit;
  };
  EXPECT_EQ(limit(""), "") << "our own, or the user's";
  EXPECT_EQ(limit("LimitRanger plugin set: cpu limit for container trainer; memory limit for init "
                  "container crowdsurf-agent"),
            "");
  EXPECT_EQ(limit("LimitRanger plugin set: cpu request for init container crowdsurf-agent"), "");
  EXPECT_EQ(limit("LimitRanger plugin set: memory limit for container trainer; cpu, memory limit "
                  "for init container crowdsurf-agent"),
            "500m");
  World world = Running(2);
  EXPECT_EQ(Accepted(world.Reconcile()), "the spec is valid");
  world.pods.at("job-1-1").agent_cpu_limit = "500m";
  const Plan plan = world.Reconcile();
  EXPECT_THAT(Accepted(plan), HasSubstr("LimitRange"));
  EXPECT_THAT(Accepted(plan), HasSubstr("500m"));
  EXPECT_TRUE(plan.status.Is(ConditionType::kAccepted));
  EXPECT_FALSE(world.Reconcile().status_changed) << "said once";
}

// pod-lifecycle 8.3: the agent's image is that of the job's start, whatever becomes of the
// operator.
class AgentImageTest : public ::testing::Test {
 protected:
  std::vector<std::string> Made(const Plan& plan) {
    std::vector<std::string> images;
    for (const CreatePod& create : plan.creates) {
      images.push_back(create.agent_image);
      world_.pods.at(create.name).agent_image = create.agent_image;
    }
    return images;
  }
  World world_{2};
};

TEST_F(AgentImageTest, AnUpgradeOfTheOperatorNeverMixesAgentsInOneJob) {
  world_.options.agent_image = "agent:1";
  Plan plan = world_.Reconcile();
  EXPECT_THAT(Made(plan), ElementsAre("agent:1", "agent:1"));
  EXPECT_EQ(plan.status.agent_image, "agent:1");
  world_.StartAll();
  world_.options.agent_image = "agent:2";
  world_.snapshot.status = StatusFromJson(StatusToJson(plan.status));
  world_.TakeNode("job-1-1");
  EXPECT_THAT(Made(world_.Reconcile()), ElementsAre("agent:1"));
}

TEST_F(AgentImageTest, AnOperatorThatDiedBeforeItsStatusLeavesTheImageInThePods) {
  world_.options.agent_image = "agent:1";
  const Plan lost = world_.Reconcile();
  EXPECT_THAT(Made(lost), ElementsAre("agent:1", "agent:1"));
  world_.snapshot.status.agent_image.clear();
  world_.pods.erase("job-1-1");
  world_.options.agent_image = "agent:2";
  EXPECT_THAT(Made(world_.Reconcile()), ElementsAre("agent:1"));
}

TEST_F(AgentImageTest, TheSpecsOwnWinsAndASuspendedJobStartsWithWhatIsAskedForThen) {
  world_.options.agent_image = "agent:1";
  world_.snapshot.job.spec.agent["image"] = "own:1";
  EXPECT_THAT(Made(world_.Reconcile()), ElementsAre("own:1", "own:1"));
  world_.StartAll();
  world_.snapshot.job.spec.suspend = true;
  EXPECT_EQ(world_.Reconcile().status.agent_image, "");
  world_.snapshot.job.spec.agent["image"] = "own:2";
  world_.snapshot.job.spec.suspend = false;
  EXPECT_THAT(Made(world_.Reconcile()), ElementsAre("own:2", "own:2")) << "corpses do not count";
}

TEST_F(AgentImageTest, ThePodHasIt) {
  CreatePod create{"job-0-1", 0, 1, CapacityType::kSpot, "", "{}", ""};
  create.agent_image = "agent:1";
  TrainingJob job = world_.snapshot.job;
  job.spec.pod_template = {{"spec", {{"containers", {{{"name", "trainer"}}}}}}};
  const json pod = BuildPod(job, create, {"agent:2", "https://signer:9443"});
  EXPECT_EQ(pod["spec"]["initContainers"][0]["image"], "agent:1");
  EXPECT_EQ(TextAt(pod, "metadata.name"), "job-0-1");
}

}  // namespace
}  // namespace crowdsurf::controller
