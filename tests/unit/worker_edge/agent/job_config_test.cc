// The agent's reading of the manifest's fields is the table's: its choices, its bounds, its
// defaults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/manifest/fields.h"
#include "worker/edge/agent/agent_options.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

// A config with `value` at `path`, and what else must stand beside it.
std::string ConfigWith(const std::string& path, const Json& value) {
  Json config = Json::object();
  if (path.starts_with("averaging.gossip")) config["averaging"]["strategy"] = "Gossip";
  if (path.starts_with("averaging.a2cid2")) config["averaging"]["strategy"] = "A2CiD2";
  if (path.starts_with("averaging.relaySum")) config["averaging"]["strategy"] = "RelaySum";
  if (path.starts_with("averaging.powerGossip")) config["averaging"]["strategy"] = "PowerGossip";
  if (path.starts_with("target.metric")) config["target"]["metric"]["name"] = "loss";
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  config[Json::json_pointer(pointer)] = value;
  return config.dump();
}

AveragingConfig Read(const std::string& path, const Json& value) {
  const ParsedJobConfig read = ParseJobConfig(ConfigWith(path, value));
  EXPECT_THAT(read.violations, IsEmpty()) << path << " " << value;
  return read.config.averaging;
}

TEST(JobConfigTest, EachBoundIsThatOfTheManifest) {
  for (const char* path :
       {"averaging.groupSize", "averaging.interval.steps", "averaging.interval.samples",
        "averaging.interval.seconds", "averaging.a2cid2.rateCom", "averaging.relaySum.maxLag",
        "averaging.powerGossip.rank", "averaging.powerGossip.iterations",
        "averaging.powerGossip.denseEvery", "target.samples", "target.steps", "target.seconds",
        "target.metric.below", "target.metric.above", "checkpoint.intervalSeconds",
        "checkpoint.retain"}) {
    const manifest::Field* row = manifest::FindField(path);
    ASSERT_NE(row, nullptr) << path;
    const double beyond = row->max > 1e15 ? 10 : 0.001;  // more than a rounding, at any size
    for (const double good : {row->min, row->max})
      EXPECT_THAT(ParseJobConfig(ConfigWith(path, good)).violations, IsEmpty()) << path;
    for (const double bad : {row->min - beyond, row->max + beyond})
      EXPECT_EQ(ParseJobConfig(ConfigWith(path, bad)).violations.size(), 1u) << path << " " << bad;
  }
}

TEST(JobConfigTest, EachChoiceIsTheEnumeratorOfItsName) {
  const auto strategy = [](const char* name) { return Read("averaging.strategy", name).strategy; };
  EXPECT_EQ(strategy("Moshpit"), StrategyKind::kMoshpit);
  EXPECT_EQ(strategy("AllReduce"), StrategyKind::kAllReduce);
  EXPECT_EQ(strategy("Gossip"), StrategyKind::kGossip);
  EXPECT_EQ(strategy("A2CiD2"), StrategyKind::kA2CiD2);
  EXPECT_EQ(strategy("RelaySum"), StrategyKind::kRelaySum);
  const auto wire = [](const char* name) {
    return Read("averaging.compression", name).compression;
  };
  EXPECT_EQ(wire("None"), WireFormat::kFloat32);
  EXPECT_EQ(wire("Float16"), WireFormat::kFloat16);
  EXPECT_EQ(wire("BFloat16"), WireFormat::kBFloat16);
  EXPECT_EQ(wire("Int8"), WireFormat::kInt8);
  EXPECT_EQ(Read("averaging.overlap", "Delayed").overlap, Overlap::kDelayed);
  EXPECT_EQ(Read("averaging.overlap", "Blocking").overlap, Overlap::kBlocking);
  EXPECT_EQ(Read("averaging.rounds", "All").rounds, RoundsMode::kAll);
  EXPECT_EQ(Read("averaging.rounds", "One").rounds, RoundsMode::kOne);
  EXPECT_EQ(Read("averaging.weighting", "Samples").weighting, Weighting::kSamples);
  EXPECT_EQ(Read("averaging.weighting", "Equal").weighting, Weighting::kEqual);
  EXPECT_EQ(Read("averaging.grid", "Fitted").grid, GridMode::kFitted);
  EXPECT_EQ(Read("averaging.gossip.mode", "Pairs").mixing.gossip, GossipMode::kPairs);
  EXPECT_EQ(Read("averaging.gossip.mode", "Neighbours").mixing.gossip, GossipMode::kNeighbours);
  EXPECT_EQ(Read("averaging.powerGossip.rank", 3).mixing.rank, 3);
  EXPECT_EQ(Read("averaging.powerGossip.iterations", 5).mixing.iterations, 5);
  EXPECT_EQ(Read("averaging.powerGossip.denseEvery", 7).mixing.dense_every, 7u);
  EXPECT_TRUE(Read("averaging.relaySum.lrScale", "Auto").mixing.lr_scale);
  EXPECT_FALSE(Read("averaging.relaySum.lrScale", "Off").mixing.lr_scale);
  for (const char* path : {"averaging.gossip.graph", "averaging.a2cid2.graph",
                           "averaging.relaySum.tree", "averaging.powerGossip.graph"}) {
    for (const std::string_view name : manifest::SplitChoices(manifest::FindField(path)->choices))
      EXPECT_EQ(NameOf(Read(path, name).mixing.graph), name) << path;
  }
}

