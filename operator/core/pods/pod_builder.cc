#include "operator/core/pods/pod_builder.h"

#include "operator/core/job/json_path.h"
#include "operator/core/job/validate.h"
#include "operator/core/pods/pod_parts.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "app.kubernetes.io/";

// Adds what the user has not set.
void Offer(json& object, const std::string& name, json value) {
  if (!object.contains(name)) object[name] = std::move(value);
}

json Owner(const TrainingJob& job) {
  return json::array({{{"apiVersion", "crowdsurf.io/v1alpha1"},
                       {"kind", "TrainingJob"},
                       {"name", job.name},
                       {"uid", job.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", true}}});
}

// Of everything that belongs to the job.
json CommonLabels(const TrainingJob& job) {
  return {{std::string(kPrefix) + "managed-by", "crowdsurf"},
          {std::string(kPrefix) + "part-of", "crowdsurf"},
          {std::string(kPrefix) + "instance", job.name},
          {std::string(kJobNameLabel), job.name},
          {std::string(kJobUidLabel), job.uid}};
}

json Workers(const TrainingJob& job) {  // a label selector
  return {{"matchLabels", {{std::string(kJobUidLabel), job.uid}}}};
}

json Guard(const TrainingJob& job, const char* version, const char* kind, json spec) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"metadata",
           {{"name", GuardName(job)},
            {"namespace", job.space},
            {"labels", CommonLabels(job)},
            {"ownerReferences", Owner(job)}}},
          {"spec", std::move(spec)}};
}

json Metadata(const TrainingJob& job, const CreatePod& create, const std::string& trust) {
  const json* own = Member(&job.spec.pod_template, "metadata");
  json metadata = own != nullptr && own->is_object() ? *own : json::object();
  metadata["name"] = create.name;
  metadata["namespace"] = job.space;
  metadata["ownerReferences"] = Owner(job);
  json& labels = metadata["labels"];
  if (!labels.is_object()) labels = json::object();
  Offer(labels, std::string(kPrefix) + "name", "crowdsurf-worker");
  Offer(labels, std::string(kPrefix) + "component", "worker");
  const json common = CommonLabels(job);
  for (const auto& [label, value] : common.items()) {
    // What the user says of the pod stands, but for the labels by which the operator finds it.
    if (!label.starts_with(kPrefix) || !labels.contains(label)) labels[label] = value;
  }
  labels[std::string(kIndexLabel)] = std::to_string(create.index);
  labels[std::string(kIncarnationLabel)] = std::to_string(create.incarnation);
  json& annotations = metadata["annotations"];
  if (!annotations.is_object()) annotations = json::object();
  annotations[std::string(kConfigAnnotation)] = create.config;
  annotations[std::string(kSeedsAnnotation)] = create.seeds;
  annotations[std::string(kCaAnnotation)] = trust;
  annotations[std::string(kCapacityAnnotation)] = JsonText({{"type", Name(create.capacity)}});
  // A worker's state is at its peers: an autoscaler may move it (docs/pod-lifecycle.md 8). Both
  // autoscalers are asked for the same.
  Offer(annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict",
        job.spec.do_not_disrupt ? "false" : "true");
  if (job.spec.do_not_disrupt) Offer(annotations, "karpenter.sh/do-not-disrupt", "true");
  return metadata;
}

// A trainer that hangs says nothing; its agent, which sees its steps, answers for it, and kubelet
// ends it. Three refusals, 20 s in all: an agent that is started again meanwhile is not a trainer
// that hangs. Before the agent answers for the first time (it may wait for its certificate, an hour
// at most) nothing is asked.
void WatchForHangs(json& trainer) {
  if (trainer.contains("livenessProbe") || trainer.contains("startupProbe")) return;
  const json get = {{"path", "/trainerz"}, {"port", kHttpPort}};
  trainer["startupProbe"] = {{"httpGet", get}, {"periodSeconds", 1}, {"failureThreshold", 3600}};
  trainer["livenessProbe"] = {{"httpGet", get},
                              {"periodSeconds", 10},
                              {"timeoutSeconds", 5},
                              {"failureThreshold", 3},
                              {"terminationGracePeriodSeconds", 5}};
}

// The container that trains learns where the link is, and is watched where the user does not.
void JoinTrainer(json& spec, const TrainingJob& job, const CreatePod& create) {
  const json* trainer = TrainerContainer(job.spec.pod_template);
  if (trainer == nullptr) return;  // Validate refuses such a template
  const std::string name = TextAt(*trainer, "name");
  for (json& container : spec["containers"]) {
    if (TextAt(container, "name") != name) continue;
    for (json& variable : WorkerEnvironment(job, create)) {
      container["env"].push_back(std::move(variable));
    }
    container["volumeMounts"].push_back({{"name", kLinkVolume}, {"mountPath", kLinkPath}});
    // Without a message of its own the trainer's is the end of its log: a traceback, at most 2 KiB.
    Offer(container, "terminationMessagePolicy", "FallbackToLogsOnError");
    WatchForHangs(container);
  }
}

// The operator gives a silent machine up, after looking at its Lease; Kubernetes' own eviction
// comes later, should no operator run. A controller manager that was cut off from a restarted API
// server called every node not ready for 43 s in our tests.
constexpr Duration kEvictionLag = Seconds(60);

void AddTolerations(json& spec, const TrainingJob& job, const CreatePod& create) {
  json& tolerations = spec["tolerations"];
  if (!tolerations.is_array()) tolerations = json::array();
  const double seconds = (job.spec.disruption.tolerated_unreachable + kEvictionLag).seconds();
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    bool has = false;
    for (const json& toleration : tolerations) has = has || TextAt(toleration, "key") == key;
    // The user's own patience with lost nodes stands.
    if (has) continue;
    tolerations.push_back({{"key", key},
                           {"operator", "Exists"},
                           {"effect", "NoExecute"},
                           {"tolerationSeconds", static_cast<int64_t>(seconds)}});
  }
  // Without these tolerations the taints keep the pod off spot nodes.
  if (create.capacity == CapacityType::kOnDemand) return;
  for (json& toleration : SpotTolerations()) tolerations.push_back(std::move(toleration));
}

}  // namespace

