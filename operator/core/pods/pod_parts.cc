#include "operator/core/pods/pod_parts.h"

#include <cstdlib>
#include <set>

#include "operator/core/job/json_path.h"
#include "operator/core/job/validate.h"
#include "operator/core/pods/node_marks.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr int64_t kTokenSeconds = 3600;  // kubelet renews at 80 %; the agent asks once a day
constexpr int kAgentUser = 65532;        // USER of our image
// The agent without what it shares with the trainer: programs, rounds in flight, DHT.
constexpr double kAgentBytes = 512.0 * 1024 * 1024;

// Every container asks for exactly what it may use, so the pod is Guaranteed without us.
bool Guaranteed(const json& pod_template) {
  const json* containers = At(pod_template, "spec.containers");
  if (containers == nullptr || !containers->is_array()) return false;
  for (const json& container : *containers) {
    for (const char* resource : {"cpu", "memory"}) {
      const json* limits = At(container, "resources.limits");
      const json* limit = Member(limits, resource);
      if (limit == nullptr) return false;
      const json* request = Member(At(container, "resources.requests"), resource);
      if (request != nullptr && *request != *limit) return false;
    }
  }
  return true;
}

// Explicit, so that no LimitRange decides for us; the link's pages are charged to whoever touches
// them first, often the agent (docs/pod-lifecycle.md 5).
json Resources(const TrainingJob& job) {
  const json* own = Member(&job.spec.agent, "resources");
  if (own != nullptr && own->is_object() && !own->empty()) return *own;
  const double shared = QuantityBytes(TextAt(job.spec.agent, "sharedMemory")).value_or(0);
  const std::string memory = std::to_string(static_cast<int64_t>(shared + kAgentBytes));
  if (Guaranteed(job.spec.pod_template)) {
    const json all = {{"cpu", "1"}, {"memory", memory}};
    return {{"requests", all}, {"limits", all}};
  }
  return {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}, {"limits", {{"memory", memory}}}};
}

json Security(const json& pod_template) {
  json security = {{"allowPrivilegeEscalation", false},
                   {"capabilities", {{"drop", {"ALL"}}}},
                   {"readOnlyRootFilesystem", true},
                   {"runAsNonRoot", true},
                   {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  // The image says who it is, unless the pod says otherwise (docs/pod-lifecycle.md 5).
  if (At(pod_template, "spec.securityContext.runAsUser") != nullptr) {
    security["runAsUser"] = kAgentUser;
  }
  return security;
}

json FieldVariable(const char* name, const char* field) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}};
}

// The kubelet writes such a file anew when the annotation changes: so news reaches a running pod.
json Annotated(const char* path, std::string_view annotation) {
  return {{"path", path},
          {"fieldRef", {{"fieldPath", "metadata.annotations['" + std::string(annotation) + "']"}}}};
}

// The variables that `text` names as $(NAME).
std::set<std::string> NamesIn(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find("$("); at != std::string::npos; at = text.find("$(", at + 2)) {
    const size_t end = text.find(')', at);
    if (end == std::string::npos) break;
    names.insert(text.substr(at + 2, end - at - 2));
  }
  return names;
}

// Those of the trainer's variables that the mount's folder is named by, in their order, with those
// that they name in turn: a kubelet expands only what stands before. One that no entry of env gives
// may come from envFrom, which is taken over then.
void AddVariablesOf(const json& mount, const json& trainer, json& container) {
  std::set<std::string> wanted = NamesIn(TextAt(mount, "subPathExpr"));
  if (wanted.empty()) return;
  std::vector<const json*> variables;
  Each(trainer, "env", [&](const json& variable) { variables.push_back(&variable); });
  std::vector<const json*> taken;
  for (auto it = variables.rbegin(); it != variables.rend(); ++it) {
    if (wanted.erase(TextAt(**it, "name")) == 0) continue;
    wanted.merge(NamesIn(TextAt(**it, "value")));
    taken.push_back(*it);
  }
  // First of all, so that ours stand after them.
  json env = json::array();
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) env.push_back(**it);
  for (json& own : container["env"]) {
    wanted.erase(TextAt(own, "name"));
    env.push_back(std::move(own));
  }
  container["env"] = std::move(env);
  const json* from = Member(&trainer, "envFrom");
  if (!wanted.empty() && from != nullptr) container["envFrom"] = *from;
}

