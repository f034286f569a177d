// What validation says of strategies and of what does not go with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator_core/job/manifest_problems.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ValidateStrategiesTest, RefusesInt8WhereWorkersAreNotOneGroup) {
  json document = With("/averaging/compression", "Int8");
  document["spec"]["maxReplicas"] = 16;
  json& averaging = document["spec"]["averaging"];
  averaging["groupSize"] = 16;
  EXPECT_THAT(Problems(document), ElementsAre());
  averaging["outerOptimizer"] = {{"type", "Nesterov"}};
  EXPECT_THAT(Problems(document), ElementsAre());
  averaging.erase("outerOptimizer");
  averaging["groupSize"] = 15;
  EXPECT_THAT(Problems(document),
              ElementsAre("spec.averaging.compression: Int8 needs one group of all workers: "
                          "maxReplicas 16 is above groupSize 15"));
  averaging["strategy"] = "AllReduce";
  EXPECT_THAT(Problems(document), ElementsAre());
  for (const char* strategy : {"Gossip", "A2CiD2", "RelaySum", "PowerGossip", "IST"}) {
    averaging["strategy"] = strategy;
    EXPECT_THAT(Problems(document),
                ElementsAre("spec.averaging.compression: Int8 needs one group of all workers; " +
                            std::string(strategy) + " has none, Moshpit, AllReduce can"));
  }
}

TEST(ValidateStrategiesTest, RefusesInt8OfGradients) {
  json document = With("/averaging/what", "Gradients");
  json& averaging = document["spec"]["averaging"];
  averaging["globalBatch"] = 64;
  averaging["overlap"] = "Blocking";
  averaging["strategy"] = "AllReduce";
  EXPECT_THAT(Problems(document), ElementsAre());
  averaging["compression"] = "Int8";
  EXPECT_THAT(
      Problems(document),
      ElementsAre("spec.averaging.compression: Int8 sends changes of parameters; with what: "
                  "Gradients choose None, Float16 or BFloat16"));
}

TEST(ValidateStrategiesTest, RefusesOneRoundWhereWorkersMeasureFromOneBase) {
  json document = With("/averaging/rounds", "One");
  document["spec"]["maxReplicas"] = 16;
  json& averaging = document["spec"]["averaging"];
  EXPECT_THAT(Problems(document), ElementsAre());
  const std::string why = "spec.averaging.rounds: One leaves groups with values of their own, and ";
  averaging["outerOptimizer"] = {{"type", "Nesterov"}};
  EXPECT_THAT(
      Problems(document),
      ElementsAre(why + "an outerOptimizer steps from one base of all workers: choose All"));
  averaging.erase("outerOptimizer");
  averaging["compression"] = "Int8";
  // With several groups neither has one base, whatever the rounds.
  EXPECT_THAT(
      Problems(document),
      Contains(why + "compression: Int8 sends changes from one base of all workers: choose All"));
  averaging["compression"] = "Float16";
  averaging["what"] = "Gradients";
  averaging["globalBatch"] = 64;
  averaging["overlap"] = "Blocking";
  EXPECT_THAT(Problems(document),
              Contains(why + "what: Gradients steps from one base of all workers: choose All"));
  averaging["strategy"] = "AllReduce";  // it has one round anyway, and a warning says so
  EXPECT_THAT(Problems(document), ElementsAre());
}

TEST(ValidateStrategiesTest, RefusesAnOuterOptimizerWhereWorkersShareNoBase) {
  json document = With("/averaging/outerOptimizer/type", "Nesterov");
  EXPECT_THAT(Problems(document), ElementsAre());
  document["spec"]["averaging"]["strategy"] = "AllReduce";
  EXPECT_THAT(Problems(document), ElementsAre());
  for (const char* strategy : {"Gossip", "A2CiD2", "RelaySum", "PowerGossip"}) {
    document["spec"]["averaging"]["strategy"] = strategy;
    document["spec"]["averaging"]["outerOptimizer"]["type"] = "SGD";
    EXPECT_THAT(Problems(document),
                ElementsAre("spec.averaging.outerOptimizer.type: " + std::string(strategy) +
                            " has no base that all workers share; outer optimizers work with "
                            "Moshpit, AllReduce"));
    document["spec"]["averaging"]["outerOptimizer"]["type"] = "None";
    EXPECT_THAT(Problems(document), ElementsAre()) << strategy;
  }
  document = With("/averaging/outerOptimizer/learningRate", 0);
  EXPECT_THAT(Problems(document).front(), HasSubstr("spec.averaging.outerOptimizer.learningRate"));
  document = With("/averaging/outerOptimizer/momentum", 1.5);
  EXPECT_THAT(Problems(document).front(), HasSubstr("spec.averaging.outerOptimizer.momentum"));
}

