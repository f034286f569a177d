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

TEST(WarningsTest, OnlyStrategiesOnAGraphIgnoreRoundsAndGrid) {
  for (const char* in_groups : {"Moshpit", "AllReduce"}) {
    EXPECT_THAT(WarningsOf({{"strategy", in_groups}, {"rounds", "All"}, {"grid", "Fitted"}}),
                IsEmpty())
        << in_groups;
  }
  EXPECT_THAT(WarningsOf({{"rounds", "All"}}), IsEmpty()) << "Moshpit is the default";
  for (const std::string on_graph : {"Gossip", "A2CiD2", "RelaySum"}) {
    const std::string words = ": is ignored: " + on_graph + " mixes with neighbours, not in groups";
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}}), IsEmpty());
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}, {"rounds", "All"}}),
                ElementsAre("spec.averaging.rounds" + words));
    EXPECT_THAT(WarningsOf({{"strategy", on_graph}, {"grid", "Fitted"}}),
                ElementsAre("spec.averaging.grid" + words));
  }
}

TEST(WarningsTest, AGraphThatFitsOnlySomeNumbersNamesTheOneThatStandsInForIt) {
  for (const auto& [strategy, block] : {std::pair("Gossip", "gossip"), {"A2CiD2", "a2cid2"}}) {
    const auto on = [&](const char* graph) {
      return WarningsOf({{"strategy", strategy}, {block, {{"graph", graph}}}});
    };
    EXPECT_THAT(on("Hypercube"), ElementsAre(HasSubstr("goes on on Exponential")));
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
