// The agent beside a trainer: its command, ports, volumes and probes, and how the pod is placed.
// Each test names the rule of docs/pod-lifecycle.md, or the page, that asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/job/validate.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::Not;

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";

TrainingJob Job(const json& more = json::object()) {
  TrainingJob job;
  job.name = "charlm";
  job.space = "ml";
  job.uid = "0a1b2c3d-4e5f";
  job.generation = 3;
  json spec = {{"target", {{"samples", 10}}},
               {"template", {{"spec", {{"containers", {{{"name", "trainer"}}}}}}}}};
  spec.merge_patch(more);
  job.spec = SpecFromJson(WithDefaults(spec));
  return job;
}

json Pod(const TrainingJob& job, CapacityType capacity = CapacityType::kSpot,
         SpotPlacement spot = SpotPlacement::kPreferred) {
  const CreatePod create{"charlm-3-2", 3, 2, capacity, "", "{}", ""};
  return BuildPod(job, create, {"crowdsurf/worker:1", "https://signer:9443", spot, "PEM"});
}

json Agent(const TrainingJob& job, CapacityType capacity = CapacityType::kSpot) {
  return Pod(job, capacity)["spec"]["initContainers"][0];
}

// The value after `flag`; "" when the command has none.
std::string Flag(const json& command, const char* flag) {
  const auto at = std::find(command.begin(), command.end(), flag);
  return at == command.end() || at + 1 == command.end() ? "" : (at + 1)->get<std::string>();
}

TEST(AgentContainerTest, ItsCommandSaysWhoItIsAndWhereItMeetsOthers) {  // docs/agent.md
  const json command = Agent(Job())["command"];
  EXPECT_EQ(command[0], "crowdsurf-worker");
  EXPECT_EQ(command[1], "run");
  EXPECT_EQ(Flag(command, "--job"), "charlm");
  EXPECT_EQ(Flag(command, "--worker"), "charlm-3-2");
  EXPECT_EQ(Flag(command, "--listen"), "::");
  EXPECT_EQ(Flag(command, "--advertise"), "$(CROWDSURF_POD_IP)");
  EXPECT_EQ(Flag(command, "--signer"), "https://signer:9443");
  EXPECT_EQ(Flag(command, "--capacity"), "Spot");
  EXPECT_EQ(Flag(Agent(Job(), CapacityType::kOnDemand)["command"], "--capacity"), "OnDemand");
  EXPECT_THAT(command, Contains("--wait-for-sigterm"));
  EXPECT_THAT(command, Not(Contains("--checkpoint-dir")));
  EXPECT_EQ(Flag(Agent(Job({{"agent", {{"hangAfterSeconds", 600}}}}))["command"], "--hang-after"),
            "600");
  EXPECT_EQ(Flag(Agent(Job({{"agent", {{"logLevel", "debug"}}}}))["command"], "--log-level"),
            "debug");
  EXPECT_THAT(command, Not(Contains("--tensor-tls")));
  const json in_the_clear = Agent(Job({{"tls", {{"mode", "Disabled"}}}}))["command"];
  EXPECT_EQ(Flag(in_the_clear, "--tensor-tls"), "Disabled");
  EXPECT_THAT(in_the_clear, Not(Contains("--tls"))) << "an old agent encrypts nothing then";
}

TEST(AgentContainerTest, ItListensWhereTheServiceAndThePortsOfThePageSay) {  // docs/agent.md
  const json agent = Agent(Job()), service = BuildService(Job());
  const std::map<std::string, int> ports = {{"peer", 7946}, {"tensor", 7947}, {"http", 7948}};
  for (const auto& [name, number] : ports) {
    EXPECT_EQ(Flag(agent["command"], ("--" + name + "-port").c_str()), std::to_string(number));
    EXPECT_THAT(agent["ports"], Contains(json{{"name", name}, {"containerPort", number}}));
    EXPECT_THAT(service["spec"]["ports"], Contains(json{{"name", name}, {"port", number}}));
  }
  EXPECT_EQ(agent["ports"].size(), 3u);
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["selector"], (json{{"crowdsurf.io/job-uid", "0a1b2c3d-4e5f"}}));
  EXPECT_EQ(service["metadata"]["name"], "charlm-peers");
  EXPECT_EQ(Pod(Job())["spec"]["subdomain"], "charlm-peers");
}

