#include "operator/core/job/crd.h"

#include <string>

#include "base/check.h"
#include "base/manifest/fields.h"
#include "operator/core/job/crd_rules.h"
#include "operator/core/job/failure_text.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {
namespace {

using manifest::Field;
using manifest::FieldKind;
using manifest::FindField;
using manifest::MayChange;
using manifest::SpecFields;
using manifest::SplitChoices;
using nlohmann::json;

json StringSchema(double most) {
  return {{"type", "string"}, {"maxLength", static_cast<int64_t>(most)}};
}

json ListOf(json item, const Field& field) {
  json list = {
      {"type", "array"}, {"items", std::move(item)}, {"maxItems", static_cast<int64_t>(field.max)}};
  if (field.min > 0) list["minItems"] = static_cast<int64_t>(field.min);
  return list;
}

json Choices(const Field& field) {
  json schema = {{"type", "string"}, {"enum", json::array()}};
  for (const std::string_view name : SplitChoices(field.choices)) schema["enum"].push_back(name);
  return schema;
}

// A value that the manifest can name and that this version lacks is refused in words, not as a
// typo.
void RefuseUnbuilt(const Field& field, json& schema) {
  if (field.built.empty() || field.built == field.choices) return;
  std::string rule = "self in [", words;
  for (const std::string_view name : SplitChoices(field.built)) {
    rule += (words.empty() ? "'" : ", '") + std::string(name) + "'";
    words += (words.empty() ? "" : ", ") + std::string(name);
  }
  schema["x-kubernetes-validations"].push_back(
      CrdRule(rule + "]", "is not built yet; this version has " + words));
}

json ScalarSchema(const Field& field) {
  switch (field.kind) {
    case FieldKind::kObject:
      return {{"type", "object"}, {"properties", json::object()}};
    case FieldKind::kList:
      return ListOf({{"type", "object"}, {"properties", json::object()}}, field);
    case FieldKind::kInteger:
      return {{"type", "integer"},
              {"format", "int64"},
              {"minimum", static_cast<int64_t>(field.min)},
              {"maximum", static_cast<int64_t>(field.max)}};
    case FieldKind::kNumber: {
      json schema = {{"type", "number"}, {"minimum", field.min}, {"maximum", field.max}};
      // The API server compares a value without a fraction with the minimum's integer part: 0 would
      // pass a minimum of 0.01.
      if (field.min > 0 && field.min < 1) {
        const std::string least = json(field.min).dump();
        schema["x-kubernetes-validations"].push_back(
            CrdRule("self >= " + least, "should be greater than or equal to " + least));
      }
      return schema;
    }
    case FieldKind::kBoolean:
      return {{"type", "boolean"}};
    case FieldKind::kString: {
      json schema = StringSchema(field.max);
      if (field.min > 0) schema["minLength"] = static_cast<int64_t>(field.min);
      return schema;
    }
    case FieldKind::kChoice:
      return Choices(field);
    case FieldKind::kChoiceList:
      return ListOf(Choices(field), field);
    case FieldKind::kStringList:
      return ListOf(StringSchema(253), field);
    case FieldKind::kIntegerList:
      return ListOf({{"type", "integer"}, {"minimum", 0}, {"maximum", 255}}, field);
    case FieldKind::kQuantity:
      return {
          {"anyOf", {{{"type", "integer"}}, {{"type", "string"}}}},
          // The pattern of Kubernetes' own schema for a resource.Quantity.
          {"pattern",
           R"(^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$)"},
          {"x-kubernetes-int-or-string", true}};
    case FieldKind::kOpaque:
      return {{"x-kubernetes-preserve-unknown-fields", true}, {"type", "object"}};
  }
  CHECK(false);
}

// The schema object that holds the children of `path` ("a.b[]" goes into the items of a list).
json& Parent(json& spec, std::string_view path, std::string& name) {
  json* at = &spec;
  while (true) {
    const size_t dot = path.find('.');
    if (dot == std::string_view::npos) break;
    std::string part(path.substr(0, dot));
    const bool list = part.ends_with("[]");
    if (list) part.resize(part.size() - 2);
    at = &(*at)["properties"][part];
    if (list) at = &(*at)["items"];
    path.remove_prefix(dot + 1);
  }
  name = std::string(path);
  return *at;
}

// What must not change, as transition rules on the object that holds the field: a rule on the field
// itself would not see it appear or go.
void Immutable(const Field& field, const std::string& name, json& parent) {
  const std::string same = "has(self." + name + ") == has(oldSelf." + name + ") && (!has(self." +
                           name + ") || self." + name + " == oldSelf." + name + ")";
  if (field.may_change == MayChange::kNo) {
    parent["x-kubernetes-validations"].push_back(CrdRule(same, name + " may not change"));
  } else if (field.may_change == MayChange::kOnlySuspended &&
             field.path.find('.') == std::string_view::npos) {
    // Only for fields of spec itself: a rule deeper down cannot see self.suspend.
    parent["x-kubernetes-validations"].push_back(
        CrdRule("(self.suspend && oldSelf.suspend) || (" + same + ")",
                name + " may change only while spec.suspend is true"));
  }
}

json SpecSchema(const json& pod_template) {
  json spec = {
      {"type", "object"}, {"properties", json::object()}, {"required", {"template", "target"}}};
  for (const Field& field : SpecFields()) {
    std::string name;
    json& parent = Parent(spec, field.path, name);
    json schema = field.path == "template" ? pod_template : ScalarSchema(field);
    // Not inside a list's items: what the server fills in there is a difference for ever to a tool
    // that compares with the file that it applied. The operator has the same defaults.
    const bool item = field.path.find("[]") != std::string_view::npos;
    if (!field.fallback.empty() && !item) schema["default"] = json::parse(field.fallback);
    RefuseUnbuilt(field, schema);
    parent["properties"][name] = std::move(schema);
    Immutable(field, name, parent);
  }
  json& properties = spec["properties"];
  // A transition rule needs an old value: without a block there would be none, and what may not
  // change could be set later.
  properties["averaging"]["default"] = json::object();
  properties["disruption"]["properties"]["podDisruptionBudget"]["properties"]["maxUnavailable"] = {
      {"anyOf", {{{"type", "integer"}}, {{"type", "string"}}}},
      {"x-kubernetes-int-or-string", true}};
  return spec;
}

// Bounds that keep the rules' cost finite, and the names that are ours.
void AddTemplateRules(json& pod_template) {
  json& spec = pod_template["properties"]["spec"];
  pod_template["required"] = {"spec"};
  spec["x-kubernetes-validations"].push_back(CrdRule(
      "!has(self.restartPolicy) || self.restartPolicy in ['Never', 'OnFailure']",
      "restartPolicy is Never or OnFailure: a worker that always restarts never completes"));
  for (const char* shared : {"hostPID", "shareProcessNamespace"}) {
    spec["x-kubernetes-validations"].push_back(
        CrdRule("!has(self." + std::string(shared) + ") || !self." + shared,
                std::string(shared) + " lets the other containers read the agent's key"));
  }
  spec["properties"]["restartPolicy"]["maxLength"] = 16;
  spec["properties"]["volumes"]["maxItems"] = 64;
  json& volume = spec["properties"]["volumes"]["items"];
  volume["properties"]["name"]["maxLength"] = 63;
  volume["x-kubernetes-validations"].push_back(CrdRule(
      "!self.name.startsWith('crowdsurf')", "names that begin with crowdsurf are reserved"));
  for (const char* list : {"containers", "initContainers"}) {
    json& containers = spec["properties"][list];
    containers["maxItems"] = 32;
    json& container = containers["items"];
    container["properties"]["name"]["maxLength"] = 63;
    container["x-kubernetes-validations"].push_back(CrdRule(
        "!self.name.startsWith('crowdsurf')", "names that begin with crowdsurf are reserved"));
    json& env = container["properties"]["env"];
    env["maxItems"] = 512;
    env["items"]["properties"]["name"]["maxLength"] = 256;
    env["items"]["x-kubernetes-validations"].push_back(CrdRule(
        "!self.name.startsWith('CROWDSURF_')", "names that begin with CROWDSURF_ are ours"));
    json& mounts = container["properties"]["volumeMounts"];
    mounts["maxItems"] = 64;
    mounts["items"]["properties"]["mountPath"]["maxLength"] = 1024;
    mounts["items"]["properties"]["name"]["maxLength"] = 63;
    mounts["items"]["x-kubernetes-validations"].push_back(
        CrdRule("!self.name.startsWith('crowdsurf')",
                "names that begin with crowdsurf are reserved: the agent's keys lie in such a "
                "volume"));
    mounts["items"]["x-kubernetes-validations"].push_back(
        CrdRule("!self.mountPath.startsWith('/run/crowdsurf')",
                "/run/crowdsurf is reserved for the link to the agent"));
  }
  spec["properties"]["containers"]["minItems"] = 1;
  spec["properties"]["containers"]["x-kubernetes-validations"].push_back(
      CrdRule("self.size() == 1 || self.exists_one(c, c.name == 'trainer')",
              "of several containers one must be named trainer"));
}

json Count() { return {{"type", "integer"}, {"format", "int64"}}; }
json Instant() { return {{"type", "string"}, {"format", "date-time"}}; }
json Text() { return {{"type", "string"}}; }

json Of(json properties) { return {{"type", "object"}, {"properties", std::move(properties)}}; }
json ListOfAny(json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
json Counts() { return {{"type", "object"}, {"additionalProperties", Count()}}; }

json ConditionsSchema() {
  json condition = Of({{"type", Text()},
                       {"status", {{"type", "string"}, {"enum", {"True", "False", "Unknown"}}}},
                       {"reason", Text()},
                       {"message", Text()},
                       {"observedGeneration", Count()},
                       {"lastTransitionTime", Instant()}});
  condition["required"] = {"type", "status", "reason", "message", "lastTransitionTime"};
  json list = ListOfAny(std::move(condition));
  list["x-kubernetes-list-type"] = "map";
  list["x-kubernetes-list-map-keys"] = {"type"};
  return list;
}

json DisruptionsSchema() {
  return Of(
      {{"total", Count()},
       {"byReason", Counts()},
       {"lastTime", Instant()},
       {"lastRefused",
        Of({{"worker", Text()}, {"node", Text()}, {"message", Text()}, {"time", Instant()}})}});
}

json FailuresSchema() {
  json counted = ListOfAny(Instant());
  // backoffLimit is 1000 at most, and the failure that exceeds it is counted as well.
  counted["maxItems"] = 1001;
  return Of({{"total", Count()},
             {"counted", std::move(counted)},
             {"last", Of({{"worker", Text()},
                          {"reason", Text()},
                          {"exitCode", Count()},
                          {"message", {{"type", "string"}, {"maxLength", kMaxFailureLine}}},
                          {"output", {{"type", "string"}, {"maxLength", 4096}}},
                          {"time", Instant()}})}});
}

json ProgressSchema() {
  return Of({{"samples", Count()},
             {"step", Count()},
             {"averaging", Count()},
             {"targetMet", {{"type", "boolean"}}},
             {"loss", {{"type", "number"}}},
             {"percent", Text()},
             {"samplesPerSecond", {{"type", "number"}}},
             {"goodput", {{"type", "number"}}},
             {"idealSamples", {{"type", "number"}}},
             {"measuredTime", Instant()}});
}

json StatusSchema() {
  const json retry =
      Of({{"failures", Count()}, {"disruptions", Count()}, {"notBefore", Instant()}});
  return Of({{"observedGeneration", Count()},
             {"acceptedGeneration", Count()},
             {"replicas", Count()},
             {"readyReplicas", Count()},
             {"spotReplicas", Count()},
             {"selector", Text()},
             {"state", Text()},
             {"agentImage", Text()},
             {"conditions", ConditionsSchema()},
             {"disruptions", DisruptionsSchema()},
             {"avoidedNodes", ListOfAny(Of({{"node", Text()}, {"until", Instant()}}))},
             {"failures", FailuresSchema()},
             {"incarnations", Counts()},
             {"incarnationFloor", Count()},
             {"retry", {{"type", "object"}, {"additionalProperties", retry}}},
             {"succeeded", ListOfAny(Count())},
             {"counted", ListOfAny(Text())},
             {"startTime", Instant()},
             {"runningTime", Instant()},
             {"targetTime", Instant()},
             {"spotShortSince", Instant()},
             {"completionTime", Instant()},
             {"progress", ProgressSchema()}});
}

// priority: above 0 the column shows only with `-o wide`.
json Column(const char* name, const char* type, const char* path, int priority = 0) {
  json column = {{"name", name}, {"type", type}, {"jsonPath", path}};
  if (priority > 0) column["priority"] = priority;
  return column;
}

}  // namespace

json Crd(json pod_template) {
  AddTemplateRules(pod_template);
  json spec = SpecSchema(pod_template);
  AddCrdRules(spec);
  const json root = {{"type", "object"},
                     {"required", {"spec"}},
                     {"properties",
                      {{"apiVersion", Text()},
                       {"kind", Text()},
                       {"metadata", {{"type", "object"}}},
                       {"spec", std::move(spec)},
                       {"status", StatusSchema()}}},
                     {"x-kubernetes-validations",
                      {CrdRule("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                               "metadata.name is a-z, 0-9 and '-', a letter first, no '-' last: a "
                               "Service of the job is named after it"),
                       CrdRule("self.metadata.name.size() <= " + std::to_string(kMaxJobName),
                               "metadata.name is longer than " + std::to_string(kMaxJobName) +
                                   " characters: pods are named <job>-<index>-<incarnation>")}}};
  const json version = {{"name", "v1alpha1"},
                        {"served", true},
                        {"storage", true},
                        {"schema", {{"openAPIV3Schema", root}}},
                        {"subresources",
                         {{"status", json::object()},
                          {"scale",
                           {{"specReplicasPath", ".spec.replicas"},
                            {"statusReplicasPath", ".status.replicas"},
                            {"labelSelectorPath", ".status.selector"}}}}},
                        {"additionalPrinterColumns",
                         {Column("State", "string", ".status.state"),
                          Column("Ready", "integer", ".status.readyReplicas"),
                          Column("Desired", "integer", ".spec.replicas"),
                          Column("Spot", "integer", ".status.spotReplicas"),
                          Column("Disruptions", "integer", ".status.disruptions.total"),
                          Column("Step", "integer", ".status.progress.step"),
                          Column("Progress", "string", ".status.progress.percent"),
                          Column("Age", "date", ".metadata.creationTimestamp"),
                          Column("Loss", "number", ".status.progress.loss", 1),
                          Column("Goodput", "number", ".status.progress.goodput", 1),
                          Column("Last Failure", "string", ".status.failures.last.message", 1),
                          Column("Min", "integer", ".spec.minReplicas", 1),
                          Column("Max", "integer", ".spec.maxReplicas", 1)}}};
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", "trainingjobs.crowdsurf.io"}}},
          {"spec",
           {{"group", "crowdsurf.io"},
            {"scope", "Namespaced"},
            {"versions", json::array({version})},
            {"names",
             {{"kind", "TrainingJob"},
              {"listKind", "TrainingJobList"},
              {"plural", "trainingjobs"},
              {"singular", "trainingjob"},
              {"shortNames", {"tj"}},
              {"categories", {"all"}}}}}}};
}

}  // namespace crowdsurf::controller
