#include <algorithm>

#include "base/manifest/fields.h"
#include "operator/core/job/validate_rules.h"

// The pod template stays opaque but for what would break a worker (docs/pod-lifecycle.md 2, 5, 8):
// which container trains, how it restarts, and names that are ours.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr std::string_view kReservedName = "crowdsurf";
constexpr std::string_view kReservedEnv = "CROWDSURF_";
constexpr std::string_view kReservedPath = "/run/crowdsurf";

// Whoever sees the agent's process reaches its files through /proc.
constexpr const char* kSharedProcesses[] = {"hostPID", "shareProcessNamespace"};

bool StartsWith(const json* value, std::string_view prefix) {
  return value != nullptr && value->is_string() &&
         value->get_ref<const std::string&>().compare(0, prefix.size(), prefix) == 0;
}

// Elements of a list under `name`, with their paths; nothing when it is no list.
template <class Visit>
void Each(const json& object, const std::string& path, const char* name, Visit visit) {
  const json* list = Member(&object, name);
  if (list == nullptr || !list->is_array()) return;
  for (size_t i = 0; i < list->size(); ++i) {
    visit((*list)[i], path + "." + name + "[" + std::to_string(i) + "]");
  }
}

void CheckStringList(const json& container, const std::string& path, const char* name,
                     Report& report) {
  const json* value = Member(&container, name);
  if (value == nullptr) return;
  if (!value->is_array()) {
    report.Add(path + "." + name, Show(*value) + " is not a list of text");
    return;
  }
  Each(container, path, name, [&](const json& element, const std::string& at) {
    if (!element.is_string()) {
      report.Add(at, Show(element) + " is not text; put it in quotes");
    }
  });
}

void CheckContainer(const json& container, const std::string& path, Report& report) {
  if (!container.is_object()) {
    report.Add(path, Show(container) + " is not a mapping");
    return;
  }
  // The names people get wrong; fields of newer Kubernetes pass.
  constexpr std::string_view kKnown[] = {"name",    "image",        "command",   "args",
                                         "env",     "volumeMounts", "resources", "workingDir",
                                         "envFrom", "ports"};
  for (const auto& [key, value] : container.items()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown)) continue;
    const std::string_view near = manifest::NearestName(key, kKnown);
    // These two are short: many valid fields that we do not know are near to them.
    if (!near.empty() && near != "name" && near != "ports") {
      report.Add(path + "." + key, "unknown field; did you mean " + std::string(near) + "?");
    }
  }
  const json* name = Member(&container, "name");
  if (name == nullptr) report.Add(path + ".name", "is missing");
  if (StartsWith(name, kReservedName)) {
    report.Add(path + ".name", "names that begin with crowdsurf are reserved");
  }
  CheckStringList(container, path, "command", report);
  CheckStringList(container, path, "args", report);
  Each(container, path, "env", [&](const json& variable, const std::string& at) {
    const json* variable_name = Member(&variable, "name");
    if (variable_name == nullptr) report.Add(at + ".name", "is missing");
    if (StartsWith(variable_name, kReservedEnv)) {
      report.Add(at + ".name",
                 Show(*variable_name) + ": names that begin with CROWDSURF_ are ours");
    }
    const json* value = Member(&variable, "value");
    if (value != nullptr && !value->is_string()) {
      report.Add(at + ".value", Show(*value) + " is not text; put it in quotes");
    }
  });
  Each(container, path, "volumeMounts", [&](const json& mount, const std::string& at) {
    if (StartsWith(Member(&mount, "name"), kReservedName)) {
      report.Add(at + ".name",
                 "names that begin with crowdsurf are reserved: the agent's keys lie "
                 "in such a volume");
    }
    if (StartsWith(Member(&mount, "mountPath"), kReservedPath)) {
      report.Add(at + ".mountPath", "/run/crowdsurf is reserved for the link to the agent");
    }
  });
}

}  // namespace

const json* TrainerContainer(const json& pod_template) {
  const json* containers = At(pod_template, "spec.containers");
  if (containers == nullptr || !containers->is_array() || containers->empty()) return nullptr;
  for (const json& container : *containers) {
    const json* name = Member(&container, "name");
    if (name != nullptr && *name == "trainer") return &container;
  }
  // A container that is alone needs no name.
  return containers->size() == 1 ? &containers->front() : nullptr;
}

void CheckTemplate(const json& pod_template, Report& report) {
  const std::string path = "spec.template.spec";
  const json* spec = At(pod_template, "spec");
  if (spec == nullptr || !spec->is_object()) {
    report.Add(path, spec == nullptr ? "is missing" : Show(*spec) + " is not a mapping");
    return;
  }
  const json* containers = Member(spec, "containers");
  if (containers == nullptr || !containers->is_array() || containers->empty()) {
    report.Add(path + ".containers", "needs a container that trains");
    return;
  }
  for (const char* list : {"containers", "initContainers"}) {
    Each(*spec, path, list, [&](const json& container, const std::string& at) {
      CheckContainer(container, at, report);
    });
  }
  for (const char* field : kSharedProcesses) {
    const json* shared = Member(spec, field);
    if (shared != nullptr && *shared == true) {
      report.Add(path + "." + field,
                 "lets the other containers read the agent's key: it must be "
                 "false");
    }
  }
  if (TrainerContainer(pod_template) == nullptr) {
    report.Add(path + ".containers", "of several containers one must be named trainer");
  }
  const json* restart = Member(spec, "restartPolicy");
  if (restart != nullptr && *restart != "Never" && *restart != "OnFailure") {
    report.Add(path + ".restartPolicy", Show(*restart) +
                                            " is not one of Never, OnFailure: a worker that always "
                                            "restarts never completes");
  }
  Each(*spec, path, "volumes", [&](const json& volume, const std::string& at) {
    if (StartsWith(Member(&volume, "name"), kReservedName)) {
      report.Add(at + ".name", "names that begin with crowdsurf are reserved");
    }
  });
}

}  // namespace crowdsurf::controller
