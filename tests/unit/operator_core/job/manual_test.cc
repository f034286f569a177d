// The table of docs/manifest.md and the table in the code say the same, row for row.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"

namespace crowdsurf::controller {
namespace {

using manifest::Field;
using manifest::FieldKind;

std::string Bound(double value) {
  if (value == manifest::kMaxSeconds) return "10 years";
  if (std::abs(value) == manifest::kMaxCount) return value < 0 ? "-2^53" : "2^53";
  return absl::StrReplaceAll(absl::StrCat(value), {{"e-0", "e-"}, {"e+05", "00000"}});
}

std::string Names(const Field& field) {
  std::vector<std::string> names;
  for (const std::string_view name : manifest::SplitChoices(field.choices)) {
    const bool known_only = !field.built.empty() && manifest::IndexOf(name, field.built) < 0;
    names.push_back(known_only ? "*" + std::string(name) + "*" : std::string(name));
  }
  return absl::StrJoin(names, ", ");
}

std::string Value(const Field& field) {
  const std::string range = absl::StrCat(Bound(field.min), " to ", Bound(field.max));
  switch (field.kind) {
    case FieldKind::kObject:
      return "block";
    case FieldKind::kList:
      return absl::StrCat("list, at most ", field.max);
    case FieldKind::kInteger:
      return "integer " + range;
    case FieldKind::kNumber:
      return "number " + range;
    case FieldKind::kBoolean:
      return "true, false";
    case FieldKind::kString:
      return "text";
    case FieldKind::kChoice:
      return Names(field);
    case FieldKind::kChoiceList:
      return "list of " + Names(field);
    case FieldKind::kStringList:
      return absl::StrCat("list of text, at most ", field.max);
    case FieldKind::kIntegerList:
      return "list of exit codes";
    case FieldKind::kQuantity:
      return "quantity";
    case FieldKind::kOpaque:
      return "";
  }
  return "?";
}

// The row of the page, up to the end of the table's own note.
std::string RowOf(const Field& field) {
  const char* const changes[] = {"yes", "no", "suspended"};
  const std::string fallback =
      field.fallback.empty() ? std::string() : "`" + std::string(field.fallback) + "`";
  return absl::StrCat("| `", std::string(field.path), "` | ", Value(field), " | ", fallback, " | ",
                      changes[static_cast<int>(field.may_change)], " | ", std::string(field.note));
}

TEST(ManualTest, EachFieldHasItsRowInThePageOfTheManifest) {
  std::ifstream file("docs/manifest.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(page.empty());
  for (const Field& field : manifest::SpecFields()) {
    EXPECT_NE(page.find("\n" + RowOf(field)), std::string::npos) << RowOf(field);
  }
}

}  // namespace
}  // namespace crowdsurf::controller