json BuildPod(const TrainingJob& job, const CreatePod& create, const PodBuilderOptions& options) {
  const json* own = Member(&job.spec.pod_template, "spec");
  json spec = own != nullptr && own->is_object() ? *own : json::object();
  JoinTrainer(spec, job, create);
  // First of all: the link is there before any other program of the pod starts.
  json agents = json::array({AgentContainer(job, create, options)});
  if (spec.contains("initContainers") && spec["initContainers"].is_array()) {
    for (json& container : spec["initContainers"]) {
      // One that fails is named with its words, as the trainer is.
      Offer(container, "terminationMessagePolicy", "FallbackToLogsOnError");
      agents.push_back(std::move(container));
    }
  }
  spec["initContainers"] = std::move(agents);
  for (json& volume : WorkerVolumes(job)) spec["volumes"].push_back(std::move(volume));
  AddTolerations(spec, job, create);
  AddPlacement(spec, create.capacity, options.spot);
  AddAvoidance(spec, create.avoid_nodes);
  PreferOthers(spec, create.other_nodes_first);
  Offer(spec, "restartPolicy", "Never");
  Offer(spec, "enableServiceLinks", false);
  Offer(spec, "subdomain", ServiceName(job));
  Offer(spec, "terminationGracePeriodSeconds",
        static_cast<int64_t>(job.spec.disruption.grace.seconds()));
  for (const char* field : {"priorityClassName", "schedulerName"}) {
    const json* value = Member(&job.spec.scheduling, field);
    if (value != nullptr) Offer(spec, field, *value);
  }
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", Metadata(job, create, options.trust)},
          {"spec", std::move(spec)}};
}

std::string ServiceName(const TrainingJob& job) { return job.name + "-peers"; }

json BuildService(const TrainingJob& job) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", ServiceName(job)},
            {"namespace", job.space},
            {"labels", CommonLabels(job)},
            {"ownerReferences", Owner(job)}}},
          {"spec",
           {{"clusterIP", "None"},
            // A worker is Ready once it trains, and must find its peers before.
            {"publishNotReadyAddresses", true},
            {"selector", {{std::string(kJobUidLabel), job.uid}}},
            {"ports",
             {{{"name", "peer"}, {"port", kPeerPort}},
              {{"name", "tensor"}, {"port", kTensorPort}},
              {{"name", "http"}, {"port", kHttpPort}}}}}}};
}

// The uid is part of the name: a job of this name that was deleted has left some behind.
json BuildSpecRevision(const TrainingJob& job, const json& spec) {
  const std::string name =
      job.name + "-" + job.uid.substr(0, 8) + "-" + std::to_string(job.generation);
  return {{"apiVersion", "apps/v1"},
          {"kind", "ControllerRevision"},
          {"metadata",
           {{"name", name},
            {"namespace", job.space},
            {"labels", CommonLabels(job)},
            {"ownerReferences", Owner(job)}}},
          {"data", {{"spec", spec}}},
          {"revision", job.generation}};
}

std::string GuardName(const TrainingJob& job) { return job.name + "-workers"; }

std::optional<json> BuildDisruptionBudget(const TrainingJob& job) {
  if (job.spec.max_unavailable.is_null()) return std::nullopt;
  return Guard(job, "policy/v1", "PodDisruptionBudget",
               {{"maxUnavailable", job.spec.max_unavailable},
                // A worker is Ready only while it trains: one that cannot must not hold a drain.
                {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
                {"selector", Workers(job)}});
}

std::optional<json> BuildNetworkPolicy(const TrainingJob& job) {
  if (!job.spec.managed_network) return std::nullopt;
  const auto port = [](int number) { return json{{"protocol", "TCP"}, {"port", number}}; };
  json peers = {{"ports", json::array({port(kPeerPort), port(kTensorPort)})}};
  // Peers in other clusters have addresses that nobody knows here.
  if (job.spec.bootstrap_peers.empty())
    peers["from"] = json::array({{{"podSelector", Workers(job)}}});
  const json http = {{"ports", json::array({port(kHttpPort)})}};
  return Guard(job, "networking.k8s.io/v1", "NetworkPolicy",
               {{"podSelector", Workers(job)},
                {"policyTypes", {"Ingress"}},
                {"ingress", json::array({peers, http})}});
}

std::string WorkerSelector(const TrainingJob& job) {
  return std::string(kJobUidLabel) + "=" + job.uid;
}

}  // namespace crowdsurf::controller
