// What is added to a user's pod, rule by rule; each test names the rule of docs/pod-lifecycle.md
// that asks for it (or, "operators", of what was learnt from other operators).
#include "operator/core/pods/pod_builder.h"

#include <gtest/gtest.h>

#include "operator/core/job/validate.h"
#include "operator/core/pods/node_marks.h"
#include "operator/core/pods/pod_parts.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

json Template() {
  return {{"metadata", {{"labels", {{"team", "a"}}}}},
          {"spec",
           {{"containers",
             {{{"name", "trainer"},
               {"image", "user/image"},
               {"env", {{{"name", "SEED"}, {"value", "1"}}}},
               {"volumeMounts", {{{"name", "data"}, {"mountPath", "/data"}}}}},
              {{"name", "logs"}, {"image", "user/logs"}}}},
            {"initContainers", {{{"name", "fetch"}, {"image", "user/fetch"}}}},
            {"volumes", {{{"name", "data"}, {"emptyDir", json::object()}}}}}}};
}

TrainingJob Job(json pod_template = Template(), const json& more = json::object()) {
  TrainingJob job;
  job.name = "charlm";
  job.space = "ml";
  job.uid = "u-1";
  json spec = {{"target", {{"samples", 10}}}, {"template", std::move(pod_template)}};
  spec.update(more);
  job.spec = SpecFromJson(WithDefaults(spec));
  return job;
}

json Pod(const TrainingJob& job, CapacityType capacity = CapacityType::kSpot,
         SpotPlacement spot = SpotPlacement::kPreferred) {
  const CreatePod create{"charlm-3-2", 3, 2, capacity, "10.0.0.1:7946\n", "{\"generation\":1}", ""};
  return BuildPod(job, create, {"crowdsurf/worker:1", "https://signer:9443", spot, "PEM"});
}

const json& Named(const json& list, const std::string& name) {
  for (const json& item : list) {
    if (item["name"] == name) return item;
  }
  static const json kNone;
  ADD_FAILURE() << "no " << name << " in " << list;
  return kNone;
}

bool Tolerates(const json& pod, const std::string& key) {
  for (const json& toleration : pod["spec"]["tolerations"]) {
    if (toleration["key"] == key) return true;
  }
  return false;
}

TEST(PodBuilder, WhatTheUserWroteIsKeptAndOnlyAddedTo) {  // pod-lifecycle 8.1
  const json pod = Pod(Job());
  json expected = Template()["spec"];
  for (const auto& [key, value] : expected.items()) {
    if (!value.is_array()) continue;
    for (const json& item : value) {
      const json& built = Named(pod["spec"][key], item["name"]);
      json merged = built;
      if (built.contains("env") && item.contains("env")) merged["env"] = item["env"];
      for (const auto& [field, want] : item.items()) {
        if (!want.is_array()) {
          EXPECT_EQ(built[field], want) << field;
          continue;
        }
        for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(built[field][i], want[i]) << field;
      }
    }
  }
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  // pod-lifecycle 4.5: the trainer is the container of that name.
  EXPECT_EQ(Named(pod["spec"]["containers"], "logs").size(), 2u) << "only the trainer is joined";
}