// Kubelet asks the trainer's agent: three refusals ten seconds apart end a trainer, and an agent
// may wait an hour for its certificate.
TEST(AgentContainerTest, ProbesAreAsPatientAsTheyHaveToBe) {
  const json pod = Pod(Job());
  const json& trainer = pod["spec"]["containers"][0];
  const json& starts = trainer["startupProbe"];
  EXPECT_EQ(starts["periodSeconds"].get<int>() * starts["failureThreshold"].get<int>(), 3600);
  EXPECT_EQ(starts["httpGet"], trainer["livenessProbe"]["httpGet"]);
  const json& lives = trainer["livenessProbe"];
  EXPECT_EQ(lives["failureThreshold"], 3);
  EXPECT_EQ(lives["periodSeconds"], 10);
  EXPECT_EQ(lives["timeoutSeconds"], 5)
      << "as long as the agent lets a request last: docs/agent.md";
  EXPECT_LT(lives["terminationGracePeriodSeconds"], pod["spec"]["terminationGracePeriodSeconds"])
      << "a trainer that hangs hands nothing in";
  EXPECT_EQ(Agent(Job())["readinessProbe"]["httpGet"],
            (json{{"path", "/readyz"}, {"port", "http"}}));
  EXPECT_LE(Agent(Job())["readinessProbe"]["periodSeconds"], 2);
}

