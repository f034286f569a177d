#include "operator/edge/local/yaml.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "operator/core/job/yaml_scalar.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxText = 1 << 20;   // an object of Kubernetes holds 1.5 MB
constexpr size_t kMaxNodes = 100'000;  // aliases of aliases grow without end otherwise
constexpr size_t kMaxKey = 1024;       // bytes; the longest name of Kubernetes has 317
// All paths together: each value has one, and as many as there may be with 300 bytes each are 30
// MB.
constexpr size_t kMaxPaths = size_t{32} << 20;
constexpr size_t kMaxDepth = 100;  // an alias may stand in what it names; a pod is ten deep

struct Reader {
  Manifest manifest;
  size_t nodes = 0;
  size_t depth = 0;
  size_t path_bytes = 0;
  std::string problem;  // the first; empty: none so far

  json Read(const YAML::Node& node, const std::string& path);
  json List(const YAML::Node& node, const std::string& path);
  json Map(const YAML::Node& node, const std::string& path);
  json Scalar(const YAML::Node& node);
  std::string Key(const YAML::Node& node);
  void Merge(const YAML::Node& node, const std::string& path, json& map);
  void Fail(const YAML::Node& node, const std::string& what) {
    if (problem.empty()) {
      problem = "line " + std::to_string(node.Mark().line + 1) + ": " + what;
    }
  }
};

// Plain ones as kubectl reads them (yaml_scalar.h).
json Reader::Scalar(const YAML::Node& node) {
  const std::string& tag = node.Tag();
  // Quoted, so it is text, whatever it looks like.
  if (tag == "!") return node.Scalar();
  StatusOr<json> value = tag.empty() || tag == "?" ? ReadPlainScalar(node.Scalar())
                                                   : ReadTaggedScalar(tag, node.Scalar());
  if (value.ok()) return std::move(*value);
  Fail(node, std::string(value.status().message()));
  return nullptr;
}

json Reader::Read(const YAML::Node& node, const std::string& path) {
  if (++nodes > kMaxNodes) Fail(node, "more than 100000 values");
  path_bytes += path.size();
  if (path_bytes > kMaxPaths) Fail(node, "too many values below keys that are so long");
  if (!problem.empty()) return nullptr;
  if (node.Mark().line >= 0) manifest.lines.emplace(path, node.Mark().line + 1);
  if (node.IsScalar()) return Scalar(node);
  if (depth == kMaxDepth) {
    Fail(node, "more than 100 levels deep");
    return nullptr;
  }
  ++depth;
  json out = node.IsSequence() ? List(node, path) : node.IsMap() ? Map(node, path) : json();
  --depth;
  return out;
}

json Reader::List(const YAML::Node& node, const std::string& path) {
  json list = json::array();
  for (size_t i = 0; i < node.size() && problem.empty(); ++i) {
    list.push_back(Read(node[i], path + "[" + std::to_string(i) + "]"));
  }
  return list;
}

// The key of an entry as kubectl has it in JSON; a key of a form that it writes otherwise is a
// mistake.
std::string Reader::Key(const YAML::Node& node) {
  if (!node.IsScalar()) {
    Fail(node, "a key that is not plain text");
    return {};
  }
  std::string key = node.Scalar();
  if (key.size() > kMaxKey) {
    Fail(node, "a key of more than " + std::to_string(kMaxKey) + " bytes");
    return {};
  }
  const json value = Scalar(node);
  if (!value.is_string() && problem.empty() && value.dump() != key) {
    Fail(node, "the key " + ShownText(key) + " is " + value.dump() + " in YAML 1.1; quote it");
  }
  return key;
}

// `<<`: the entries of another mapping, or of several of which the first that has a key counts.
void Reader::Merge(const YAML::Node& node, const std::string& path, json& map) {
  if (!node.IsMap() && !node.IsSequence()) return Fail(node, "<< is given no mapping");
  const size_t count = node.IsMap() ? 1 : node.size();
  for (size_t i = 0; i < count && problem.empty(); ++i) {
    const YAML::Node& source = node.IsMap() ? node : node[i];
    if (!source.IsMap()) return Fail(source, "<< is given no mapping");
    const json merged = Read(source, path);
    for (const auto& [key, value] : merged.items()) {
      if (!map.contains(key)) map[key] = value;
    }
  }
}

json Reader::Map(const YAML::Node& node, const std::string& path) {
  json map = json::object();
  std::set<std::string> own;  // those that are not merged in
  bool merges = false;
  for (const auto& entry : node) {
    if (!problem.empty()) return nullptr;
    if (entry.first.IsScalar() && entry.first.Scalar() == "<<" && entry.first.Tag() == "?") {
      // kubectl lets it overwrite what stands before it, and YAML does not.
      if (!own.empty()) Fail(entry.first, "<< has to be the first of its mapping");
      if (std::exchange(merges, true)) Fail(entry.first, "<< stands there twice");
      if (problem.empty()) Merge(entry.second, path, map);
      continue;
    }
    const std::string key = Key(entry.first);
    if (!own.insert(key).second) Fail(entry.first, ShownText(key) + " stands there twice");
    if (!problem.empty()) return nullptr;
    const std::string below = path.empty() ? key : path + "." + key;
    // The key's line, not the value's: a block may begin lines below its name.
    manifest.lines[below] = entry.first.Mark().line + 1;
    map[key] = Read(entry.second, below);
  }
  return map;
}

bool IsOtherKind(const YAML::Node& document) {
  if (!document.IsMap()) return false;
  const YAML::Node kind = document["kind"];
  return kind.IsDefined() && kind.IsScalar() && kind.Scalar() != "TrainingJob";
}

// What a file holds beside its job (a claim, a Secret) is the cluster's, not ours.
std::vector<YAML::Node> NotEmpty(const std::vector<YAML::Node>& documents) {
  std::vector<YAML::Node> filled, jobs;
  for (const YAML::Node& document : documents) {
    if (!document.IsDefined() || document.IsNull()) continue;
    filled.push_back(document);
    if (!IsOtherKind(document)) jobs.push_back(document);
  }
  return jobs.empty() ? filled : jobs;
}

}  // namespace

StatusOr<Manifest> ReadYaml(std::string_view text) {
  if (text.size() > kMaxText) return absl::InvalidArgumentError("longer than 1 MiB");
  try {
    const std::vector<YAML::Node> filled = NotEmpty(YAML::LoadAll(WithoutSurrogatePairs(text)));
    if (filled.empty()) return absl::InvalidArgumentError("line 1: there is no document in it");
    if (filled.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", filled[1].Mark().line + 1, ": a second document; one is wanted"));
    }
    Reader reader;
    reader.manifest.document = reader.Read(filled[0], "");
    if (!reader.problem.empty()) return absl::InvalidArgumentError(reader.problem);
    return std::move(reader.manifest);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", error.mark.line + 1, ": ", ShownText(error.msg)));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("line 1: ", error.what()));
  }
}

StatusOr<Manifest> ReadManifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  std::error_code error;  // a folder can be opened, and reads as if it were empty
  if (std::filesystem::is_directory(path, error))
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(EISDIR)));
  std::string text(kMaxText + 1, '\0');  // one more than may be: a device has no end
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  StatusOr<Manifest> manifest = ReadYaml(text);
  if (manifest.ok()) return manifest;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", manifest.status().message()));
}

}  // namespace crowdsurf::controller
