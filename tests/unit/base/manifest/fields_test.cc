#include "base/manifest/fields.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/manifest/field_defaults.h"

namespace crowdsurf::manifest {
namespace {

TEST(SpecFieldsTest, EachPathIsThereOnceAndAfterItsParent) {
  std::set<std::string> seen;
  for (const Field& field : SpecFields()) {
    std::string path(field.path);
    const size_t dot = path.rfind('.');
    if (dot != path.npos) {
      std::string parent = path.substr(0, dot);
      if (parent.ends_with("[]")) parent.resize(parent.size() - 2);
      EXPECT_TRUE(seen.contains(parent)) << path;
    }
    EXPECT_TRUE(seen.insert(path).second) << path;
  }
}

TEST(SpecFieldsTest, EachDefaultIsWithinItsOwnBounds) {
  for (const Field& field : SpecFields()) {
    const std::string fallback(field.fallback);
    const bool number = field.kind == FieldKind::kInteger || field.kind == FieldKind::kNumber;
    if (number) {
      EXPECT_LE(field.min, field.max) << field.path;
      EXPECT_TRUE(fallback.empty() || field.Allows(std::stod(fallback))) << field.path;
    }
    if (field.kind != FieldKind::kChoice) continue;
    const std::string name = fallback.substr(1, fallback.size() - 2);
    EXPECT_GE(IndexOf(name, field.choices), 0) << field.path;
    EXPECT_TRUE(field.built.empty() || IndexOf(name, field.built) >= 0) << field.path;
    for (const std::string_view built : SplitChoices(field.built))
      EXPECT_GE(IndexOf(built, field.choices), 0) << field.path;
  }
}

TEST(FieldDefaultsTest, AreTheTablesOwn) {
  static_assert(IntegerDefault<int>("averaging.groupSize") == 16);
  static_assert(NumberDefault("averaging.outerOptimizer.learningRate") == 0.7);
  static_assert(TextDefault("managedBy") == "crowdsurf.io/operator");
  enum class Overlap { kDelayed, kBlocking };
  static_assert(ChoiceDefault<Overlap>("averaging.overlap") == Overlap::kDelayed);
  enum class Tree { kStar, kDoubleBinaryTree };
  static_assert(ChoiceDefault<Tree>("averaging.relaySum.tree", "Star DoubleBinaryTree") ==
                Tree::kDoubleBinaryTree);
  for (const Field& field : SpecFields()) EXPECT_EQ(FindField(field.path), &field);
  EXPECT_EQ(FindField("averaging.groupsize"), nullptr);
  EXPECT_EQ(TextDefaultOf(RowOf("averaging.overlap")), "Delayed");
  EXPECT_EQ(TextDefaultOf(RowOf("averaging.interval")), "") << "none";
}

TEST(FieldDefaultsTest, TheIntervalsDefaultIsThatOfTheManual) {
  EXPECT_NE(
      FindField("averaging.interval")->note.find("steps " + std::to_string(kDefaultIntervalSteps)),
      std::string_view::npos);
}

TEST(IndexOfTest, KnowsWholeNamesOnly) {
  EXPECT_EQ(IndexOf("b", "a b"), 1);
  EXPECT_EQ(IndexOf("a", "a b"), 0);
  EXPECT_EQ(IndexOf("", "a b"), -1);
  EXPECT_EQ(IndexOf("a b", "a b"), -1);
  EXPECT_EQ(IndexOf("c", "a b"), -1);
}

}  // namespace
}  // namespace crowdsurf::manifest