TEST(AgentContainerTest, KeysAreOnMemoryAndFilesOfTheClusterCannotBeWritten) {  // pod-lifecycle 5.7
  const json pod = Pod(Job());
  for (const json& volume : pod["spec"]["volumes"]) {
    if (volume["name"] == "crowdsurf-own") {
      EXPECT_EQ(volume["emptyDir"], (json{{"medium", "Memory"}, {"sizeLimit", "1Mi"}}));
    }
    if (volume["name"] != "crowdsurf-cluster") continue;
    const json& token = volume["projected"]["sources"][0]["serviceAccountToken"];
    EXPECT_EQ(token["expirationSeconds"], 3600) << "kubelet takes no less than 600";
    EXPECT_EQ(token["path"], "token");
  }
  for (const json& mount : pod["spec"]["initContainers"][0]["volumeMounts"]) {
    EXPECT_EQ(mount.value("readOnly", false), mount["name"] == "crowdsurf-cluster") << mount;
  }
  EXPECT_EQ(Agent(Job())["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(Pod(Job())["spec"]["enableServiceLinks"], false);
}

// The link's pages are charged to the agent or to the trainer, so its limit has room for them.
TEST(AgentContainerTest, ItsMemoryHoldsTheLinkAndHalfAGibibyteMore) {  // pod-lifecycle 5.10
  const json resources = Agent(Job({{"agent", {{"sharedMemory", "2Gi"}}}}))["resources"];
  EXPECT_EQ(resources["limits"]["memory"], std::to_string((2048LL + 512) << 20));
  EXPECT_FALSE(resources["limits"].contains("cpu")) << "averaging is not throttled";
  const json own = {{"limits", {{"cpu", "2"}}}};
  EXPECT_EQ(Agent(Job({{"agent", {{"resources", own}}}}))["resources"], own);
  json guaranteed = {{"limits", {{"cpu", "1"}, {"memory", "1Gi"}}}};
  const auto with = [](const json& resources_of_trainer) {
    TrainingJob job = Job();
    job.spec.pod_template["spec"]["containers"][0]["resources"] = resources_of_trainer;
    return Agent(job)["resources"];
  };
  EXPECT_EQ(with(guaranteed)["requests"], with(guaranteed)["limits"]);
  guaranteed["requests"] = {{"cpu", "500m"}};
  EXPECT_NE(with(guaranteed)["requests"], with(guaranteed)["limits"]) << "asks for less";
  EXPECT_NE(with({{"limits", {{"cpu", "1"}}}})["requests"],
            with({{"limits", {{"cpu", "1"}}}})["limits"]);
}

TEST(AgentContainerTest, ACheckpointOnNoVolumeOfTheTrainersIsMountedAllTheSame) {
  TrainingJob job = Job({{"checkpoint", {{"volume", "data"}}}});
  EXPECT_EQ(Flag(Agent(job)["command"], "--checkpoint-dir"), "/checkpoint");
  EXPECT_THAT(Agent(job)["volumeMounts"],
              Contains(json{{"name", "data"}, {"mountPath", "/checkpoint"}}));
  job.spec.pod_template["spec"]["containers"][0]["volumeMounts"] = {
      {{"name", "other"}, {"mountPath", "/other"}},
      {{"name", "data"}, {"mountPath", "/data"}, {"subPath", "x"}}};
  EXPECT_EQ(Flag(Agent(job)["command"], "--checkpoint-dir"), "/data");
  EXPECT_THAT(Agent(job)["volumeMounts"],
              Contains(json{{"name", "data"}, {"mountPath", "/data"}, {"subPath", "x"}}));
}

// telepresenceio/telepresence#2756: a kubelet refuses a mount whose variable the container lacks.
TEST(AgentContainerTest, AFolderThatVariablesNameIsTheAgentsTooAndItWritesThere) {
  TrainingJob job = Job({{"checkpoint", {{"volume", "data"}}}});
  json& trainer = job.spec.pod_template["spec"]["containers"][0];
  const json team = {{"name", "TEAM"}, {"value", "a"}};
  const json folder = {{"name", "FOLDER"}, {"value", "$(TEAM)/$(POD)"}};
  const json pod = {{"name", "POD"},
                    {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}};
  trainer["env"] = json::array({team, {{"name", "KEY"}, {"value", "secret"}}, pod, folder});
  trainer["envFrom"] = {{{"secretRef", {{"name", "keys"}}}}};
  trainer["volumeMounts"] = {{{"name", "data"},
                              {"mountPath", "/data"},
                              {"subPathExpr", "$(FOLDER)"},
                              {"mountPropagation", "HostToContainer"},
                              {"readOnly", true}}};
  json agent = Agent(job);
  EXPECT_THAT(
      agent["volumeMounts"],
      Contains(json{{"name", "data"}, {"mountPath", "/data"}, {"subPathExpr", "$(FOLDER)"}}))
      << "the trainer only reads; the agent writes";
  EXPECT_EQ(agent["env"][0], team);
  EXPECT_EQ(agent["env"][1], pod);
  EXPECT_EQ(agent["env"][2], folder) << "in their order: a kubelet looks back only";
  EXPECT_THAT(agent["env"].dump(), Not(::testing::HasSubstr("secret")));
  EXPECT_FALSE(agent.contains("envFrom"));
  trainer["volumeMounts"][0]["subPathExpr"] = "$(FROM_A_MAP)/$(CROWDSURF_WORKER)";
  agent = Agent(job);
  EXPECT_EQ(agent["envFrom"], trainer["envFrom"]);
  EXPECT_EQ(agent["env"][0]["name"], "CROWDSURF_DIR");
}

TEST(PlacementTest, SpotIsPreferredOrRequiredAndAnyIsNeither) {
  const auto affinity = [](CapacityType capacity, SpotPlacement spot) {
    const json spec = Pod(Job(), capacity, spot)["spec"];
    return spec.contains("affinity") ? spec["affinity"]["nodeAffinity"] : json::object();
  };
  const json preferred = affinity(CapacityType::kSpot, SpotPlacement::kPreferred);
  EXPECT_FALSE(preferred.contains(kRequired)) << "a cluster without such labels works";
  ASSERT_FALSE(preferred[kPreferred].empty());
  for (const json& term : preferred[kPreferred]) {
    EXPECT_EQ(term["weight"], 100) << "the most that Kubernetes takes";
    EXPECT_EQ(term["preference"]["matchExpressions"][0]["operator"], "In");
  }
  const json required = affinity(CapacityType::kSpot, SpotPlacement::kRequired);
  EXPECT_FALSE(required.contains(kPreferred));
  EXPECT_EQ(required[kRequired]["nodeSelectorTerms"].size(), preferred[kPreferred].size());
  const json on_demand = affinity(CapacityType::kOnDemand, SpotPlacement::kPreferred);
  ASSERT_EQ(on_demand[kRequired]["nodeSelectorTerms"].size(), 1u) << "all of them at once";
  for (const json& none : on_demand[kRequired]["nodeSelectorTerms"][0]["matchExpressions"]) {
    EXPECT_EQ(none["operator"], "NotIn");
  }
  EXPECT_TRUE(affinity(CapacityType::kAny, SpotPlacement::kRequired).empty());
}

TEST(PlacementTest, TheUsersOwnPatienceWithLostNodesStands) {
  TrainingJob job = Job();
  job.spec.pod_template["spec"]["tolerations"] =
      json::array({{{"key", "node.kubernetes.io/not-ready"},
                    {"operator", "Exists"},
                    {"tolerationSeconds", 7}}});
  const json pod = Pod(job);
  int not_ready = 0, unreachable = 0;
  for (const json& one : pod["spec"]["tolerations"]) {
    not_ready += one["key"] == "node.kubernetes.io/not-ready";
    unreachable += one["key"] == "node.kubernetes.io/unreachable";
  }
  EXPECT_EQ(not_ready, 1);
  EXPECT_EQ(unreachable, 1);
}

TEST(PlacementTest, PriorityAndSchedulerAreTheTemplatesOrTheSpecs) {
  const json scheduling = {{"scheduling", {{"priorityClassName", "high"}}}};
  TrainingJob job = Job(scheduling);
  EXPECT_EQ(Pod(job)["spec"]["priorityClassName"], "high");
  EXPECT_FALSE(Pod(job)["spec"].contains("schedulerName"));
  job.spec.pod_template["spec"]["priorityClassName"] = "own";
  EXPECT_EQ(Pod(job)["spec"]["priorityClassName"], "own");
}

TEST(JobObjectsTest, ARevisionKeepsTheSpecOfItsGeneration) {  // docs/kubernetes.md
  const json spec = {{"replicas", 3}};
  const json revision = BuildSpecRevision(Job(), spec);
  EXPECT_EQ(revision["metadata"]["name"], "charlm-0a1b2c3d-3");
  EXPECT_EQ(revision["revision"], 3);
  EXPECT_EQ(revision["data"]["spec"], spec);
  EXPECT_EQ(revision["metadata"]["ownerReferences"][0]["uid"], "0a1b2c3d-4e5f");
  EXPECT_EQ(revision["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
}

}  // namespace
}  // namespace crowdsurf::controller