TEST(JobConfigTest, Int8NeedsOneGroupAndParameters) {
  const auto read = [](const std::string& more) {
    return ParseJobConfig(R"({"averaging": {"compression": "Int8")" + more + "}}");
  };
  EXPECT_TRUE(read("").violations.empty());
  EXPECT_EQ(read(R"(, "strategy": "AllReduce")").config.averaging.compression, WireFormat::kInt8);
  for (const char* strategy : {"Gossip", "A2CiD2", "RelaySum", "PowerGossip", "IST"}) {
    EXPECT_THAT(read(R"(, "strategy": ")" + std::string(strategy) + R"(")").violations,
                ElementsAre("averaging.compression: Int8 needs one group of all workers; " +
                            std::string(strategy) + " has none, Moshpit, AllReduce can"));
  }
  EXPECT_THAT(
      read(R"(, "what": "Gradients", "globalBatch": 8, "overlap": "Blocking")").violations,
      ElementsAre("averaging.compression: Int8 sends changes of parameters; with what: Gradients "
                  "choose None, Float16 or BFloat16"));
}

TEST(JobConfigTest, OneRoundNeedsValuesWithoutACommonBase) {
  const auto read = [](const std::string& more) {
    return ParseJobConfig(R"({"averaging": {"rounds": "One")" + more + "}}");
  };
  EXPECT_TRUE(read("").violations.empty());
  EXPECT_THAT(read(R"(, "outerOptimizer": {"type": "SGD"})").violations,
              ElementsAre("averaging.rounds: One leaves groups with values of their own, and an "
                          "outerOptimizer steps from one base of all workers: choose All"));
  EXPECT_THAT(read(R"(, "compression": "Int8")").violations,
              ElementsAre("averaging.rounds: One leaves groups with values of their own, and "
                          "compression: Int8 sends changes from one base of all workers: choose "
                          "All"));
  EXPECT_TRUE(read(R"(, "compression": "Int8", "strategy": "AllReduce")").violations.empty());
}

