#include "operator/core/job/template_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/manifest/fields.h"

namespace crowdsurf::controller {

extern const std::string_view kPodTemplateSchemaText;  // made by operator/CMakeLists.txt

namespace {

using nlohmann::json;

// Shorter names (os, tty, name) are near to many a word that means something else.
constexpr size_t kShortestHint = 5;

bool IsWhole(const json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

std::string Unknown(const std::string& key, const json& known) {
  std::vector<std::string_view> names;
  for (const auto& [name, schema] : known.items()) {
    if (name.size() >= kShortestHint || name == "env" || name == "args") names.push_back(name);
  }
  const std::string_view near = manifest::NearestName(key, names);
  return near.empty() ? std::string() : "; did you mean " + std::string(near) + "?";
}

void CheckMembers(const json& object, const json& schema, const std::string& path, Report& report) {
  static const json kNone = json::object();
  const json* own = Member(&schema, "properties");
  const json& known = own == nullptr ? kNone : *own;
  const json* others = Member(&schema, "additionalProperties");
  const bool open = schema.value("x-kubernetes-preserve-unknown-fields", false);
  for (const auto& [key, value] : object.items()) {
    const std::string at = path + "." + key;
    if (const json* field = Member(&known, key)) {
      if (!value.is_null()) CheckSchema(value, *field, at, report);
    } else if (others != nullptr) {
      CheckSchema(value, *others, at, report);
    } else {
      const std::string near = Unknown(key, known);
      // Fields of a newer Kubernetes pass where the CRD lets them pass; a slip of the pen does not.
      if (!open || !near.empty()) report.Add(at, "unknown field" + near);
    }
  }
  for (const json& name : schema.value("required", json::array())) {
    const auto& field = name.get_ref<const std::string&>();
    if (Member(&object, field) == nullptr) report.Add(path + "." + field, "is missing");
  }
}

// The API server refuses a second item with the same keys. Pre: both are objects.
std::string KeysOf(const json& item, const json& keys, const json& properties) {
  std::string all;
  for (const json& key : keys) {
    const auto& name = key.get_ref<const std::string&>();
    const json* value = Member(&item, name);
    const json* schema = Member(&properties, name);
    if (value == nullptr && schema != nullptr) value = Member(schema, "default");
    if (value == nullptr) return {};  // one that is missing is another mistake
    all += JsonText(*value) + ",";
  }
  return all;
}

void CheckItems(const json& list, const json& schema, const std::string& path, Report& report) {
  const json* items = Member(&schema, "items");
  if (items == nullptr) return;
  const json* keys = Member(&schema, "x-kubernetes-list-map-keys");
  const json* properties = Member(items, "properties");
  std::set<std::string> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    CheckSchema(list[i], *items, at, report);
    if (keys == nullptr || properties == nullptr || !list[i].is_object()) continue;
    const std::string own = KeysOf(list[i], *keys, *properties);
    if (own.empty() || seen.insert(own).second) continue;
    report.Add(at, "stands there twice: another entry has the same " +
                       (*keys)[0].get_ref<const std::string&>());
  }
}

void CheckInteger(const json& value, const json& schema, const std::string& path, Report& report) {
  if (!IsWhole(value)) return report.Add(path, Show(value) + " is not an integer");
  const bool narrow = schema.value("format", "") == "int32";
  // As doubles: an int64 and one bit more compare as they should, and nothing is cast.
  const auto number = value.get<double>();
  if (narrow && std::abs(number) > std::numeric_limits<int32_t>::max()) {
    report.Add(path, Show(value) + " is not a number of 32 bits");
  }
}

void CheckWord(const json& value, const json& schema, const std::string& path, Report& report) {
  if (!value.is_string()) {
    const bool scalar = !value.is_structured() && !value.is_null();
    return report.Add(path, Show(value) + " is not text" + (scalar ? "; put it in quotes" : ""));
  }
  const json* choices = Member(&schema, "enum");
  if (choices == nullptr || std::find(choices->begin(), choices->end(), value) != choices->end()) {
    return;
  }
  std::string all;
  for (const json& choice : *choices) {
    all += (all.empty() ? "" : ", ") + choice.get<std::string>();
  }
  report.Add(path, Show(value) + " is not one of " + all);
}

}  // namespace

const json& PodTemplateSchema() {
  static const json kSchema = json::parse(kPodTemplateSchemaText, nullptr, false);
  CHECK(kSchema.is_object());
  return kSchema;
}

void CheckSchema(const json& value, const json& schema, const std::string& path, Report& report) {
  if (schema.value("x-kubernetes-int-or-string", false)) {
    if (value.is_string() || value.is_number_integer()) return;
    return report.Add(path, Show(value) + " is neither a whole number nor text; put it in quotes");
  }
  const std::string type = schema.value("type", "");
  if (type == "object") {
    if (!value.is_object()) return report.Add(path, Show(value) + " is not a mapping");
    CheckMembers(value, schema, path, report);
  } else if (type == "array") {
    if (!value.is_array()) return report.Add(path, Show(value) + " is not a list");
    CheckItems(value, schema, path, report);
  } else if (type == "string") {
    CheckWord(value, schema, path, report);
  } else if (type == "integer") {
    CheckInteger(value, schema, path, report);
  } else if (type == "number") {
    if (!value.is_number()) report.Add(path, Show(value) + " is not a number");
  } else if (type == "boolean") {
    if (!value.is_boolean()) report.Add(path, Show(value) + " is not true or false");
  }
}

}  // namespace crowdsurf::controller
