#include "operator/core/job/local_rules.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "operator/core/job/validate_rules.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr const char* kVolumeKinds = "emptyDir, hostPath, persistentVolumeClaim";

const json& ListAt(const json& object, std::string_view path) {
  static const json kEmpty = json::array();
  const json* list = At(object, path);
  return list != nullptr && list->is_array() ? *list : kEmpty;
}

// The volume that a mount names; nullptr: there is none, which Validate refuses.
const json* VolumeOf(const TrainingJobSpec& spec, const json& mount) {
  const std::string name = TextAt(mount, "name");
  for (const json& volume : ListAt(spec.pod_template, "spec.volumes")) {
    if (TextAt(volume, "name") == name) return &volume;
  }
  return nullptr;
}

bool LeavesTheVolume(const std::string& below) {
  return below.starts_with('/') || ("/" + below + "/").find("/../") != std::string::npos;
}

// Local mode acts on these of the template; `image` says nothing here and everybody has one.
constexpr std::string_view kPodFields[] = {"containers", "initContainers", "volumes"};
constexpr std::string_view kContainerFields[] = {
    "name", "image",   "imagePullPolicy", "command",    "args",
    "env",  "envFrom", "volumeMounts",    "workingDir", "resources"};
constexpr std::string_view kMountFields[] = {"name", "mountPath", "subPath"};

// True when it says what is so anyway.
bool IsNothing(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

// The names of `object` that are not `honored`, behind what is there already.
void NameOthers(const json& object, std::span<const std::string_view> honored,
                const std::string& path, std::string& out) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(honored.begin(), honored.end(), key) != honored.end() || IsNothing(value)) {
      continue;
    }
    out += (out.empty() ? "" : ", ") + path + key;
  }
}

// The fields of the template that have no effect on one machine.
std::string WithoutEffect(const json& pod_template, const json& container) {
  std::string out;
  json pod = *At(pod_template, "spec");
  if (TextAt(pod, "restartPolicy", "Never") == "Never") pod.erase("restartPolicy");
  NameOthers(pod, kPodFields, "", out);
  const std::string trainer = TextAt(container, "name") + ".";
  NameOthers(container, kContainerFields, trainer, out);
  for (const json& mount : ListAt(container, "volumeMounts")) {
    NameOthers(mount, kMountFields, "mount " + TextAt(mount, "mountPath") + ".", out);
  }
  for (const json& volume : ListAt(pod_template, "spec.volumes")) {
    const std::string name = "volume " + TextAt(volume, "name") + ".";
    if (const json* empty = Member(&volume, "emptyDir")) NameOthers(*empty, {}, name, out);
    constexpr std::string_view kClaim[] = {"claimName"};
    if (const json* claim = Member(&volume, "persistentVolumeClaim")) {
      NameOthers(*claim, kClaim, name, out);
    }
  }
  return out;
}

// Where the volume `name` lies on this machine; empty when there is none of a kind we have.
std::string VolumeFolder(const TrainingJobSpec& spec, const std::string& name,
                         const LocalPlaces& places) {
  if (name == TextAt(spec.checkpoint, "volume")) return places.checkpoint;
  for (const json& volume : ListAt(spec.pod_template, "spec.volumes")) {
    if (TextAt(volume, "name") != name) continue;
    if (const json* host = Member(&volume, "hostPath")) return TextAt(*host, "path");
    if (Member(&volume, "persistentVolumeClaim") != nullptr) return places.shared + "/" + name;
    return places.volumes + "/" + name;
  }
  return {};
}

// mountPath -> folder on this machine.
std::map<std::string, std::string> Mounts(const TrainingJobSpec& spec, const json& container,
                                          const LocalPlaces& places) {
  std::map<std::string, std::string> mounts;
  for (const json& mount : ListAt(container, "volumeMounts")) {
    std::string path = TextAt(mount, "mountPath");
    // A word may name the folder without the slash that the mount path ends with.
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::string folder = VolumeFolder(spec, TextAt(mount, "name"), places);
    const std::string below = TextAt(mount, "subPath");
    if (!folder.empty() && !path.empty())
      mounts[path] = below.empty() ? folder : folder + "/" + below;
  }
  return mounts;
}

// `text` with a mount path at its beginning, or after its first '=', replaced by the folder.
std::string Relocate(const std::string& text, const std::map<std::string, std::string>& mounts) {
  const size_t equals = text.find('=');
  for (const size_t at : {size_t{0}, equals == std::string::npos ? size_t{0} : equals + 1}) {
    // The longest mount path that fits: the map is sorted, so later ones are longer.
    for (auto it = mounts.rbegin(); it != mounts.rend(); ++it) {
      const std::string& path = it->first;
      if (text.compare(at, path.size(), path) != 0) continue;
      const size_t end = at + path.size();
      // /data must not match at the beginning of /database.
      if (end < text.size() && text[end] != '/') continue;
      return text.substr(0, at) + it->second + text.substr(end);
    }
  }
  return text;
}

}  // namespace

