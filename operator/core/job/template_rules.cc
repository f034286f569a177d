#include <set>

#include "operator/core/job/template_schema.h"
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

// What the schema cannot say: which names are ours, and what a name has to be of. What is no
// mapping or no list is the schema's to refuse.
void CheckContainer(const json& container, const std::string& path,
                    const std::set<std::string>& volumes, Report& report) {
  if (StartsWith(Member(&container, "name"), kReservedName)) {
    report.Add(path + ".name", "names that begin with crowdsurf are reserved");
  }
  Each(container, path, "env", [&](const json& variable, const std::string& at) {
    const json* name = Member(&variable, "name");
    if (StartsWith(name, kReservedEnv)) {
      report.Add(at + ".name", Show(*name) + ": names that begin with CROWDSURF_ are ours");
    }
  });
  for (const char* list : {"volumeMounts", "volumeDevices"}) {
    Each(container, path, list, [&](const json& mount, const std::string& at) {
      if (StartsWith(Member(&mount, "mountPath"), kReservedPath)) {
        report.Add(at + ".mountPath", "/run/crowdsurf is reserved for the link to the agent");
      }
      const json* name = Member(&mount, "name");
      if (StartsWith(name, kReservedName)) {
        report.Add(at + ".name",
                   "names that begin with crowdsurf are reserved: the agent's keys lie in such a "
                   "volume");
      } else if (name != nullptr && name->is_string() &&
                 volumes.count(name->get<std::string>()) == 0) {
        report.Add(at + ".name", Show(*name) + " is not a volume of spec.template");
      }
    });
  }
}

std::set<std::string> VolumeNames(const json& spec) {
  std::set<std::string> names;
  Each(spec, "", "volumes",
       [&](const json& volume, const std::string&) { names.insert(TextAt(volume, "name")); });
  return names;
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
  CheckSchema(pod_template, PodTemplateSchema(), "spec.template", report);
  if (!pod_template.is_object()) return;
  const std::string path = "spec.template.spec";
  const json* spec = At(pod_template, "spec");
  if (spec == nullptr) {
    report.Add(path, "is missing");
    return;
  }
  if (!spec->is_object()) return;
  const json* containers = Member(spec, "containers");
  if (containers == nullptr || !containers->is_array()) return;
  if (containers->empty()) {
    report.Add(path + ".containers", "needs a container that trains");
    return;
  }
  const std::set<std::string> volumes = VolumeNames(*spec);
  for (const char* list : {"containers", "initContainers"}) {
    Each(*spec, path, list, [&](const json& container, const std::string& at) {
      CheckContainer(container, at, volumes, report);
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
  // A word that Kubernetes does not know is refused by the schema.
  if (restart != nullptr && *restart == "Always") {
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