TEST(ValidateStrategiesTest, SaysWhatGradientsNeed) {
  json document = With("/averaging/what", "Gradients");
  json& averaging = document["spec"]["averaging"];
  averaging["groupSize"] = 16;
  EXPECT_THAT(Problems(document),
              ElementsAre(HasSubstr("spec.averaging.globalBatch: is missing"),
                          HasSubstr("spec.averaging.overlap: must be Blocking")));
  averaging["globalBatch"] = 1024;
  averaging["overlap"] = "Blocking";
  EXPECT_THAT(Problems(document), ElementsAre());
  averaging["strategy"] = "AllReduce";
  EXPECT_THAT(Problems(document), ElementsAre());
  for (const char* strategy : {"Gossip", "A2CiD2", "RelaySum", "PowerGossip", "IST"}) {
    averaging["strategy"] = strategy;
    EXPECT_THAT(Problems(document),
                ElementsAre("spec.averaging.what: Gradients needs one group of all workers; " +
                            std::string(strategy) + " has none, Moshpit, AllReduce can"));
  }
  averaging["strategy"] = "Moshpit";
  averaging["groupSize"] = 4;
  document["spec"]["replicas"] = 4;
  document["spec"]["maxReplicas"] = 5;
  EXPECT_THAT(Problems(document),
              ElementsAre("spec.averaging.what: Gradients needs one group of all workers: "
                          "maxReplicas 5 is above groupSize 4"));
  document["spec"]["maxReplicas"] = 4;
  averaging["roles"] = {"Parameter", "OptimizerState"};
  averaging["outerOptimizer"] = {{"type", "SGD"}};
  EXPECT_THAT(Problems(document), ElementsAre(HasSubstr("spec.averaging.outerOptimizer.type: must"),
                                              HasSubstr("spec.averaging.roles: must be")));
  document = With("/averaging/globalBatch", 64);
  EXPECT_THAT(Problems(document),
              ElementsAre("spec.averaging.globalBatch: is only for what: Gradients"));
}

TEST(ValidateStrategiesTest, SaysWhichGraphsPowerGossipCannotHave) {
  json document = With("/averaging/strategy", "PowerGossip");
  EXPECT_THAT(Problems(document), ElementsAre());
  document["spec"]["replicas"] = 8;
  document["spec"]["averaging"]["powerGossip"] = {{"graph", "Torus"}};
  EXPECT_THAT(Problems(document),
              ElementsAre(HasSubstr("spec.averaging.powerGossip.graph: Torus needs at least 9")));
  document["spec"]["maxReplicas"] = 9;
  EXPECT_THAT(Problems(document), ElementsAre());
  document["spec"]["averaging"]["powerGossip"] = {{"graph", "Complete"}};
  document["spec"]["maxReplicas"] = 251;
  EXPECT_THAT(Problems(document),
              ElementsAre(HasSubstr("spec.averaging.powerGossip.graph: Complete of 251 workers")));
  document["spec"]["maxReplicas"] = 1025;
  document["spec"]["averaging"]["powerGossip"] = {{"graph", "Ring"}, {"rank", 65}};
  EXPECT_THAT(Problems(document), ElementsAre("spec.averaging.powerGossip.rank: 65 is above 64",
                                              HasSubstr("spec.maxReplicas: 1025 is above 1024")));
}

