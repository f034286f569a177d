// YAML read as a manifest, against JSON written by hand: scalars, lines, and documents that mean
// harm.
#include "operator/edge/local/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

using ::testing::HasSubstr;

std::string Problem(std::string_view text) {
  return std::string(ReadYaml(text).status().message());
}

TEST(YamlTest, ReadsScalarsAsKubectlDoes) {
  const auto manifest = ReadYaml(R"(a: 1
b: "1"
c: true
d: 1.5e3
e: ~
f: 'true'
g: -7
h: 0x10
i: '.nan'
j: text with spaces
k: [1, two]
l: yes
m: 1.2.3
q: +4
o: 2026-11-24
p: +-5
)");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(
      manifest->document,
      nlohmann::json::parse(R"({"a": 1, "b": "1", "c": true, "d": 1500.0, "e": null, "f": "true",
                                      "g": -7, "h": 16, "i": ".nan", "j": "text with spaces",
                                      "k": [1, "two"], "l": true, "m": "1.2.3", "q": 4,
                                      "o": "2026-11-24", "p": "+-5"})"));
}

TEST(YamlTest, AMergedMappingGivesWhatIsNotGivenBesideIt) {
  const auto manifest = ReadYaml(
      "base: &e {name: A, value: a}\nother: &o {value: o, more: m}\nenv:\n- <<: *e\n  name: B\n"
      "- <<: [*o, *e]\n- {\"<<\": 1}\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document["env"], nlohmann::json::parse(R"([
      {"name": "B", "value": "a"}, {"name": "A", "value": "o", "more": "m"}, {"<<": 1}])"));
  EXPECT_EQ(manifest->lines.at("env[0].name"), 5);
  EXPECT_THAT(Problem("a: &a {x: 1}\nb: {x: 2, <<: *a}\n"), HasSubstr("has to be the first"));
  EXPECT_THAT(Problem("b: {<<: 7}\n"), HasSubstr("<< is given no mapping"));
  EXPECT_THAT(Problem("b: {<<: [7]}\n"), HasSubstr("<< is given no mapping"));
  EXPECT_THAT(Problem("b: &b {<<: *b}\n"), HasSubstr("more than 100 levels deep"));
}

TEST(YamlTest, AKeyThatKubectlWritesOtherwiseIsRefused) {
  EXPECT_THAT(Problem("labels: {yes: a}\n"),
              HasSubstr("the key yes is true in YAML 1.1; quote it"));
  EXPECT_THAT(Problem("labels: {010: a}\n"), HasSubstr("the key 010 is 8"));
  const auto manifest = ReadYaml("labels: {7: a, 'on': b, true: c}\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document["labels"],
            nlohmann::json::parse(R"({"7": "a", "on": "b", "true": "c"})"));
}

TEST(YamlTest, ValuesOfTagsAreWhatTheTagSays) {
  const auto manifest = ReadYaml("a: !!bool no\nb: !!str 7\nc: !!int \"7\"\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document, nlohmann::json::parse(R"({"a": false, "b": "7", "c": 7})"));
  EXPECT_THAT(Problem("x: 1\na: !mine x\n"), HasSubstr("line 2: the tag !mine is not known"));
  EXPECT_THAT(Problem("a: .inf\n"), HasSubstr("line 1: .inf is no number"));
}

TEST(YamlTest, JsonMayEscapeACharacterBeyondThePlane) {
  const auto manifest = ReadYaml("{\n  \"a\": \"\\ud83d\\ude80\"}\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document["a"], "\xF0\x9F\x9A\x80");
  EXPECT_EQ(manifest->lines.at("a"), 2);
}

// A path is kept for each value: one key of 500 KB over 95,000 children was 47 GB.
TEST(YamlTest, LongKeysAboveManyValuesAreRefused) {
  std::string one(2000, 'k');
  one.insert(0, "? \"").append("\"\n: 1\n");
  EXPECT_THAT(Problem(one), HasSubstr("line 1: a key of more than 1024 bytes"));
  std::string text;
  for (size_t deep = 0; deep < 40; ++deep) {
    text.append(deep, ' ').append(1000, 'k').append(":\n");
  }
  for (int i = 0; i < 1000; ++i) text.append(40, ' ').append("- 1\n");
  EXPECT_THAT(Problem(text), HasSubstr("too many values below keys that are so long"));
}

TEST(YamlTest, WhatIsWrongIsPrintable) {
  const std::string problem = Problem("\"\\e[2J\": 1\n\"\\e[2J\": 2\n");
  EXPECT_THAT(problem, HasSubstr("stands there twice"));
  EXPECT_EQ(problem.find('\x1b'), std::string::npos);
}

TEST(YamlTest, KnowsTheLineOfEveryPath) {
  const auto manifest =
      ReadYaml("spec:\n  replicas: 8\n  list:\n  - name: x\n    value: y\n  - z\n");
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->lines.at("spec"), 1);
  EXPECT_EQ(manifest->lines.at("spec.replicas"), 2);
  EXPECT_EQ(manifest->lines.at("spec.list"), 3);
  EXPECT_EQ(manifest->lines.at("spec.list[0].value"), 5);
  EXPECT_EQ(manifest->lines.at("spec.list[1]"), 6);
}

TEST(YamlTest, OfSeveralDocumentsTheJobIsTaken) {
  const auto manifest =
      ReadYaml("kind: PersistentVolumeClaim\n---\nkind: TrainingJob\nspec: 1\n---\nkind: Secret\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document["spec"], 1);
  EXPECT_EQ(manifest->lines.at("spec"), 4);
  EXPECT_THAT(Problem("kind: TrainingJob\n---\nkind: TrainingJob\n"), HasSubstr("line 3"));
  EXPECT_THAT(Problem("kind: Secret\n---\nkind: Service\n"), HasSubstr("second document"));
}

TEST(YamlTest, SaysWhereTextIsNoManifest) {
  EXPECT_THAT(Problem("a: 1\nb: c: d\n"), HasSubstr("line 2: "));
  EXPECT_THAT(Problem("a: 1\nb: 2\na: 3\n"), HasSubstr("line 3: a stands there twice"));
  EXPECT_THAT(Problem("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
  EXPECT_THAT(Problem(""), HasSubstr("no document"));
  EXPECT_THAT(Problem("# nothing\n"), HasSubstr("no document"));
  EXPECT_THAT(Problem("? [a]\n: b\n"), HasSubstr("not plain text"));
  EXPECT_THAT(ReadManifest("/nowhere/job.yaml").status().message(), HasSubstr("/nowhere/job.yaml"));
}

TEST(YamlTest, AliasesOfAliasesAreCutOff) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int j = 1; j < 10; ++j) bomb += "," + below;
    bomb += "]\n";
  }
  EXPECT_THAT(Problem(bomb), HasSubstr("more than 100000 values"));
  EXPECT_THAT(Problem(std::string(2 << 20, 'x')), HasSubstr("longer than 1 MiB"));
  EXPECT_THAT(ReadManifest("/dev/zero").status().message(), HasSubstr("longer than 1 MiB"));
}

TEST(YamlTest, AnAliasOfWhatItStandsInHasNoEnd) {
  EXPECT_THAT(Problem("a: &a [*a]\n"), HasSubstr("line 1: more than 100 levels deep"));
  EXPECT_THAT(Problem("a: &a {b: *a, c: *a}\n"), HasSubstr("more than 100 levels deep"));
  const auto nested = [](size_t deep) {
    return "a: " + std::string(deep, '[') + "x" + std::string(deep, ']');
  };
  EXPECT_TRUE(ReadYaml(nested(90)).ok());
  EXPECT_THAT(Problem(nested(120)), HasSubstr("more than 100 levels deep"));
}

TEST(YamlTest, AManifestsMistakesComeWithTheirLines) {
  const auto manifest = ReadYaml(R"(apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: charlm}
spec:
  averaging:
    groupSize: 1
  target: {samples: 1}
  template: {spec: {containers: [{name: trainer, command: [x]}]}}
)");
  ASSERT_TRUE(manifest.ok());
  const auto violations = Validate(*manifest);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].line, 6);
  EXPECT_EQ(violations[0].Text(), "spec.averaging.groupSize: 1 is below 2");
}

}  // namespace
}  // namespace crowdsurf::controller