std::string ExpandVariables(const std::string& text,
                            const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    if (text[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    const size_t end = text[i + 1] == '(' ? text.find(')', i) : std::string::npos;
    const auto it =
        end == std::string::npos ? values.end() : values.find(text.substr(i + 2, end - i - 2));
    if (it == values.end()) {
      out += text[i];
      continue;
    }
    out += it->second;
    i = end;
  }
  return out;
}

std::vector<HostMount> HostMounts(const TrainingJobSpec& spec) {
  std::vector<HostMount> mounts;
  const json* container = TrainerContainer(spec.pod_template);
  CHECK(container != nullptr);
  for (const json& mount : ListAt(*container, "volumeMounts")) {
    const json* volume = VolumeOf(spec, mount);
    const json* host = Member(volume, "hostPath");
    // The checkpoint's volume lies in the state directory.
    if (host == nullptr || TextAt(mount, "name") == TextAt(spec.checkpoint, "volume")) continue;
    mounts.push_back({TextAt(*host, "path"), TextAt(*host, "type"), TextAt(mount, "subPath")});
  }
  return mounts;
}

namespace {

void CheckMounts(const json& container, const std::string& path, Report& report) {
  const json& mounts = ListAt(container, "volumeMounts");
  for (size_t i = 0; i < mounts.size(); ++i) {
    const std::string at = path + ".volumeMounts[" + std::to_string(i) + "].";
    if (Member(&mounts[i], "subPathExpr") != nullptr) {
      report.Add(at + "subPathExpr", "local mode has subPath only");
    }
    if (LeavesTheVolume(TextAt(mounts[i], "subPath"))) {
      report.Add(at + "subPath", "leads out of the volume");
    }
  }
}

void CheckVolumes(const json& pod_template, Report& report) {
  const json& volumes = ListAt(pod_template, "spec.volumes");
  for (size_t i = 0; i < volumes.size(); ++i) {
    const json* volume = &volumes[i];
    const std::string at = "spec.template.spec.volumes[" + std::to_string(i) + "]";
    const json* host = Member(volume, "hostPath");
    if (host != nullptr && !TextAt(*host, "path").starts_with('/')) {
      report.Add(at + ".hostPath.path", Show((*host)["path"]) + " does not begin with /");
    }
    if (Member(volume, "emptyDir") == nullptr && host == nullptr &&
        Member(volume, "persistentVolumeClaim") == nullptr) {
      report.Add(at, "local mode has " + std::string(kVolumeKinds) + " only");
    }
  }
}

}  // namespace

std::vector<Violation> CheckLocal(const Manifest& manifest) {
  Report report(manifest);
  const json& pod_template = *At(manifest.document, "spec.template");
  const json* container = TrainerContainer(pod_template);
  CHECK(container != nullptr);
  const json& containers = ListAt(pod_template, "spec.containers");
  size_t index = 0;
  while (index < containers.size() && &containers[index] != container) ++index;
  const std::string path = "spec.template.spec.containers[" + std::to_string(index) + "]";
  if (ListAt(*container, "command").empty()) {
    report.Add(path + ".command", "is missing; local mode has no image that would say what to run");
  }
  const json& variables = ListAt(*container, "env");
  for (size_t i = 0; i < variables.size(); ++i) {
    if (Member(&variables[i], "valueFrom") != nullptr) {
      report.Add(path + ".env[" + std::to_string(i) + "].valueFrom",
                 "local mode has plain values only");
    }
  }
  if (!ListAt(*container, "envFrom").empty()) {
    report.Add(path + ".envFrom", "local mode has plain values only");
  }
  CheckMounts(*container, path, report);
  CheckVolumes(pod_template, report);
  return report.Take();
}

std::vector<std::string> LocalRemarks(const TrainingJobSpec& spec) {
  std::vector<std::string> remarks;
  if (spec.tensors_in_clear) remarks.emplace_back(kInTheClear);
  const json* container = TrainerContainer(spec.pod_template);
  if (container == nullptr) return remarks;
  if (Member(container, "resources") != nullptr) {
    remarks.push_back("resources are not enforced: every worker shares this machine");
  }
  std::string others;
  for (const char* list : {"spec.initContainers", "spec.containers"}) {
    for (const json& other : ListAt(spec.pod_template, list)) {
      if (&other == container) continue;
      const std::string name = TextAt(other, "name");
      others += (others.empty() ? "" : ", ") + (name.empty() ? "one without a name" : name);
    }
  }
  if (!others.empty()) {
    remarks.push_back("of the template's containers only the trainer runs here, not: " + others);
  }
  const std::string silent = WithoutEffect(spec.pod_template, *container);
  if (!silent.empty()) remarks.push_back("no effect on one machine: " + silent);
  return remarks;
}

LocalCommand TrainerCommand(const TrainingJob& job, const std::string& worker,
                            const LocalPlaces& places, const std::vector<std::string>& inherited) {
  const json* container = TrainerContainer(job.spec.pod_template);
  CHECK(container != nullptr);
  LocalCommand command;
  const auto mounts = Mounts(job.spec, *container, places);
  for (const auto& [path, folder] : mounts) command.folders.push_back(folder);

  // Inherited variables of another worker would lead the trainer to that worker's agent.
  std::map<std::string, std::string> environment;
  for (const std::string& entry : inherited) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || entry.compare(0, 10, "CROWDSURF_") == 0) continue;
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const auto path = environment.find("PATH");
  environment["PATH"] = places.bin + (path == environment.end() ? ":/usr/local/bin:/usr/bin:/bin"
                                                                : ":" + path->second);
  std::map<std::string, std::string> declared = {
      {"CROWDSURF_DIR", places.link}, {"CROWDSURF_JOB", job.name}, {"CROWDSURF_WORKER", worker}};
  for (const json& variable : ListAt(*container, "env")) {
    // One after the other, as in Kubernetes: a value may use the variables before it.
    declared[TextAt(variable, "name")] =
        Relocate(ExpandVariables(TextAt(variable, "value"), declared), mounts);
  }
  for (const auto& [name, value] : declared) environment[name] = value;
  for (const auto& [name, value] : environment) command.environment.push_back(name + "=" + value);

  for (const char* part : {"command", "args"}) {
    for (const json& word : ListAt(*container, part)) {
      command.argv.push_back(Relocate(ExpandVariables(word.get<std::string>(), declared), mounts));
    }
  }
  command.directory = Relocate(TextAt(*container, "workingDir"), mounts);
  return command;
}

}  // namespace crowdsurf::controller
