// One value of a good manifest is changed at a time: what passes, and what is said of what does
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/job/validate.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Good() {
  return json::parse(R"({
    "apiVersion": "crowdsurf.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "charlm"},
    "spec": {"target": {"samples": 2000000},
             "template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}})");
}

// The problems of a manifest with `value` at `pointer`; null takes away what is there.
std::vector<std::string> Problems(const std::string& pointer, const json& value) {
  json document = Good();
  const json::json_pointer at(pointer);
  if (value.is_null()) {
    document[at.parent_pointer()].erase(at.back());
  } else {
    document[at] = value;
  }
  std::vector<std::string> out;
  for (const Violation& v : Validate({document, {}})) out.push_back(v.Text());
  return out;
}

// 63 letters of a label, less two dashes, an index to 99999 and an incarnation to 9999999.
TEST(ValidateBoundsTest, AJobsNameIsALabelWithRoomForItsPodsNumbers) {
  for (const std::string& good : {std::string("a"), std::string("a-1"), std::string(49, 'a')}) {
    EXPECT_THAT(Problems("/metadata/name", good), IsEmpty()) << good;
  }
  for (const json& bad : {json(""), json("A"), json("1a"), json("-a"), json("a-"), json("a.b"),
                          json("a_b"), json("{"), json(std::string(50, 'a')), json(7)}) {
    EXPECT_THAT(Problems("/metadata/name", bad), ElementsAre(HasSubstr("is not a name"))) << bad;
  }
  EXPECT_THAT(Problems("/metadata/name", nullptr), ElementsAre("metadata.name: is missing"));
}

TEST(ValidateBoundsTest, TheHeaderSaysWhatThisIs) {
  EXPECT_THAT(Problems("/kind", nullptr), ElementsAre(HasSubstr("kind: is missing; TrainingJob")));
  EXPECT_THAT(Problems("/kind", "Job"), ElementsAre("kind: Job is not TrainingJob"));
  EXPECT_THAT(Problems("/apiVersion", "v1"),
              ElementsAre("apiVersion: v1 is not crowdsurf.io/v1alpha1"));
  EXPECT_THAT(Problems("/status", json::object()), IsEmpty());
  EXPECT_THAT(Problems("/speck", 1), ElementsAre("speck: unknown field; did you mean spec?"));
  EXPECT_THAT(Problems("/other", 1), ElementsAre("other: unknown field"));
}

TEST(ValidateBoundsTest, APeerIsAHostAndAPort) {
  const auto peer = [](const char* text) {
    return Problems("/spec/discovery", {{"bootstrapPeers", {text}}});
  };
  for (const char* good : {"a:1", "10.0.0.1:65535", "[::1]:7946", "b.example:80",
                           "[fe80::1%eth0]:7946", "peers_1.ml.svc:7946"}) {
    EXPECT_THAT(peer(good), IsEmpty()) << good;
  }
  for (const char* bad : {"host", ":80", "host:", "host:0", "host:65536", "host:123456",
                          "host:99999999999", "host:8o", "host:-1", "http://h:80", "a b:1",
                          "tcp/x:7946", "::1:7946", "[h]:1", "[]:1", "a..b:1"}) {
    EXPECT_THAT(peer(bad), ElementsAre(HasSubstr("is not host:port"))) << bad;
  }
}

TEST(ValidateBoundsTest, NumbersTextsAndListsHaveBothTheirBounds) {
  struct Row {
    const char* pointer;
    json good, bad;
    const char* said;
  };
  const json rule = {{"onExitCodes", {{"values", {1}}}}};
  const auto rules = [&](size_t n) { return json{{"rules", json(n, rule)}}; };
  const auto named = [&](const json& name) {
    json one = rule;
    one["name"] = name;
    return json{{"rules", json::array({one})}};
  };
  const auto codes = [](json values) {
    return json{{"rules", {{{"onExitCodes", {{"values", std::move(values)}}}}}}};
  };
  const Row rows[] = {
      {"/spec/runPolicy", {{"backoffLimit", 0}}, {{"backoffLimit", -1}}, "-1 is below 0"},
      {"/spec/runPolicy", {{"backoffLimit", 1000}}, {{"backoffLimit", 1001}}, "is above 1000"},
      {"/spec/runPolicy", {{"backoffLimit", 8.0}}, {{"backoffLimit", 8.5}}, "is not an integer"},
      {"/spec/failurePolicy", named("n"), named(""), "name: is empty"},
      {"/spec/failurePolicy", named(std::string(63, 'n')), named(std::string(64, 'n')),
       "name: is longer than 63 letters"},
      {"/spec/failurePolicy", named("n"), named(7), "7 is not text"},
      {"/spec/failurePolicy", rules(20), rules(21), "21 entries, at most 20 are allowed"},
      {"/spec/failurePolicy", codes({1}), codes(json::array()), "needs at least 1"},
      {"/spec/failurePolicy", codes({0}), codes({-1}), "-1 is not an exit code"},
      {"/spec/failurePolicy", codes({255}), codes({256}), "256 is not an exit code"},
      {"/spec/failurePolicy", codes({1}), codes({"1"}), "is not an exit code"},
      {"/spec/failurePolicy", rules(1), {{"rules", 3}}, "3 is not a list"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(Problems(row.pointer, row.good), IsEmpty()) << row.said;
    ASSERT_THAT(Problems(row.pointer, row.bad), ElementsAre(HasSubstr(row.said)));
  }
}

TEST(ValidateBoundsTest, AQuantityHasDigitsAndAKnownSuffix) {
  for (const json& good : {json("2Gi"), json("500M"), json("1.5k"), json("64Mi"), json("100m"),
                           json("1T"), json("1Ti"), json("12"), json(12)}) {
    EXPECT_THAT(Problems("/spec/agent", {{"sharedMemory", good}}), IsEmpty()) << good;
  }
  for (const json& bad : {json(""), json("Gi"), json("2gb"), json("2 Gi"), json("-1")}) {
    EXPECT_THAT(Problems("/spec/agent", {{"sharedMemory", bad}}),
                ElementsAre(HasSubstr("is not a quantity such as 2Gi or 500M")))
        << bad;
  }
}

TEST(ValidateBoundsTest, ATargetAndItsMetricAreWhole) {
  EXPECT_THAT(Problems("/spec/target", json::object()),
              ElementsAre(HasSubstr("needs at least one of samples, steps, seconds, metric")));
  for (const char* unit : {"samples", "steps", "seconds"}) {
    EXPECT_THAT(Problems("/spec/target", {{unit, 5}}), IsEmpty()) << unit;
  }
  const auto metric = [](const json& value) {
    return Problems("/spec/target", {{"metric", value}});
  };
  EXPECT_THAT(metric({{"name", "loss"}, {"below", 1}}), IsEmpty());
  EXPECT_THAT(metric({{"name", "f1"}, {"above", 1}}), IsEmpty());
  EXPECT_THAT(metric({{"below", 1}}), ElementsAre("spec.target.metric.name: is missing"));
  EXPECT_THAT(metric({{"name", "f1"}, {"above", 1}, {"below", 2}}),
              ElementsAre("spec.target.metric: has both below and above; one is wanted"));
}

TEST(ValidateBoundsTest, ARuleOfFailuresLooksAtCodesOrAtConditions) {
  const auto rule = [](const json& value) {
    return Problems("/spec/failurePolicy", {{"rules", json::array({value})}});
  };
  const json codes = {{"values", {1}}};
  EXPECT_THAT(rule({{"onExitCodes", codes}}), IsEmpty());
  EXPECT_THAT(rule({{"onPodConditions", {{{"type", "T"}}}}}), IsEmpty());
  EXPECT_THAT(rule({{"onExitCodes", codes}, {"onPodConditions", {{{"type", "T"}}}}}),
              ElementsAre(HasSubstr("has both onExitCodes and onPodConditions; one is wanted")));
  EXPECT_THAT(rule(3), ElementsAre("spec.failurePolicy.rules[0]: 3 is not a mapping"));
  EXPECT_THAT(rule({{"onExitCodes", json::object()}}),
              ElementsAre("spec.failurePolicy.rules[0].onExitCodes.values: is missing"));
  EXPECT_THAT(rule({{"onPodConditions", {{{"type", "T"}}, {{"status", "True"}}}}}),
              ElementsAre("spec.failurePolicy.rules[0].onPodConditions[1].type: is missing"));
}

TEST(ValidateBoundsTest, ACheckpointHasOnePlace) {
  json document = Good();
  document["spec"]["template"]["spec"]["volumes"] = {{{"name", "data"}}};
  document["spec"]["checkpoint"] = {{"volume", "data"}};
  EXPECT_THAT(Validate({document, {}}), IsEmpty());
  document["spec"]["checkpoint"]["uri"] = "s3://bucket";
  std::vector<std::string> said;
  for (const Violation& v : Validate({document, {}})) said.push_back(v.Text());
  EXPECT_THAT(said, Contains("spec.checkpoint: has both volume and uri; one is wanted"));
}

TEST(ValidateBoundsTest, AMessageIsOneShortLine) {
  const auto said = Problems("/spec/averaging", {{"strategy", "a\nb\x1b" + std::string(80, 'x')}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("spec.averaging.strategy: a b " + std::string(56, 'x') + "..."));
}

}  // namespace
}  // namespace crowdsurf::controller
