// One contract for all strategies: the same body drives each through joins, losses, duplicates,
// overtaking, NaN, another view's frames, restarts; with the claims that are each one's own after
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "tests/contract/world/allocation_watch.h"
#include "tests/contract/world/mixing_world.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/power/power_frames.h"
#include "worker/core/power/power_layout.h"
#include "worker/core/strategy/a2cid2.h"

namespace crowdsurf::worker {
namespace {

struct Case {
  std::string name;
  AveragingConfig config;
  uint64_t copies_of_inner = 0;  // extra copies of the vector at the second of five workers
};

// Values in the extra regions of that worker.
uint64_t ReservedBy(const Case& one, uint64_t elements) {
  if (one.config.strategy != StrategyKind::kPowerGossip) return one.copies_of_inner * elements;
  // On a ring: two edges, each with both ends' frames of this step and of the next.
  const MixingConfig& mixing = one.config.mixing;
  const PowerLayout layout(ViewsOfContract(elements), elements, mixing.rank);
  const uint64_t heads = 2 * PowerFrames::kHead;
  if (mixing.dense_every == 0) return 4 * (heads + layout.MessageSize(1) + layout.MessageSize(2));
  const uint64_t longest = std::max(layout.MessageSize(1), layout.MessageSize(2));
  return 4 * (heads + longest + elements);  // every fourth step is dense: the even ones
}

AveragingConfig Config(StrategyKind strategy, GraphKind graph) {
  AveragingConfig config;
  config.strategy = strategy;
  config.mixing.graph = graph;
  config.interval = 2;
  config.compression = WireFormat::kFloat32;
  return config;
}

std::vector<Case> Cases() {
  Case neighbours{"GossipNeighbours", Config(StrategyKind::kGossip, GraphKind::kRing), 2};
  neighbours.config.mixing.gossip = GossipMode::kNeighbours;
  Case dense{"PowerGossipDense", Config(StrategyKind::kPowerGossip, GraphKind::kRing)};
  dense.config.mixing.rank = 2;
  dense.config.mixing.iterations = 3;
  dense.config.mixing.dense_every = 4;
  return {{"Moshpit", Config(StrategyKind::kMoshpit, GraphKind::kRing), 0},
          {"AllReduce", Config(StrategyKind::kAllReduce, GraphKind::kRing), 0},
          {"IST", Config(StrategyKind::kIst, GraphKind::kRing), 0},
          {"GossipPairs", Config(StrategyKind::kGossip, GraphKind::kRing), 3},
          neighbours,
          {"A2CiD2", Config(StrategyKind::kA2CiD2, GraphKind::kRing), 4},
          {"RelaySumChain", Config(StrategyKind::kRelaySum, GraphKind::kChain), 2},
          {"RelaySumStar", Config(StrategyKind::kRelaySum, GraphKind::kStar), 1},
          // The second worker: three neighbours on one tree, one on the other, half a vector each.
          {"RelaySumTrees", Config(StrategyKind::kRelaySum, GraphKind::kDoubleBinaryTree), 2},
          {"PowerGossip", Config(StrategyKind::kPowerGossip, GraphKind::kRing)},
          dense};
}

class StrategyContract : public testing::TestWithParam<Case> {
 protected:
  const AveragingConfig& config() const { return GetParam().config; }
  bool on_graph() const { return IsOnGraph(config().strategy); }
};

// Everybody drifts apart by a value of its own, then the strategy brings them together.
void Disperse(MixingWorld& world) {
  for (const int i : world.Living())
    for (double& p : world.parameters(i)) p += i - 2.0;
}

uint64_t NotFinite(const MixingWorld& world) {
  uint64_t chunks = 0;
  for (const int i : world.Living())
    chunks += world.mixing(i).pairs().not_finite + world.mixing(i).edges().not_finite +
              world.mixing(i).power().not_finite;
  return chunks;
}

uint64_t Body(const AveragingConfig& config, uint64_t seed, const std::string& name) {
  SCOPED_TRACE(name + " seed " + std::to_string(seed));
  MixingWorldOptions options{.config = config,
                             .elements = 256,
                             .chunk_elements = 64,
                             .loss = .02,
                             .repeat = .05,
                             .seed = seed};
  const bool on_graph = IsOnGraph(config.strategy);
  MixingWorld world(options);
  for (int i = 0; i < 5; ++i) world.Add(i);
  world.MakeView();
  EXPECT_NEAR(world.Spread(), 0, 1e-12);
  EXPECT_NEAR(world.Mean(), 2, 1e-12);
  const auto mix = [&] {  // averagings of their own for who has no graph
    if (!on_graph) world.MakeView();
    world.RunFor(Seconds(20));
  };
  Disperse(world);
  mix();
  EXPECT_LT(world.Spread(), 0.05);
  EXPECT_NEAR(world.Mean(), 2, 0.6);  // what is lost on the way may move it, but not far

  // One dies in the middle of whatever it does; its neighbours go on, then without it.
  Disperse(world);
  world.RunFor(Milliseconds(137));
  world.Kill(1);
  world.RunFor(Seconds(1));
  world.MakeView();
  EXPECT_NEAR(world.Spread(), 0, 1e-12);

  // Two join; one of them sends a NaN, another a frame of another view: nobody takes either.
  world.Add(7);
  const int last = world.Add(9);
  world.MakeView();
  Disperse(world);
  world.PlantForeign(0);
  // Not every chunk is judged: one that comes twice, or finds no room, is dropped unseen.
  for (int i = 0; i < 20 && on_graph && NotFinite(world) == 0; ++i) {
    world.PlantNaN(last);
    world.RunFor(Milliseconds(50));
  }
  mix();
  EXPECT_LT(world.Spread(), 0.1);
  if (on_graph) {
    uint64_t foreign = 0;
    for (const int i : world.Living()) foreign += world.mixing(i).foreign();
    EXPECT_GE(NotFinite(world), 1u);
    EXPECT_GE(foreign, 1u);
  }
  // Save and load: a worker restarts as another peer from the parameters alone.
  const std::vector<double> saved = world.parameters(last);
  world.Kill(last);
  const int restarted = world.Add(9);
  world.parameters(restarted) = saved;
  world.MakeView();
  EXPECT_NEAR(world.Spread(), 0, 1e-12);
  mix();
  EXPECT_LT(world.Spread(), 1e-6);
  return world.trace();
}

TEST_P(StrategyContract, SurvivesWhatACrowdDoes) { (void)Body(config(), 1, GetParam().name); }

TEST_P(StrategyContract, TwoRunsOfASeedAreOne) {
  const uint64_t trace = Body(config(), 11, GetParam().name);
  EXPECT_EQ(Body(config(), 11, GetParam().name), trace);
  if (!on_graph()) return;
  EXPECT_NE(Body(config(), 12, GetParam().name), trace);
}

TEST_P(StrategyContract, MemoryIsAsDeclaredAndNoExchangeCopiesTheVector) {
  MixingWorldOptions options{.config = config(), .elements = 16'384, .chunk_elements = 1024};
  MixingWorld world(options);
  for (int i = 0; i < 5; ++i) world.Add(i);
  world.MakeView();
  EXPECT_EQ(world.reserved(1), ReservedBy(GetParam(), options.elements));
  world.RunFor(Seconds(1));
  ForgetAllocations();
  world.RunFor(Seconds(1));
  EXPECT_LT(GreatestAllocation(), options.elements * sizeof(double) / 8);
  if (!on_graph()) return;
  EXPECT_GT(GreatestAllocation(), 0u) << "nobody watched";
  EXPECT_GT(world.mixing(1).delivered(), 5u);
}

// Trainers pull apart, each to its own target: nobody runs away, and the mean is where all pull.
TEST_P(StrategyContract, TrainersThatPullApartAreHeldTogether) {
  if (!on_graph()) return;
  MixingWorldOptions options{
      .config = config(), .elements = 64, .chunk_elements = 16, .learning_rate = 0.002};
  MixingWorld world(options);
  for (int i = 0; i < 8; ++i) world.Add(i);
  world.MakeView();
  world.RunFor(Seconds(60));
  EXPECT_NEAR(world.Mean(), 3.5, 0.2);
  EXPECT_LT(world.Spread(), 2.0);  // alone they would be 7 apart
}

INSTANTIATE_TEST_SUITE_P(All, StrategyContract, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

// ---- claims of their own -----------------------------------------------------------------------

MixingWorld Quiet(StrategyKind strategy, GraphKind graph, uint64_t seed = 3) {
  return MixingWorld(
      {.config = Config(strategy, graph), .elements = 128, .chunk_elements = 32, .seed = seed});
}

// Pairs keep the mean exactly, whatever overtakes, repeats or loses what.
TEST(GossipTest, PairsKeepTheMean) {
  for (const double loss : {0.0, 0.02}) {
    AveragingConfig config = Config(StrategyKind::kGossip, GraphKind::kExponential);
    // Rare, so that what waits for a lost chunk does not hold up all others.
    if (loss > 0) config.interval = 8;
    MixingWorld world({.config = config,
                       .elements = 128,
                       .chunk_elements = 32,
                       .loss = loss,
                       .repeat = loss,
                       .seed = 3});
    for (int i = 0; i < 8; ++i) world.Add(i);
    world.MakeView();
    for (const int i : world.Living()) world.parameters(i).assign(128, i * i);
    world.RunFor(Seconds(60));
    // Nothing is given up, even where much is lost.
    for (const int i : world.Living()) EXPECT_EQ(world.mixing(i).pairs().aborted, 0u) << i;
    world.Drain();
    EXPECT_NEAR(world.Mean(), 17.5, 1e-12) << loss;
    EXPECT_LT(world.Spread(), 1e-6) << loss;
    for (const int i : world.Living()) EXPECT_EQ(world.mixing(i).pairs().one_sided, 0u) << i;
  }
}

// Both ends go by one rounded difference: a short format keeps the mean, too.
TEST(GossipTest, PairsKeepTheMeanInAShortFormat) {
  AveragingConfig config = Config(StrategyKind::kGossip, GraphKind::kRing);
  config.compression = WireFormat::kBFloat16;
  MixingWorld world({.config = config, .elements = 128, .chunk_elements = 32, .seed = 3});
  for (int i = 0; i < 8; ++i) world.Add(i);
  world.MakeView();
  for (const int i : world.Living()) world.parameters(i).assign(128, i * i);
  world.RunFor(Seconds(60));
  world.Drain();
  EXPECT_NEAR(world.Mean(), 17.5, 1e-12);
  EXPECT_LT(world.Spread(), 0.5);  // the spacing of numbers of eight bits near 17.5 is .125
}

// Nabli et al. 2023: the sum of x and x-tilde over all never changes but by what trainers do.
TEST(A2CiD2Test, SumOfBothModelsIsInvariant) {
  MixingWorld world = Quiet(StrategyKind::kA2CiD2, GraphKind::kRing);
  for (int i = 0; i < 16; ++i) world.Add(i);
  world.MakeView();          // everybody has the mean
  world.RunFor(Seconds(2));  // and an x-tilde
  for (const int i : world.Living()) world.parameters(i).assign(128, i * i);
  double expected = 2 * 16 * 7.5;
  for (const int i : world.Living()) expected += 2 * (i * i - 7.5);  // both move by the change
  world.RunFor(Milliseconds(200));
  EXPECT_GT(world.Spread(), 1) << "nothing was left to be mixed";
  world.RunFor(Seconds(20));
  world.Drain();
  double sum = 0;
  for (const int i : world.Living()) {
    ASSERT_GT(world.mixing(i).delivered(), 10u) << i;
    sum += world.extra(i, 0)[0] + world.extra(i, 1)[0];
    EXPECT_EQ(world.mixing(i).pairs().one_sided, 0u) << i;
  }
  EXPECT_NEAR(sum / expected, 1, 1e-12);
}

// RelaySum ends at the exact optimum of all, though nobody waits and one message in ten is lost.
TEST(RelaySumTest, EndsAtTheOptimumUnderLoss) {
  for (const GraphKind tree : {GraphKind::kChain, GraphKind::kDoubleBinaryTree, GraphKind::kStar}) {
    AveragingConfig config = Config(StrategyKind::kRelaySum, tree);
    config.interval = 1;
    MixingWorld world({.config = config,
                       .elements = 128,
                       .chunk_elements = 32,
                       .loss = .1,
                       .learning_rate = 0.05});
    for (int i = 0; i < 8; ++i) world.Add(i);
    world.MakeView();
    world.RunFor(Seconds(60));
    EXPECT_NEAR(world.Mean(), 3.5, 1e-9) << NameOf(tree);
    // All step at once, so a message counts a step later, and a lost one later still: more than
    // the learning rate is ever multiplied by.
    const Graph first = TreesOf(tree, 8).value()[0];
    EXPECT_NEAR(world.lr_scale(3), 1 + MeanRelayDelay(first) + 7.0 / 8, 1e-9) << NameOf(tree);
  }
}

// The same under the defaults of a manifest, where curvatures differ: the optimum of all is not the
// mean of the targets, and only gradients that are taken at the average weigh curvatures rightly.
TEST(RelaySumTest, EndsAtTheOptimumOfUnequalCurvaturesByDefault) {
  AveragingConfig config;
  config.strategy = StrategyKind::kRelaySum;
  config.mixing.graph = GraphKind::kChain;
  config.interval = 1;
  MixingWorld world(
      {.config = config, .elements = 16, .chunk_elements = 8, .learning_rate = 0.05, .seed = 5});
  constexpr int kNodes = 16;
  double weighted = 0, total = 0;
  for (int i = 0; i < kNodes; ++i) {
    const double target = (i * 7 % kNodes) / 4.0, curvature = 0.25 + 0.05 * i;
    world.Add(target, curvature);
    weighted += curvature * target;
    total += curvature;
  }
  world.MakeView();
  world.RunFor(Seconds(60));
  double squares = 0;
  for (int i = 0; i < kNodes; ++i) {
    const double off = world.parameters(i)[0] - weighted / total;
    squares += off * off / kNodes;
  }
  EXPECT_LT(squares, 1e-12);
}

// A view change while messages are on the way: what they carry is of another view, and is dropped.
TEST(RelaySumTest, NothingCrossesAViewChange) {
  AveragingConfig config = Config(StrategyKind::kRelaySum, GraphKind::kChain);
  MixingWorld world(
      {.config = config, .elements = 128, .chunk_elements = 32, .delay = Milliseconds(200)});
  for (int i = 0; i < 6; ++i) world.Add(i);
  world.MakeView();
  for (const int i : world.Living()) world.parameters(i).assign(128, 1000);
  world.RunFor(Milliseconds(150));
  for (const int i : world.Living()) world.parameters(i).assign(128, 1);
  world.Kill(5);
  world.MakeView();
  world.RunFor(Seconds(30));
  uint64_t foreign = 0;
  for (const int i : world.Living()) foreign += world.mixing(i).foreign();
  EXPECT_GT(foreign, 0u);
  EXPECT_NEAR(world.Mean(), 1, 1e-9);
}

}  // namespace
}  // namespace crowdsurf::worker