// Where the trainer's container has the checkpoint volume: the agent has it at the same place, and
// writes there, also where the trainer only reads.
json CheckpointMount(const TrainingJob& job) {
  const std::string volume = TextAt(job.spec.checkpoint, "volume");
  if (volume.empty()) return nullptr;
  json mount = {{"name", volume}, {"mountPath", "/checkpoint"}};
  const json* trainer = TrainerContainer(job.spec.pod_template);
  const json* mounts = trainer == nullptr ? nullptr : Member(trainer, "volumeMounts");
  if (mounts == nullptr || !mounts->is_array()) return mount;
  for (const json& own : *mounts) {
    if (TextAt(own, "name") != volume) continue;
    for (const char* place : {"mountPath", "subPath", "subPathExpr"}) {
      if (const json* value = Member(&own, place)) mount[place] = *value;
    }
    break;
  }
  return mount;
}

json Command(const TrainingJob& job, const CreatePod& create, const PodBuilderOptions& options,
             const json& checkpoint) {
  json command = {"crowdsurf-worker",
                  "run",
                  "--job",
                  job.name,
                  "--worker",
                  create.name,
                  "--dir",
                  kLinkPath,
                  "--agent-dir",
                  kAgentPath,
                  "--cluster-dir",
                  kClusterPath,
                  "--listen",
                  "::",  // both families; the agent takes 0.0.0.0 where there is no IPv6
                  "--advertise",
                  "$(CROWDSURF_POD_IP)",
                  "--peer-port",
                  std::to_string(kPeerPort),
                  "--tensor-port",
                  std::to_string(kTensorPort),
                  "--http-port",
                  std::to_string(kHttpPort),
                  "--signer",
                  options.signer_url,
                  "--capacity",
                  create.capacity == CapacityType::kOnDemand ? "OnDemand" : "Spot",
                  "--termination-log",
                  "/dev/termination-log",
                  "--wait-for-sigterm"};
  if (!checkpoint.is_null()) {
    command.push_back("--checkpoint-dir");
    command.push_back(checkpoint["mountPath"]);
  }
  const std::string level = TextAt(job.spec.agent, "logLevel");
  if (!level.empty()) {
    command.push_back("--log-level");
    command.push_back(level);
  }
  if (const json* seconds = Member(&job.spec.agent, "hangAfterSeconds")) {
    command.push_back("--hang-after");
    command.push_back(JsonText(*seconds));
  }
  if (job.spec.tensors_in_clear) {
    // An older agent takes --tls as no TLS anywhere. It does not know this flag, and ends with 2.
    command.push_back("--tensor-tls");
    command.push_back("Disabled");
  }
  return command;
}

json AnyOf(const std::vector<SpotLabel>& labels) {
  json terms = json::array();
  for (const SpotLabel& label : labels) {
    terms.push_back({{"matchExpressions",
                      {{{"key", label.key}, {"operator", "In"}, {"values", {label.value}}}}}});
  }
  return terms;
}

}  // namespace

json WorkerEnvironment(const TrainingJob& job, const CreatePod& create) {
  return json::array({{{"name", "CROWDSURF_DIR"}, {"value", kLinkPath}},
                      {{"name", "CROWDSURF_JOB"}, {"value", job.name}},
                      {{"name", "CROWDSURF_WORKER"}, {"value", create.name}}});
}

json AgentContainer(const TrainingJob& job, const CreatePod& create,
                    const PodBuilderOptions& options) {
  const std::string own_image =
      create.agent_image.empty() ? TextAt(job.spec.agent, "image") : create.agent_image;
  const json checkpoint = CheckpointMount(job);
  json env = WorkerEnvironment(job, create);
  env.push_back(FieldVariable("CROWDSURF_POD_IP", "status.podIP"));
  json mounts =
      json::array({{{"name", kLinkVolume}, {"mountPath", kLinkPath}},
                   {{"name", kAgentVolume}, {"mountPath", kAgentPath}},
                   {{"name", kClusterVolume}, {"mountPath", kClusterPath}, {"readOnly", true}}});
  if (!checkpoint.is_null()) mounts.push_back(checkpoint);
  const auto probe = [](const char* path) {
    return json{{"httpGet", {{"path", path}, {"port", "http"}}}, {"periodSeconds", 2}};
  };
  json container = {
      {"name", kAgentContainer},
      {"image", own_image.empty() ? options.agent_image : own_image},
      {"imagePullPolicy", "IfNotPresent"},  // what has no tag would be pulled every time
      {"restartPolicy", "Always"},          // a native sidecar
      {"command", Command(job, create, options, checkpoint)},
      {"env", std::move(env)},
      {"ports",
       {{{"name", "peer"}, {"containerPort", kPeerPort}},
        {{"name", "tensor"}, {"containerPort", kTensorPort}},
        {{"name", "http"}, {"containerPort", kHttpPort}}}},
      {"lifecycle",
       {{"preStop", {{"exec", {{"command", {"crowdsurf-worker", "leave", "--dir", kLinkPath}}}}}}}},
      {"readinessProbe", probe("/readyz")},
      {"resources", Resources(job)},
      {"securityContext", Security(job.spec.pod_template)},
      {"volumeMounts", std::move(mounts)}};
  const json* trainer = TrainerContainer(job.spec.pod_template);
  if (!checkpoint.is_null() && trainer != nullptr) AddVariablesOf(checkpoint, *trainer, container);
  return container;
}

