#include "operator/edge/local/yaml.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxText = 1 << 20;   // an object of Kubernetes holds 1.5 MB
constexpr size_t kMaxNodes = 100'000;  // aliases of aliases grow without end otherwise
constexpr size_t kMaxDepth = 100;      // an alias may stand in what it names; a pod is ten deep

struct Reader {
  Manifest manifest;
  size_t nodes = 0;
  size_t depth = 0;
  std::string problem;  // the first; empty: none so far

  json Read(const YAML::Node& node, const std::string& path);
  json List(const YAML::Node& node, const std::string& path);
  json Map(const YAML::Node& node, const std::string& path);
  json Scalar(const YAML::Node& node);
  void Fail(const YAML::Node& node, const std::string& what) {
    if (problem.empty()) {
      problem = "line " + std::to_string(node.Mark().line + 1) + ": " + what;
    }
  }
};

bool OneOf(const std::string& text, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (text == name) return true;
  }
  return false;
}

// Roughly the core schema of YAML 1.2 (10.3.2). Of its numbers 0o7, 0x7, .inf and .nan stay text.
json Reader::Scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  // Quoted, so it is text, whatever it looks like.
  if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return text;
  if (OneOf(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (OneOf(text, {"true", "True", "TRUE"})) return true;
  if (OneOf(text, {"false", "False", "FALSE"})) return false;
  // from_chars takes no plus sign, and YAML does. Of two signs the second would be taken.
  if (text.size() > 1 && text[0] == '+' && text[1] == '-') return text;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (auto [at, error] = std::from_chars(begin, end, integer); error == std::errc() && at == end) {
    return integer;
  }
  double number = 0;
  // from_chars would also take "inf" and "nan", which JSON cannot say.
  if (text.find_first_not_of("+-.eE0123456789") == std::string::npos) {
    if (auto [at, error] = std::from_chars(begin, end, number); error == std::errc() && at == end) {
      return number;
    }
  }
  return text;
}

json Reader::Read(const YAML::Node& node, const std::string& path) {
  if (++nodes > kMaxNodes) Fail(node, "more than 100000 values");
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

json Reader::Map(const YAML::Node& node, const std::string& path) {
  json map = json::object();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      Fail(entry.first, "a key that is not plain text");
      return nullptr;
    }
    const std::string key = entry.first.Scalar();
    if (map.contains(key)) {
      Fail(entry.first, key + " stands there twice");
      return nullptr;
    }
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
    const std::vector<YAML::Node> filled = NotEmpty(YAML::LoadAll(std::string(text)));
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
    return absl::InvalidArgumentError(absl::StrCat("line ", error.mark.line + 1, ": ", error.msg));
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
