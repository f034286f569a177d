#include "operator/core/job/validate.h"

#include <algorithm>

#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"
#include "base/manifest/strategies.h"
#include "operator/core/job/validate_rules.h"

namespace crowdsurf::controller {
namespace {

using manifest::Field;
using manifest::FieldKind;
using manifest::FindField;
using manifest::MayChange;
using manifest::NearestName;
using manifest::SpecFields;
using manifest::TextDefault;
using nlohmann::json;

constexpr std::string_view kApiVersion = "crowdsurf.io/v1alpha1";
constexpr std::string_view kKind = "TrainingJob";

// RFC 1035, which names of Services follow: one of the job's is named after it.
bool IsLabel(std::string_view name) {
  const auto ok = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.front() < 'a' || name.front() > 'z' || !ok(name.back())) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return ok(c) || c == '-'; });
}

void CheckHeader(const json& document, Report& report) {
  constexpr std::string_view kTop[] = {"apiVersion", "kind", "metadata", "spec", "status"};
  for (const auto& [key, value] : document.items()) {
    if (std::find(std::begin(kTop), std::end(kTop), key) == std::end(kTop)) {
      const std::string_view near = NearestName(key, kTop);
      report.Add(key,
                 "unknown field" +
                     (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?"));
    }
  }
  const auto expect = [&](std::string_view name, std::string_view wanted) {
    const json* value = Member(&document, name);
    if (value == nullptr) {
      report.Add(std::string(name), "is missing; " + std::string(wanted) + " is what this is");
    } else if (*value != wanted) {
      report.Add(std::string(name), Show(*value) + " is not " + std::string(wanted));
    }
  };
  expect("apiVersion", kApiVersion);
  expect("kind", kKind);
  const json* name = At(document, "metadata.name");
  if (name == nullptr) {
    report.Add("metadata.name", "is missing");
  } else if (!name->is_string() || !IsLabel(name->get_ref<const std::string&>()) ||
             name->get_ref<const std::string&>().size() > kMaxJobName) {
    report.Add("metadata.name", Show(*name) +
                                    " is not a name: a-z, 0-9 and '-', a letter first, no '-' "
                                    "last, at most " +
                                    std::to_string(kMaxJobName));
  }
}

json* Ensure(json& object, std::string_view path) {
  json* at = &object;
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    json& next = (*at)[std::string(path.substr(0, end))];
    if (next.is_null()) next = json::object();
    at = &next;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

// True when the row belongs to a block that is only there when the user wrote it (rules,
// scheduling) or to the block of a strategy that is not chosen.
bool Optional(const json& spec, std::string_view path) {
  if (path.find("[]") != std::string_view::npos) return true;
  // Never null: WithDefaults puts a strategy in before it asks.
  const json* strategy = At(spec, "averaging.strategy");
  for (const auto& [block, owner] : manifest::kStrategyBlocks) {
    const std::string prefix = "averaging." + std::string(block);
    if (path.substr(0, prefix.size()) == prefix) return *strategy != owner;
  }
  return false;
}

void Fill(json& object, const char* name, std::string_view fallback) {
  if (!object.contains(name)) object[name] = fallback;
}

void RuleDefaults(json& spec) {
  json* failure = spec.contains("failurePolicy") ? &spec["failurePolicy"] : nullptr;
  if (failure == nullptr || !failure->contains("rules")) return;
  for (json& rule : (*failure)["rules"]) {
    Fill(rule, "action", TextDefault("failurePolicy.rules[].action"));
    if (rule.contains("onExitCodes")) {
      Fill(rule["onExitCodes"], "operator",
           TextDefault("failurePolicy.rules[].onExitCodes.operator"));
    }
    if (!rule.contains("onPodConditions")) continue;
    for (json& condition : rule["onPodConditions"]) {
      Fill(condition, "status", TextDefault("failurePolicy.rules[].onPodConditions[].status"));
    }
  }
}

// Null means absent, at every depth; the template's nulls are Kubernetes' own affair.
void DropNulls(json& value) {
  if (!value.is_object()) return;
  for (auto it = value.begin(); it != value.end();) {
    if (it->is_null()) {
      it = value.erase(it);
    } else {
      if (it.key() != "template") DropNulls(*it);
      ++it;
    }
  }
}

// Fields that are set and do not act.
void WarnOfIdleFields(const json& spec, Report& report) {
  for (const manifest::IdleField& idle : manifest::kIdleFields) {
    const std::string where = "averaging." + std::string(idle.where);
    const std::string is = TextAt(spec, where, manifest::TextDefaultOf(*FindField(where)));
    if (manifest::IndexOf(is, idle.is) < 0) continue;
    const std::string path = "averaging." + std::string(idle.field);
    const json* value = At(spec, path);
    if (value == nullptr || (!idle.value.empty() && *value != idle.value)) continue;
    report.Add("spec." + path, manifest::WhyIdle(idle, is));
  }
}

// Legal, but not what somebody who writes it expects.
void WarnOfStrategy(const json& spec, Report& report) {
  const std::string strategy =
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy"));
  const manifest::Needs* needs = manifest::FindNeeds(
      strategy, TextAt(spec, "averaging.gossip.mode", TextDefault("averaging.gossip.mode")));
  const json* dense = At(spec, "averaging.powerGossip.denseEvery");
  if (strategy == "PowerGossip" && dense != nullptr && *dense == 1) {
    report.Add("spec.averaging.powerGossip.denseEvery",
               "1 sends the whole vector at every step, which is gossip without factors");
  }
  if (needs == nullptr || needs->graph.empty()) return;
  const std::string path = "averaging." + std::string(needs->graph);
  const std::string graph = TextAt(spec, path);
  if (strategy == "A2CiD2" && graph == "Complete") {
    report.Add(
        "spec." + path,
        "on a Complete graph A2CiD2 is plain gossip with twice the memory; it pays on sparse "
        "graphs (Ring, Chain, a tree). If everybody can reach everybody, Moshpit mixes "
        "faster");
  }
  if (graph != "Hypercube" && graph != "Torus") return;
  const std::string stand_in = graph == "Hypercube" ? "Exponential" : "Ring";
  report.Add("spec." + path, graph +
                                 " fits only some numbers of workers; with another number, as "
                                 "after a preemption, the job goes on on " +
                                 stand_in);
}

}  // namespace

std::vector<Violation> Validate(const Manifest& manifest) {
  Report report(manifest);
  const json& document = manifest.document;
  if (!document.is_object()) {
    report.Add("document", "is not a TrainingJob: a mapping with apiVersion, kind, metadata, spec");
    return report.Take();
  }
  CheckHeader(document, report);
  const json* spec = Member(&document, "spec");
  // Every further rule would only repeat that there is no spec.
  if (spec == nullptr || !spec->is_object()) {
    report.Add("spec", spec == nullptr ? "is missing" : Show(*spec) + " is not a mapping");
    return report.Take();
  }
  CheckFields(*spec, report);
  CheckRules(*spec, report);
  const json* pod_template = Member(spec, "template");
  if (pod_template == nullptr) {
    report.Add("spec.template", "is missing; it says what a worker runs");
  } else {
    CheckTemplate(*pod_template, report);
  }
  return report.Take();
}

std::vector<Violation> Warnings(const Manifest& manifest) {
  Report report(manifest);
  if (const json* spec = At(manifest.document, "spec")) {
    WarnOfIdleFields(*spec, report);
    WarnOfStrategy(*spec, report);
  }
  const json* containers = At(manifest.document, "spec.template.spec.containers");
  if (containers != nullptr && containers->is_array() && containers->size() > 1) {
    for (size_t i = 0; i < containers->size(); ++i) {
      const json* name = Member(&(*containers)[i], "name");
      if (name == nullptr || *name == "trainer") continue;
      report.Add("spec.template.spec.containers[" + std::to_string(i) + "]",
                 Show(*name) + " is not the trainer; the worker ends with the trainer");
    }
  }
  return report.Take();
}

json WithDefaults(const json& spec) {
  json filled = spec;
  DropNulls(filled);
  // The strategy comes first, because it decides which blocks get defaults.
  if (At(filled, "averaging.strategy") == nullptr) {
    (*Ensure(filled, "averaging"))["strategy"] = TextDefault("averaging.strategy");
  }
  for (const Field& field : SpecFields()) {
    if (field.fallback.empty() || Optional(filled, field.path)) continue;
    const size_t dot = field.path.rfind('.');
    json* parent =
        dot == std::string_view::npos ? &filled : Ensure(filled, field.path.substr(0, dot));
    const std::string name(dot == std::string_view::npos ? field.path : field.path.substr(dot + 1));
    if (!parent->contains(name)) (*parent)[name] = json::parse(field.fallback);
  }
  json& interval = *Ensure(filled, "averaging.interval");
  if (interval.empty()) interval["steps"] = manifest::kDefaultIntervalSteps;
  // After the rows, of which one gives replicas its default.
  if (!filled.contains("maxReplicas")) filled["maxReplicas"] = filled["replicas"];
  RuleDefaults(filled);
  return filled;
}

}  // namespace crowdsurf::controller