TEST(JobConfigTest, WithoutAFieldItsDefaultHolds) {
  const AveragingConfig none = ParseJobConfig("{}").config.averaging;
  EXPECT_EQ(none.strategy, StrategyKind::kMoshpit);
  EXPECT_EQ(none.group_size, 16);
  EXPECT_EQ(none.interval_unit, IntervalUnit::kSteps);
  EXPECT_EQ(none.interval, 50);
  EXPECT_EQ(none.compression, WireFormat::kFloat16);
  EXPECT_EQ(none.overlap, Overlap::kDelayed);
  EXPECT_EQ(none.weighting, Weighting::kSamples);
  EXPECT_EQ(none.mixing.rate_com, 1);
  EXPECT_EQ(none.mixing.max_lag, 4);
  EXPECT_EQ(none.mixing.rank, 1);
  EXPECT_EQ(none.mixing.iterations, 1);
  EXPECT_EQ(none.mixing.dense_every, 0u);
  EXPECT_TRUE(none.mixing.lr_scale);
  const JobConfig job = ParseJobConfig("{}").config;
  EXPECT_EQ(job.checkpoint_seconds, 300);
  EXPECT_EQ(job.checkpoint_retain, 3);
  EXPECT_THAT(job.roles, ElementsAre(LinkRole::kParameter));
  const auto graph = [](const char* strategy) {
    return Read("averaging.strategy", strategy).mixing.graph;
  };
  EXPECT_EQ(graph("Gossip"), GraphKind::kExponential);
  EXPECT_EQ(graph("A2CiD2"), GraphKind::kRing);
  EXPECT_EQ(graph("RelaySum"), GraphKind::kDoubleBinaryTree);
  EXPECT_EQ(graph("PowerGossip"), GraphKind::kRing);
}

TEST(JobConfigTest, ReadsAnOuterOptimizer) {
  const auto outer = [](const char* text) { return ParseJobConfig(text).config.averaging.outer; };
  EXPECT_EQ(outer("{}"), OuterOptimizer());
  EXPECT_EQ(outer(R"({"averaging": {"outerOptimizer": {"type": "None", "momentum": 0.5}}})"),
            OuterOptimizer());
  EXPECT_EQ(outer(R"({"averaging": {"outerOptimizer": {"type": "Nesterov"}}})"),
            (OuterOptimizer{OuterKind::kNesterov, 0.7, 0.9}));
  EXPECT_EQ(outer(R"({"averaging": {"strategy": "AllReduce", "outerOptimizer":
                      {"type": "SGD", "learningRate": 1, "momentum": 0,
                       "warmupSamples": 5000}}})"),
            (OuterOptimizer{OuterKind::kSgd, 1, 0, 5'000}));
}

TEST(JobConfigTest, AnOuterOptimizerIsRefusedWhereItCannotBe) {
  const auto violations = [](const char* text) { return ParseJobConfig(text).violations; };
  EXPECT_THAT(violations(R"({"averaging": {"strategy": "Gossip",
                                           "outerOptimizer": {"type": "SGD"}}})"),
              ElementsAre("averaging.outerOptimizer.type: Gossip has no base that all workers "
                          "share; outer optimizers work with Moshpit, AllReduce"));
  EXPECT_THAT(violations(R"({"averaging": {"outerOptimizer":
                             {"type": "Adam", "learningRate": 0, "momentum": 2,
                              "warmupSamples": -1}}})"),
              ElementsAre("averaging.outerOptimizer.type: \"Adam\" is none of None, SGD, Nesterov",
                          "averaging.outerOptimizer.learningRate: 0 is below 1e-09",
                          "averaging.outerOptimizer.momentum: 2 is above 1",
                          "averaging.outerOptimizer.warmupSamples: -1 is below 0"));
}

TEST(JobConfigTest, GradientsHaveAGlobalBatchAndBlock) {
  const ParsedJobConfig parsed = ParseJobConfig(
      R"({"averaging": {"what": "Gradients", "globalBatch": 4096, "overlap": "Blocking"}})");
  EXPECT_THAT(parsed.violations, ElementsAre());
  EXPECT_EQ(parsed.config.averaging.global_batch, 4096U);
  EXPECT_EQ(ParseJobConfig("{}").config.averaging.global_batch, 0U);
  EXPECT_THAT(ParseJobConfig(R"({"averaging": {"what": "Gradients", "globalBatch": 0,
                                 "overlap": "Blocking", "strategy": "IST"}})")
                  .violations,
              ElementsAre("averaging.what: Gradients needs one group of all workers; IST has none, "
                          "Moshpit, AllReduce can",
                          "averaging.globalBatch: 0 is below 1"));
  EXPECT_THAT(ParseJobConfig(R"({"averaging": {"globalBatch": 64}})").violations,
              ElementsAre("averaging.globalBatch: is only for what: Gradients"));
}

