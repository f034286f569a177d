// Legal manifests that say something other than their author expects (docs/strategies).
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

std::vector<std::string> WarningsOf(const json& averaging, const json& containers = {}) {
  const json document = {
      {"spec", {{"averaging", averaging}, {"template", {{"spec", {{"containers", containers}}}}}}}};
  std::vector<std::string> out;
  for (const Violation& warning : Warnings({document, {}})) out.push_back(warning.Text());
  return out;
}

TEST(WarningsTest, OnlyMoshpitHeedsEveryFieldOfItsGroups) {
  const json all = {
      {"groupSize", 4}, {"rounds", "All"}, {"grid", "Fitted"}, {"weighting", "Equal"}};
  EXPECT_THAT(WarningsOf(all), IsEmpty()) << "Moshpit is the default";
  json one_group = all;
  one_group["strategy"] = "AllReduce";
  EXPECT_THAT(WarningsOf(one_group),
              ElementsAre("spec.averaging.groupSize: is ignored: AllReduce has one group of all "
                          "workers",
                          HasSubstr("spec.averaging.rounds: is ignored: AllReduce"),
                          HasSubstr("spec.averaging.grid: is ignored: AllReduce")));
  for (const std::string on_graph : {"Gossip", "A2CiD2", "RelaySum"}) {
    const std::string words = ": is ignored: " + on_graph + " mixes with neighbours, not in groups";
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}}), IsEmpty());
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}, {"rounds", "All"}}),
                ElementsAre("spec.averaging.rounds" + words));
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}, {"grid", "Fitted"}}),
                ElementsAre("spec.averaging.grid" + words));
    EXPECT_THAT(
        WarningsOf({{"strategy", on_graph}, {"weighting", "Equal"}}),
        ElementsAre("spec.averaging.weighting: acts only on the full average of each view: " +
                    on_graph + " mixes with neighbours without weights"));
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}, {"groupSize", 4}}),
                ElementsAre(HasSubstr("spec.averaging.groupSize: acts only on the full average")));
  }
}

TEST(WarningsTest, RelaySumsMessagesAreFloat32) {
  EXPECT_THAT(WarningsOf({{"strategy", "RelaySum"}, {"compression", "BFloat16"}}),
              ElementsAre(HasSubstr("spec.averaging.compression: acts only on the full average")));
  EXPECT_THAT(WarningsOf({{"strategy", "Gossip"}, {"compression", "BFloat16"}}), IsEmpty());
}

TEST(WarningsTest, AnOuterOptimizersNumbersNeedItsType) {
  const json numbers = {{"learningRate", 0.5}, {"momentum", 0.5}, {"warmupSamples", 10}};
  EXPECT_THAT(WarningsOf({{"outerOptimizer", numbers}}),
              ElementsAre("spec.averaging.outerOptimizer.learningRate: is ignored: None takes no "
                          "step",
                          HasSubstr("spec.averaging.outerOptimizer.momentum: is ignored"),
                          HasSubstr("spec.averaging.outerOptimizer.warmupSamples: is ignored")));
  json with_type = numbers;
  with_type["type"] = "SGD";
  EXPECT_THAT(WarningsOf({{"outerOptimizer", with_type}}), IsEmpty());
}

TEST(WarningsTest, DocumentsOfAnyShapeAreRead) {
  for (const char* spec : {"null", "[]", "1", R"({"averaging": []})",
                           R"({"averaging": {"strategy": 1, "gossip": [], "overlap": {}}})"}) {
    const json document = {{"spec", json::parse(spec)}};
    EXPECT_THAT(Warnings({document, {}}), IsEmpty()) << spec;
  }
}

TEST(WarningsTest, AGraphThatFitsOnlySomeNumbersNamesTheOneThatStandsInForIt) {
  for (const auto& of : {std::pair("Gossip", "gossip"), {"A2CiD2", "a2cid2"}}) {
    const auto on = [&](const char* graph) {
      return WarningsOf({{"strategy", of.first}, {of.second, {{"graph", graph}}}});
    };
    EXPECT_THAT(on("Hypercube"), ElementsAre("spec.averaging." + std::string(of.second) +
                                             ".graph: Hypercube fits only some numbers of workers; "
                                             "with another number, as after a preemption, the job "
                                             "goes on on Exponential"));
    EXPECT_THAT(on("Torus"), ElementsAre(HasSubstr("goes on on Ring")));
    for (const char* fits : {"BaseK", "Ring", "Exponential"}) EXPECT_THAT(on(fits), IsEmpty());
  }
}

TEST(WarningsTest, A2CiD2HasACadenceOfItsOwn) {
  const json interval = {{"steps", 10}};
  EXPECT_THAT(WarningsOf({{"strategy", "A2CiD2"}, {"interval", interval}}),
              ElementsAre(HasSubstr("spec.averaging.interval: is ignored")));
  EXPECT_THAT(WarningsOf({{"strategy", "Gossip"}, {"interval", interval}}), IsEmpty());
  EXPECT_THAT(WarningsOf({{"strategy", "A2CiD2"}, {"a2cid2", {{"graph", "Complete"}}}}),
              Contains(HasSubstr("plain gossip")));
}

TEST(WarningsTest, AContainerBesideTheTrainerEndsWithIt) {
  const json trainer = {{"name", "trainer"}}, logs = {{"name", "logs"}};
  EXPECT_THAT(WarningsOf(json::object(), json::array({trainer})), IsEmpty());
  EXPECT_THAT(WarningsOf(json::object(), json::array({logs})), IsEmpty()) << "it is the trainer";
  EXPECT_THAT(WarningsOf(json::object(), json::array({trainer, logs})),
              ElementsAre("spec.template.spec.containers[1]: logs is not the trainer; the worker "
                          "ends with the trainer"));
}

}  // namespace
}  // namespace crowdsurf::controller