TEST(ValidateStrategiesTest, SaysWhatAStrategyOnAGraphNeeds) {
  json document = With("/averaging/strategy", "RelaySum");
  document["spec"]["averaging"]["relaySum"] = {{"tree", "Ring"}};
  EXPECT_THAT(Problems(document).front(), HasSubstr("is not one of DoubleBinaryTree, BinaryTree"));
  document["spec"]["averaging"]["relaySum"] = {{"tree", "Star"}};
  EXPECT_THAT(Problems(document), ElementsAre());
  document["spec"]["maxReplicas"] = 300;
  EXPECT_THAT(Problems(document),
              ElementsAre(HasSubstr("spec.averaging.relaySum.tree: Star of 300")));
  document["spec"]["averaging"]["relaySum"] = {{"tree", "Chain"}};
  document["spec"]["maxReplicas"] = 1025;
  EXPECT_THAT(Problems(document).front(), HasSubstr("is above 1024"));
  document["spec"]["averaging"]["relaySum"] = {{"tree", "Star"}};
  EXPECT_THAT(Problems(document), ElementsAre(HasSubstr("spec.maxReplicas: 1025 is above 1024"),
                                              HasSubstr("spec.averaging.relaySum.tree: Star of")));

  json neighbours = With("/averaging/strategy", "Gossip");
  neighbours["spec"]["averaging"]["gossip"] = {{"mode", "Neighbours"}, {"graph", "Complete"}};
  neighbours["spec"]["maxReplicas"] = 250;
  EXPECT_THAT(Problems(neighbours), ElementsAre());
  neighbours["spec"]["maxReplicas"] = 251;
  EXPECT_THAT(Problems(neighbours),
              ElementsAre(HasSubstr("spec.averaging.gossip.graph: Complete of 251")));
  neighbours["spec"].erase("maxReplicas");
  neighbours["spec"]["replicas"] = 300;
  EXPECT_THAT(Problems(neighbours),
              ElementsAre(HasSubstr("spec.averaging.gossip.graph: Complete of 300")));
  neighbours["spec"]["averaging"]["gossip"]["mode"] = "Pairs";  // one partner at a time
  EXPECT_THAT(Problems(neighbours), ElementsAre());

  json acid = With("/averaging/strategy", "A2CiD2");
  acid["spec"]["averaging"]["a2cid2"] = {{"graph", "Complete"}};
  EXPECT_THAT(Problems(acid), ElementsAre());
  acid["spec"]["averaging"]["a2cid2"] = {{"graph", "Torus"}};
  EXPECT_THAT(Problems(acid), ElementsAre(HasSubstr("spec.averaging.a2cid2.graph: Torus needs at "
                                                    "least 9 workers, this job has 8 at most")));
  acid["spec"]["averaging"]["a2cid2"] = {{"graph", "Complete"}};
  for (const char* idle : {"groupSize", "interval"}) acid["spec"]["averaging"].erase(idle);
  const auto warned = Warnings({acid, {}});
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_THAT(warned.front().problem, HasSubstr("plain gossip with twice the memory"));
}

TEST(ValidateStrategiesTest, WarnsOfWhatPowerGossipDoesNot) {
  json document = With("/averaging/strategy", "PowerGossip");
  document["spec"]["averaging"].erase("groupSize");  // which has a warning of its own
  EXPECT_THAT(Warnings({document, {}}), ElementsAre());
  document["spec"]["averaging"]["overlap"] = "Delayed";
  EXPECT_THAT(Warnings({document, {}}), ElementsAre());
  document["spec"]["averaging"]["overlap"] = "Blocking";
  document["spec"]["averaging"]["powerGossip"] = {{"denseEvery", 1}, {"graph", "Hypercube"}};
  const auto warned = Warnings({document, {}});
  ASSERT_EQ(warned.size(), 3u);
  EXPECT_EQ(warned[0].path, "spec.averaging.overlap");
  EXPECT_THAT(warned[0].problem, HasSubstr("is ignored: PowerGossip"));
  EXPECT_EQ(warned[1].path, "spec.averaging.powerGossip.denseEvery");
  EXPECT_THAT(warned[2].problem, HasSubstr("Hypercube fits only some numbers of workers"));
}

TEST(ValidateStrategiesTest, WarnsThatRelaySumWaits) {
  json document = With("/averaging/strategy", "RelaySum");
  document["spec"]["averaging"].erase("groupSize");  // which has a warning of its own
  EXPECT_THAT(Warnings({document, {}}), ElementsAre());
  document["spec"]["averaging"]["overlap"] = "Blocking";
  EXPECT_THAT(Warnings({document, {}}), ElementsAre());
  document["spec"]["averaging"]["overlap"] = "Delayed";
  const auto warned = Warnings({document, {}});
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_EQ(warned.front().path, "spec.averaging.overlap");
  EXPECT_THAT(warned.front().problem, HasSubstr("is ignored: RelaySum waits"));
  document["spec"]["averaging"]["strategy"] = "Moshpit";
  EXPECT_THAT(Warnings({document, {}}), ElementsAre());
}

}  // namespace
}  // namespace crowdsurf::controller