TEST(JobConfigTest, AChoiceThatIsKnownAndNotBuiltIsRefusedWithThoseThatAre) {
  EXPECT_THAT(ParseJobConfig(R"({"averaging": {"grid": "Paper"}})").violations,
              ElementsAre("averaging.grid: Paper is not built yet; this version has Fitted"));
  EXPECT_THAT(ParseJobConfig(R"({"averaging": {"strategy": "RelaySum",
                                               "relaySum": {"tree": "Ring"}}})")
                  .violations,
              ElementsAre("averaging.relaySum.tree: \"Ring\" is none of DoubleBinaryTree, "
                          "BinaryTree, Chain, Star"));
}

TEST(JobConfigTest, EveryFieldIsReadAndEveryViolationNamed) {
  const ParsedJobConfig good = ParseJobConfig(R"({"generation": 7, "averaging": {
      "strategy": "AllReduce", "groupSize": 4, "interval": {"seconds": 2.5},
      "compression": "BFloat16", "overlap": "Blocking", "rounds": "One", "weighting": "Equal",
      "roles": ["Parameter", "Buffer"]},
      "target": {"samples": 10, "metric": {"name": "loss", "below": 2}},
      "checkpoint": {"intervalSeconds": 60, "retain": 5}})");
  EXPECT_TRUE(good.violations.empty());
  const AveragingConfig& config = good.config.averaging;
  EXPECT_EQ(config.generation, 7u);
  EXPECT_EQ(config.strategy, StrategyKind::kAllReduce);
  EXPECT_EQ(config.interval_unit, IntervalUnit::kSeconds);
  EXPECT_EQ(config.interval, 2.5);
  EXPECT_EQ(config.compression, WireFormat::kBFloat16);
  EXPECT_EQ(config.overlap, Overlap::kBlocking);
  EXPECT_EQ(config.rounds, RoundsMode::kOne);
  EXPECT_EQ(config.weighting, Weighting::kEqual);
  EXPECT_EQ(config.target.metric, "loss");
  EXPECT_TRUE(config.target.metric_below);
  EXPECT_EQ(good.config.roles.size(), 2u);
  EXPECT_EQ(good.config.checkpoint_retain, 5);

  const ParsedJobConfig bad = ParseJobConfig(R"({"averaging": {"strategy": "IST",
      "ist": {"store": "Sharded", "shares": "BySpeed"},
      "roles": ["Parameter", "OptimizerState"], "groupSize": 1, "interval": {"steps": 1, "seconds": 1}, "compression": "Int4"},
      "target": {"metric": {"name": "x"}}, "checkpoint": {"retain": 0}})");
  const std::vector<std::string> want = {
      "averaging.groupSize: 1 is below 2",
      "averaging.interval: must be exactly one of steps, samples, seconds",
      "averaging.roles: OptimizerState cannot be averaged with IST: a worker's optimizer has "
      "moments of its own units only",
      "averaging.ist.store: Sharded is not built yet; this version has Replicated",
      "averaging.ist.shares: BySpeed is not built yet; this version has Equal",
      "averaging.compression: Int4 is not built yet; this version has None, Float16, BFloat16, "
      "Int8",
      "target.metric: must have exactly one of below, above",
      "checkpoint.retain: 0 is below 1"};
  EXPECT_EQ(bad.violations, want);
  EXPECT_EQ(ParseJobConfig("{").violations.size(), 1u);
  EXPECT_FALSE(ParseJobConfig("[]").violations.empty());
}

}  // namespace
}  // namespace crowdsurf::worker