json WorkerVolumes(const TrainingJob& job) {
  json link = {{"medium", "Memory"}};
  const std::string size = TextAt(job.spec.agent, "sharedMemory");
  if (!size.empty()) link["sizeLimit"] = size;
  const json token = {
      {"serviceAccountToken",
       {{"audience", "crowdsurf"}, {"expirationSeconds", kTokenSeconds}, {"path", "token"}}}};
  const json told = {
      {"downwardAPI",
       {{"items",
         {Annotated("notice", kNoticeAnnotation), Annotated("config", kConfigAnnotation),
          Annotated("seeds", kSeedsAnnotation), Annotated("ca.pem", kCaAnnotation)}}}}};
  return json::array(
      {{{"name", kLinkVolume}, {"emptyDir", link}},
       {{"name", kAgentVolume}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", "1Mi"}}}},
       {{"name", kClusterVolume}, {"projected", {{"sources", {token, told}}}}}});
}

json SpotTolerations() {
  json tolerations = json::array();
  for (const SpotTaint& taint : SpotTaints()) {
    tolerations.push_back({{"key", taint.key},
                           {"operator", "Equal"},
                           {"value", taint.value},
                           {"effect", "NoSchedule"}});
  }
  return tolerations;
}

void AddPlacement(json& spec, CapacityType capacity, SpotPlacement spot) {
  if (capacity == CapacityType::kAny) return;
  json& node = spec["affinity"]["nodeAffinity"];
  const std::string required = "requiredDuringSchedulingIgnoredDuringExecution";
  if (capacity == CapacityType::kSpot && spot == SpotPlacement::kPreferred) {
    json& preferred = node["preferredDuringSchedulingIgnoredDuringExecution"];
    for (json& term : AnyOf(SpotLabels())) {
      preferred.push_back({{"weight", 100}, {"preference", std::move(term)}});
    }
    return;
  }
  // Terms are alternatives: each of the user's gets each of ours.
  json ours = json::array();
  if (capacity == CapacityType::kSpot) {
    ours = AnyOf(SpotLabels());
  } else {
    json none = json::array();
    for (const SpotLabel& label : SpotLabels()) {
      none.push_back({{"key", label.key}, {"operator", "NotIn"}, {"values", {label.value}}});
    }
    ours.push_back({{"matchExpressions", std::move(none)}});
  }
  // One empty term stands for a user who asks for nothing.
  json theirs = json::array({json::object()});
  if (node.contains(required) && node[required].contains("nodeSelectorTerms")) {
    theirs = node[required]["nodeSelectorTerms"];
  }
  json terms = json::array();
  for (const json& their : theirs) {
    for (const json& our : ours) {
      json term = their;
      for (const json& expression : our["matchExpressions"]) {
        term["matchExpressions"].push_back(expression);
      }
      terms.push_back(std::move(term));
    }
  }
  node[required]["nodeSelectorTerms"] = std::move(terms);
}

void AddAvoidance(json& spec, const std::vector<std::string>& nodes) {
  if (nodes.empty()) return;
  json& required =
      spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  json& terms = required["nodeSelectorTerms"];
  if (terms.empty()) terms = json::array({json::object()});
  for (json& term : terms) {  // they are alternatives
    // A requirement each: one on a node's field takes exactly one value.
    for (const std::string& node : nodes) {
      term["matchFields"].push_back(
          {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}});
    }
  }
}

void PreferOthers(json& spec, const std::vector<std::string>& nodes) {
  if (nodes.empty()) return;
  json term;
  for (const std::string& node : nodes) {
    term["matchFields"].push_back(
        {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}});
  }
  json& preferred =
      spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  preferred.push_back({{"weight", 100}, {"preference", std::move(term)}});
}

std::optional<double> QuantityBytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  const std::string unit = end;
  // Without "m": a thousandth is a quantity, and no number of bytes.
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},         {"k", 1e3},      {"M", 1e6},
      {"G", 1e9},      {"T", 1e12},     {"Ki", 1024},
      {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1099511627776.0}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) return number * factor;
  }
  return std::nullopt;
}

}  // namespace crowdsurf::controller
