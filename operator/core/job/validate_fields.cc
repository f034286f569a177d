#include <algorithm>
#include <cmath>

#include "base/manifest/fields.h"
#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/validate_rules.h"

namespace crowdsurf::controller {
namespace {

using manifest::ChildrenOf;
using manifest::Field;
using manifest::FieldKind;
using manifest::FindField;
using manifest::NearestName;
using manifest::SplitChoices;
using nlohmann::json;

constexpr size_t kLongestShown = 60;  // bytes of a value in a message
constexpr size_t kLongestPath =
    1000;                          // of the path: three keys of 253 bytes and what is around them
constexpr int kMaxExitCode = 255;  // what a process can say

std::string Number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e16) {
    return std::to_string(static_cast<int64_t>(value));
  }
  return JsonText(value);
}

std::string Joined(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::string Suggestion(std::string_view name, std::span<const std::string_view> names) {
  const std::string_view near = NearestName(name, names);
  return near.empty() ? std::string() : "; did you mean " + std::string(near) + "?";
}

void CheckNumber(const Field& field, const json& value, const std::string& path, Report& report) {
  const bool integer = field.kind == FieldKind::kInteger;
  // 8.0 is a whole number in YAML and JSON alike; Kubernetes takes it too.
  if (!value.is_number() || (integer && value.is_number_float() &&
                             value.get<double>() != std::floor(value.get<double>()))) {
    report.Add(path, Show(value) + " is not " + (integer ? "an integer" : "a number"));
    return;
  }
  const double number = value.get<double>();
  // Not `number < field.min`, which would be false for NaN.
  if (!(number >= field.min)) {
    report.Add(path, Show(value) + " is below " + Number(field.min));
  } else if (number > field.max) {
    report.Add(path, Show(value) + " is above " + Number(field.max));
  }
}

void CheckChoice(const Field& field, const json& value, const std::string& path, Report& report) {
  const std::vector<std::string_view> names = SplitChoices(field.choices);
  if (!value.is_string()) {
    report.Add(path, Show(value) + " is not one of " + Joined(names));
    return;
  }
  const std::string& name = value.get_ref<const std::string&>();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    report.Add(path, Show(value) + " is not one of " + Joined(names) + Suggestion(name, names));
    return;
  }
  const std::vector<std::string_view> built = SplitChoices(field.built);
  if (!built.empty() && std::find(built.begin(), built.end(), name) == built.end()) {
    report.Add(path, manifest::WhyNotBuilt(name, field));
  }
}

void CheckText(const Field& field, const json& value, const std::string& path, Report& report) {
  if (!value.is_string()) {
    report.Add(path, Show(value) + " is not text");
    return;
  }
  const double length = static_cast<double>(value.get_ref<const std::string&>().size());
  if (length < field.min) report.Add(path, "is empty");
  if (length > field.max) report.Add(path, "is longer than " + Number(field.max) + " letters");
}

void CheckQuantity(const json& value, const std::string& path, Report& report) {
  constexpr std::string_view kSuffixes[] = {"", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "m"};
  std::string text = value.is_string() ? value.get<std::string>() : JsonText(value);
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string suffix = text.substr(digits);
  if (digits == 0 ||
      std::find(std::begin(kSuffixes), std::end(kSuffixes), suffix) == std::end(kSuffixes)) {
    report.Add(path, Show(value) + " is not a quantity such as 2Gi or 500M");
  }
}

void CheckElements(const Field& field, const json& value, const std::string& path, Report& report) {
  if (!value.is_array()) {
    report.Add(path, Show(value) + " is not a list");
    return;
  }
  const double count = static_cast<double>(value.size());
  if (count < field.min) report.Add(path, "needs at least " + Number(field.min));
  if (count > field.max) {
    report.Add(path, Number(count) + " entries, at most " + Number(field.max) + " are allowed");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    const json& element = value[i];
    if (field.kind == FieldKind::kChoiceList) CheckChoice(field, element, at, report);
    if (field.kind == FieldKind::kStringList && !element.is_string()) {
      report.Add(at, Show(element) + " is not text");
    }
    if (field.kind == FieldKind::kIntegerList &&
        (!element.is_number_integer() || element < 0 || element > kMaxExitCode)) {
      report.Add(at, Show(element) + " is not an exit code: 0 to 255");
    }
  }
}