TEST(PodBuilder, NamesLabelsAndTheOwnerSayWhichWorkerThisIs) {  // pod-lifecycle 3.1
  const json metadata = Pod(Job())["metadata"];
  EXPECT_EQ(metadata["name"], "charlm-3-2");
  EXPECT_EQ(metadata["namespace"], "ml");
  EXPECT_EQ(metadata["labels"]["crowdsurf.io/worker-index"], "3");
  EXPECT_EQ(metadata["labels"]["crowdsurf.io/incarnation"], "2");
  EXPECT_EQ(metadata["labels"]["crowdsurf.io/job-uid"], "u-1");
  EXPECT_EQ(metadata["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(metadata["ownerReferences"][0]["controller"], true);
  EXPECT_EQ(metadata["annotations"]["crowdsurf.io/seeds"], "10.0.0.1:7946\n");  // pod-lifecycle 6.1
  EXPECT_FALSE(metadata.contains("finalizers")) << "pod-lifecycle 8.7: a write more for each pod";
  EXPECT_EQ(metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true")
      << "pod-lifecycle 8.9";
}

TEST(PodBuilder,
     TheAgentIsANativeSidecarThatLeavesInAnExecPreStop) {  // pod-lifecycle 1.2, 2.1, 2.3
  const json pod = Pod(Job());
  const json& agent = pod["spec"]["initContainers"][0];
  EXPECT_EQ(agent["name"], "crowdsurf-agent");
  EXPECT_EQ(agent["restartPolicy"], "Always");
  EXPECT_EQ(agent["image"], "crowdsurf/worker:1");
  EXPECT_EQ(agent["lifecycle"]["preStop"]["exec"]["command"],
            json({"crowdsurf-worker", "leave", "--dir", "/run/crowdsurf"}));
  EXPECT_FALSE(agent.contains("livenessProbe")) << "the supervisor restarts the agent";
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  // pod-lifecycle 1.3: a preStop of the trainer's would delay its SIGTERM.
  EXPECT_FALSE(Named(pod["spec"]["containers"], "trainer").contains("lifecycle"));
  EXPECT_EQ(pod["spec"]["initContainers"][1]["name"], "fetch");
}

// A hang leaves its socket open.
TEST(PodBuilder, ATrainerThatHangsIsEndedWhenItsAgentSaysSoUnlessTheUserWatchesIt) {
  const json pod = Pod(Job());
  const json& trainer = Named(pod["spec"]["containers"], "trainer");
  EXPECT_EQ(trainer["livenessProbe"]["httpGet"], (json{{"path", "/trainerz"}, {"port", 7948}}));
  EXPECT_FALSE(Named(pod["spec"]["containers"], "logs").contains("livenessProbe"));
  TrainingJob watched = Job();
  const json own = {{"exec", {{"command", {"alive"}}}}};
  for (json& container : watched.spec.pod_template["spec"]["containers"]) {
    container["livenessProbe"] = own;
  }
  EXPECT_EQ(Named(Pod(watched)["spec"]["containers"], "trainer")["livenessProbe"], own);
}

// pod-lifecycle 4.9
TEST(PodBuilder, TheEndOfATrainersLogIsItsMessageUnlessTheUserSaysOtherwise) {
  const auto policy = [](const TrainingJob& job, const char* container) {
    return Named(Pod(job)["spec"]["containers"], container).value("terminationMessagePolicy", "");
  };
  EXPECT_EQ(policy(Job(), "trainer"), "FallbackToLogsOnError");
  EXPECT_EQ(policy(Job(), "logs"), "");
  TrainingJob own = Job();
  own.spec.pod_template["spec"]["containers"][0]["terminationMessagePolicy"] = "File";
  EXPECT_EQ(policy(own, "trainer"), "File");
}

TEST(PodBuilder, AnImageInTheSpecWinsOverTheOperatorsDefault) {
  const json pod = Pod(Job(Template(), {{"agent", {{"image", "own:2"}}}}));
  EXPECT_EQ(pod["spec"]["initContainers"][0]["image"], "own:2");
}

TEST(PodBuilder, TheLinkIsOnMemoryWithTheSizeOfTheSpecAndKeysLiveApart) {  // pod-lifecycle 5.5, 5.7
  const json pod = Pod(Job(Template(), {{"agent", {{"sharedMemory", "3Gi"}}}}));
  const json& volumes = pod["spec"]["volumes"];
  EXPECT_EQ(Named(volumes, "crowdsurf-link")["emptyDir"],
            json({{"medium", "Memory"}, {"sizeLimit", "3Gi"}}));
  EXPECT_EQ(Named(volumes, "crowdsurf-own")["emptyDir"]["medium"], "Memory");
  const json& trainer = Named(pod["spec"]["containers"], "trainer");
  EXPECT_EQ(Named(trainer["volumeMounts"], "crowdsurf-link")["mountPath"], "/run/crowdsurf");
  for (const json& mount : trainer["volumeMounts"]) {
    EXPECT_NE(mount["name"], "crowdsurf-own");
    EXPECT_NE(mount["name"], "crowdsurf-cluster");
  }
}

TEST(PodBuilder, NoticesConfigSeedsTokenAndCaAreFilesOfTheAgentAlone) {
  // pod-lifecycle 1.1, 5.8, 6.1
  const json pod = Pod(Job());
  const json& sources = Named(pod["spec"]["volumes"], "crowdsurf-cluster")["projected"]["sources"];
  EXPECT_EQ(sources[0]["serviceAccountToken"]["audience"], "crowdsurf");
  EXPECT_EQ(sources[1]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"],
            "metadata.annotations['crowdsurf.io/notice']");
  const json& ca = sources[1]["downwardAPI"]["items"][3];
  EXPECT_EQ(ca["path"], "ca.pem");
  EXPECT_EQ(ca["fieldRef"]["fieldPath"], "metadata.annotations['crowdsurf.io/ca']");
  EXPECT_EQ(sources.size(), 2u) << "nothing that somebody could delete";
  EXPECT_EQ(pod["metadata"]["annotations"]["crowdsurf.io/ca"], "PEM");
  for (const json& mount : pod["spec"]["initContainers"][0]["volumeMounts"]) {
    EXPECT_FALSE(mount.contains("subPath")) << "kubelet never renews a subPath";
  }
}

TEST(PodBuilder, TheAgentsUserIsSetOnlyWhereThePodSetsOne) {  // pod-lifecycle 5.4, 5.9
  EXPECT_FALSE(Pod(Job())["spec"]["initContainers"][0]["securityContext"].contains("runAsUser"));
  // Pod Security "restricted", whatever the pod says or leaves out.
  const json security = Pod(Job())["spec"]["initContainers"][0]["securityContext"];
  EXPECT_EQ(security["runAsNonRoot"], true);
  EXPECT_EQ(security["allowPrivilegeEscalation"], false);
  EXPECT_EQ(security["capabilities"], (json{{"drop", {"ALL"}}}));
  EXPECT_EQ(security["seccompProfile"]["type"], "RuntimeDefault");
  EXPECT_FALSE(Pod(Job())["spec"].contains("securityContext")) << "the user's image may need root";
  json root = Template();
  root["spec"]["securityContext"] = {{"runAsUser", 0}};
  const json pod = Pod(Job(root));
  EXPECT_EQ(pod["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 65532);
  EXPECT_FALSE(pod["spec"]["securityContext"].contains("fsGroup"));
}

TEST(PodBuilder, TheAgentsResourcesAreExplicitAndEqualInAGuaranteedPod) {  // pod-lifecycle 5.10
  const json plain = Pod(Job())["spec"]["initContainers"][0]["resources"];
  EXPECT_TRUE(plain["requests"].contains("cpu") && plain["limits"].contains("memory"));
  json guaranteed = Template();
  for (json& container : guaranteed["spec"]["containers"]) {
    container["resources"]["limits"] = {{"cpu", "1"}, {"memory", "1Gi"}};
  }
  const json equal = Pod(Job(guaranteed))["spec"]["initContainers"][0]["resources"];
  EXPECT_EQ(equal["requests"], equal["limits"]);
}

TEST(PodBuilder, SpotTaintsAreToleratedExactlyAndLostNodesShortly) {  // operators 2.3, rules 3, 4
  const json pod = Pod(Job());
  EXPECT_TRUE(Tolerates(pod, "cloud.google.com/gke-spot"));
  EXPECT_FALSE(Tolerates(pod, "karpenter.sh/disrupted"));
  for (const json& toleration : pod["spec"]["tolerations"]) {
    EXPECT_TRUE(toleration.contains("key"));
    if (toleration["operator"] != "Exists") continue;
    EXPECT_EQ(toleration["tolerationSeconds"], 90);  // the operator comes first
  }
  EXPECT_FALSE(Tolerates(Pod(Job(), CapacityType::kOnDemand), "cloud.google.com/gke-spot"));
}

TEST(PodBuilder, OnDemandWorkersStayOffSpotNodesAndKeepTheUsersOwnTerms) {
  json own = Template();
  own["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
     ["nodeSelectorTerms"] = {{{"matchExpressions", {{{"key", "gpu"}, {"operator", "Exists"}}}}}};
  const json pod = Pod(Job(own), CapacityType::kOnDemand);
  const json& terms = pod["spec"]["affinity"]["nodeAffinity"]
                         ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 1u);
  EXPECT_EQ(terms[0]["matchExpressions"].size(), 1 + SpotLabels().size());
  const json spot = Pod(Job(own), CapacityType::kSpot, SpotPlacement::kRequired);
  EXPECT_EQ(spot["spec"]["affinity"]["nodeAffinity"]
                ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                    .size(),
            SpotLabels().size());
}

TEST(PodBuilder, NodesThatJustDiedAreAvoidedBesideWhatIsAskedForAlready) {
  const char required[] = "requiredDuringSchedulingIgnoredDuringExecution";
  const json gpu = {{"key", "gpu"}, {"operator", "Exists"}};
  json spec;
  spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"] = {{{"matchExpressions", {gpu}}},
                                                                     {{"matchExpressions", {gpu}}}};
  const json before = spec;
  AddAvoidance(spec, {});
  EXPECT_EQ(spec, before);
  AddAvoidance(spec, {"node-1", "node-2"});
  for (const json& term : spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]) {
    EXPECT_EQ(term["matchExpressions"], json::array({gpu}));
    ASSERT_EQ(term["matchFields"].size(), 2u) << "the API takes one name each";
    EXPECT_EQ(term["matchFields"][0]["values"], json::array({"node-1"}));
    EXPECT_EQ(term["matchFields"][1]["values"], json::array({"node-2"}));
    EXPECT_EQ(term["matchFields"][0]["operator"], "NotIn");
  }
  json plain = json::object();
  AddAvoidance(plain, {"node-1"});
  EXPECT_EQ(plain["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"].size(), 1u);
}

TEST(PodBuilder, NodesThatRefusedAWorkerAreTakenWhereNoOtherFits) {
  CreatePod create{"charlm-3-2", 3, 2, CapacityType::kAny, "", "{}", ""};
  create.other_nodes_first = {"node-1", "node-2"};
  const json pod = BuildPod(Job(), create, {"crowdsurf/worker:1", "https://signer:9443"});
  const json& affinity = pod["spec"]["affinity"]["nodeAffinity"];
  EXPECT_FALSE(affinity.contains("requiredDuringSchedulingIgnoredDuringExecution"));
  const json& terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(terms.size(), 1u);
  EXPECT_EQ(terms[0]["weight"], 100);
  EXPECT_EQ(terms[0]["preference"]["matchFields"].size(), 2u) << "the API takes one name each";
  EXPECT_EQ(terms[0]["preference"]["matchFields"][1]["values"], json::array({"node-2"}));
  EXPECT_FALSE(Pod(Job(), CapacityType::kAny)["spec"].contains("affinity"));
}

TEST(PodBuilder, BothAutoscalersAreAskedForTheSame) {  // pod-lifecycle 8.9
  const json asked = {{"disruption", {{"doNotDisrupt", true}}}};
  const json notes = Pod(Job(Template(), asked))["metadata"]["annotations"];
  EXPECT_EQ(notes["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false");
  EXPECT_EQ(notes["karpenter.sh/do-not-disrupt"], "true");
}

// argoproj/argo-cd#5792: tools find what they manage by these.
TEST(PodBuilder, LabelsOfTheTemplateAreKept) {  // pod-lifecycle 8.1
  json own = Template();
  own["metadata"]["labels"] = {{"app.kubernetes.io/instance", "argo"},
                               {"app.kubernetes.io/part-of", "suite"},
                               {"app.kubernetes.io/managed-by", "helm"},
                               {"crowdsurf.io/job-uid", "another"}};
  const json labels = Pod(Job(own))["metadata"]["labels"];
  EXPECT_EQ(labels["app.kubernetes.io/instance"], "argo");
  EXPECT_EQ(labels["app.kubernetes.io/part-of"], "suite");
  EXPECT_EQ(labels["app.kubernetes.io/managed-by"], "helm");
  EXPECT_EQ(labels["crowdsurf.io/job-uid"], "u-1") << "the operator finds its pods by it";
  EXPECT_EQ(Pod(Job())["metadata"]["labels"]["app.kubernetes.io/instance"], "charlm");
}

TEST(PodBuilder, AnInitContainerThatFailsLeavesItsWordsToo) {  // pod-lifecycle 4.9
  const json pod = Pod(Job());
  EXPECT_EQ(pod["spec"]["initContainers"][1]["terminationMessagePolicy"], "FallbackToLogsOnError");
  json own = Template();
  own["spec"]["initContainers"][0]["terminationMessagePolicy"] = "File";
  EXPECT_EQ(Pod(Job(own))["spec"]["initContainers"][1]["terminationMessagePolicy"], "File");
}

TEST(PodBuilder, TheCheckpointVolumeIsTheAgentsTooAtTheTrainersPath) {  // pod-lifecycle 8.4
  const json pod = Pod(Job(Template(), {{"checkpoint", {{"volume", "data"}}}}));
  const json& agent = pod["spec"]["initContainers"][0];
  EXPECT_EQ(Named(agent["volumeMounts"], "data")["mountPath"], "/data");
  const auto& command = agent["command"];
  const auto at = std::find(command.begin(), command.end(), "--checkpoint-dir");
  EXPECT_EQ(pod["spec"]["volumes"].dump().find("PersistentVolumeClaim"), std::string::npos)
      << "no worker has a claim of its own";
  ASSERT_NE(at, command.end());
  EXPECT_EQ(*(at + 1), "/data");
}

TEST(PodBuilder, GraceIsTheTemplatesOrTheJobs) {  // operators 2.3, rule 5
  EXPECT_EQ(Pod(Job())["spec"]["terminationGracePeriodSeconds"], 25);
  json own = Template();
  own["spec"]["terminationGracePeriodSeconds"] = 7;
  EXPECT_EQ(Pod(Job(own))["spec"]["terminationGracePeriodSeconds"], 7);
}

TEST(PodBuilder, AGuardIsMadeWhereTheSpecAsksForOne) {  // pod-lifecycle 8.10
  EXPECT_FALSE(BuildDisruptionBudget(Job()));
  EXPECT_FALSE(BuildNetworkPolicy(Job()));
  const json workers = {{"matchLabels", {{"crowdsurf.io/job-uid", "u-1"}}}};
  json asked = {{"disruption", {{"podDisruptionBudget", {{"maxUnavailable", "25%"}}}}},
                {"network", {{"policy", "Managed"}}}};
  const auto budget = BuildDisruptionBudget(Job(Template(), asked));
  ASSERT_TRUE(budget);
  EXPECT_EQ((*budget)["metadata"]["name"], "charlm-workers");
  EXPECT_EQ((*budget)["spec"], (json{{"maxUnavailable", "25%"},
                                     {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
                                     {"selector", workers}}))
      << "a worker that is not Ready holds no drain";
  const auto policy = BuildNetworkPolicy(Job(Template(), asked));
  ASSERT_TRUE(policy);
  EXPECT_EQ((*policy)["spec"]["podSelector"], workers);
  EXPECT_EQ((*policy)["spec"]["policyTypes"], json::array({"Ingress"}));
  const json& ingress = (*policy)["spec"]["ingress"];
  ASSERT_EQ(ingress.size(), 2u);
  EXPECT_EQ(ingress[0]["from"], json::array({{{"podSelector", workers}}}));
  EXPECT_EQ(ingress[0]["ports"][0]["port"], kPeerPort);
  EXPECT_EQ(ingress[0]["ports"][1]["port"], kTensorPort);
  EXPECT_FALSE(ingress[1].contains("from"));
  EXPECT_EQ(ingress[1]["ports"][0]["port"], kHttpPort);
  // Peers in other clusters have addresses that nobody knows here.
  asked["discovery"] = {{"bootstrapPeers", {"b.example:7946"}}};
  EXPECT_FALSE(
      (*BuildNetworkPolicy(Job(Template(), asked)))["spec"]["ingress"][0].contains("from"));
}

TEST(PodBuilder, QuantitiesAreBytes) {
  EXPECT_EQ(QuantityBytes("2Gi"), 2147483648.0);
  EXPECT_EQ(QuantityBytes("1.5M"), 1.5e6);
  EXPECT_EQ(QuantityBytes("12"), 12.0);
  EXPECT_EQ(QuantityBytes("many"), std::nullopt);
  EXPECT_EQ(QuantityBytes("1Xi"), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::controller