void CheckObject(const json& object, const std::string& row, const std::string& path,
                 Report& report);

void CheckValue(const Field& field, const json& value, const std::string& path, Report& report) {
  switch (field.kind) {
    case FieldKind::kObject:
      CheckObject(value, std::string(field.path), path, report);
      return;
    case FieldKind::kList:
      CheckElements(field, value, path, report);
      if (!value.is_array()) return;
      for (size_t i = 0; i < value.size(); ++i) {
        CheckObject(value[i], std::string(field.path) + "[]", path + "[" + std::to_string(i) + "]",
                    report);
      }
      return;
    case FieldKind::kInteger:
    case FieldKind::kNumber:
      CheckNumber(field, value, path, report);
      return;
    case FieldKind::kBoolean:
      if (!value.is_boolean()) report.Add(path, Show(value) + " is not true or false");
      return;
    case FieldKind::kString:
      CheckText(field, value, path, report);
      return;
    case FieldKind::kChoice:
      CheckChoice(field, value, path, report);
      return;
    case FieldKind::kChoiceList:
    case FieldKind::kStringList:
    case FieldKind::kIntegerList:
      CheckElements(field, value, path, report);
      return;
    case FieldKind::kQuantity:
      CheckQuantity(value, path, report);
      return;
    case FieldKind::kOpaque:
      return;
  }
}

void CheckObject(const json& object, const std::string& row, const std::string& path,
                 Report& report) {
  if (!object.is_object()) {
    report.Add(path, Show(object) + " is not a mapping");
    return;
  }
  const std::vector<std::string_view> names = ChildrenOf(row);
  for (const auto& [key, value] : object.items()) {
    const std::string at = path + "." + key;
    const Field* field = FindField(row.empty() ? key : row + "." + key);
    if (field == nullptr || std::find(names.begin(), names.end(), key) == names.end()) {
      const std::string near = Suggestion(key, names);
      report.Add(at, "unknown field" + (near.empty() ? "; known here: " + Joined(names) : near));
    } else if (!value.is_null()) {
      CheckValue(*field, value, at, report);
    }
  }
}

}  // namespace

void Report::Add(const std::string& path, std::string problem) {
  // A hostile document may have millions of faults, and nobody reads so many.
  if (violations_.size() >= kMaxViolations) return;
  // A key of the document may hold anything, and this is printed.
  violations_.push_back({ShownText(path, kLongestPath), LineOf(path), ShownText(problem)});
}

std::vector<Violation> Report::Take() {
  std::stable_sort(violations_.begin(), violations_.end(),
                   [](const Violation& a, const Violation& b) { return a.line < b.line; });
  return std::move(violations_);
}

int Report::LineOf(std::string path) const {
  while (true) {
    // A field that is missing gets the line of the block where it belongs.
    const auto it = lines_.find(path);
    if (it != lines_.end()) return it->second;
    const size_t end = path.find_last_of(".[");
    if (end == std::string::npos) break;
    path.resize(end);
  }
  const auto root = lines_.find("");
  return root == lines_.end() ? 0 : root->second;
}

std::string Show(const json& value) {
  if (value.is_object()) return "a mapping";
  if (value.is_array()) return "a list";
  std::string text = value.is_string() ? value.get<std::string>() : JsonText(value);
  if (value.is_string() && text.find_first_not_of("0123456789.+-") == std::string::npos) {
    text = '"' + text + '"';  // "8" in quotes is text: say so
  }
  for (char& c : text) {
    // A violation is one line of a terminal or log, and a value must not forge a second.
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  text = ShownText(text);
  if (text.size() > kLongestShown) text = CutText(text, kLongestShown) + "...";
  return text;
}

void CheckFields(const json& spec, Report& report) { CheckObject(spec, "", "spec", report); }

}  // namespace crowdsurf::controller
