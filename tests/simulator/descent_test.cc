// Jobs that minimise something while workers die and join, judged by the optimum of who is left.
// The bound is issue-wide: `./dev bench convergence` prints the same over more seeds.
#include "simulator/descent/descent.h"
#include "simulator/descent/outer_descent.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace crowdsurf::simulator {
namespace {

using worker::GraphKind;
using worker::StrategyKind;

// Prints what the agents say when CROWDSURF_TEST_LOG is set: for a failing seed.
class PrintSink : public LogSink {
 public:
  void Write(LogLevel, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    std::string line = std::string(module) + ": " + std::string(message);
    for (const LogField& f : fields) line += " " + std::string(f.key) + "=" + f.value;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
};

DescentOptions OptionsOf(StrategyKind strategy, GraphKind tree, uint64_t seed) {
  static PrintSink sink;
  DescentOptions options{.averaging = DescentAveraging(strategy, tree), .seed = seed};
  if (std::getenv("CROWDSURF_TEST_LOG") != nullptr) options.log = &sink;
  return options;
}

// Sixteen on an exponential graph with a matrix of rank above one between any two of them. Like all
// gossip it ends near the optimum and not at it, by a share of the rate.
DescentOptions PowerOptions(uint64_t seed, Duration end) {
  DescentOptions options = OptionsOf(StrategyKind::kPowerGossip, GraphKind::kExponential, seed);
  options.dimensions = 50;
  options.tensors = {{0, {8, 5}}};
  options.learning_rate = 0.01;
  options.end = end;
  return options;
}

// Sixteen, less three of whom the first steward is one, and two.
void ExpectOptimum(const DescentOptions& options) {
  const DescentResult result = RunDescent(options);
  SCOPED_TRACE("seed " + std::to_string(options.seed) + result.words);
  EXPECT_TRUE(result.together);
  EXPECT_EQ(result.survivors, 15);
  EXPECT_LE(result.distance, 1e-6);
  // It is no easier than that: whoever still had the dead in its average would be seen.
  EXPECT_GT(result.shift, 0.1);
}

TEST(Descent, MoshpitEndsAtTheOptimumOfWhoIsLeft) {
  ExpectOptimum(OptionsOf(StrategyKind::kMoshpit, GraphKind::kRing, 1));
}

// An outer optimizer changes the way there, and not the place; with a member that is killed, those
// that join and a switch from the plain mean and back on the way.
TEST(Descent, AnOuterOptimizerEndsAtTheOptimumOfWhoIsLeft) {
  for (const worker::OuterKind kind : {worker::OuterKind::kSgd, worker::OuterKind::kNesterov}) {
    DescentOptions options = OptionsOf(StrategyKind::kMoshpit, GraphKind::kRing, 3);
    options.averaging.outer = {.kind = kind, .learning_rate = 0.7, .momentum = 0.9};
    options.end = Seconds(12);  // momentum swings before it rests
    ExpectOptimum(options);
  }
}

// Every average of a job of real peers is that of a loop over the workers in doubles.
TEST(Descent, AnOuterOptimizerIsDiLoCoComputedOffLine) {
  for (const worker::OuterKind kind : {worker::OuterKind::kSgd, worker::OuterKind::kNesterov}) {
    for (const uint16_t group : {uint16_t{3}, uint16_t{8}}) {
      const OuterComparison off_line =
          CompareWithDiLoCo({.outer = {kind, 0.7, 0.9}, .group_size = group, .seed = 5});
      EXPECT_GE(off_line.averages, 20U);
      EXPECT_LE(off_line.error, 1e-5);
    }
  }
  // It tells one from another: SGD without momentum is not DiLoCo's step.
  const OuterComparison plain =
      CompareWithMeans({.outer = {worker::OuterKind::kNesterov, 0.7, 0.9}, .seed = 5});
  EXPECT_GT(plain.error, 1e-2);
  EXPECT_FALSE(plain.bit_equal);
}

TEST(Descent, RateOneWithoutMomentumIsThePlainAverageToTheBit) {
  for (const uint64_t seed : {1U, 2U}) {
    const OuterComparison plain =
        CompareWithMeans({.outer = {worker::OuterKind::kSgd, 1, 0}, .seed = seed});
    EXPECT_GE(plain.averages, 20U);
    EXPECT_TRUE(plain.bit_equal) << "seed " << seed;
  }
}

TEST(Descent, AJobThatSwitchesToAnOuterOptimizerAndBackEndsAtTheOptimum) {
  DescentOptions options = OptionsOf(StrategyKind::kMoshpit, GraphKind::kRing, 4);
  worker::AveragingConfig outer = options.averaging, plain = options.averaging;
  outer.generation = 1;
  outer.outer = {.kind = worker::OuterKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9};
  plain.generation = 2;
  options.switches = {{Seconds(1), outer}, {Seconds(4), plain}};
  options.end = Seconds(10);
  ExpectOptimum(options);
}

TEST(Descent, RelaySumEndsAtTheOptimumOfWhoIsLeft) {
  ExpectOptimum(OptionsOf(StrategyKind::kRelaySum, GraphKind::kDoubleBinaryTree, 1));
  ExpectOptimum(OptionsOf(StrategyKind::kRelaySum, GraphKind::kChain, 2));
}

// The three longest-lived die while the view without the one before is being made, and two join.
TEST(Descent, StewardsThatDieOneAfterTheOtherLeaveOneView) {
  for (const uint64_t seed : {1U, 2U}) {
    DescentOptions options = OptionsOf(StrategyKind::kRelaySum, GraphKind::kDoubleBinaryTree, seed);
    options.deaths = {Seconds(1.5), Seconds(1.62), Seconds(1.75)};
    options.victims = {0, 1, 2};
    options.joins = {Seconds(1.55), Seconds(1.7)};
    // The job may still correct its factor seconds later, which moves the models for a while.
    options.averaging.mixing.lr_scale = false;
    ExpectOptimum(options);
  }
}

// The factor of the learning rate is counted by the whole job: one everywhere, whoever is faster.
void ExpectOneFactor(const DescentResult& result) {
  const worker::Graph chain = worker::MakeGraph(GraphKind::kChain, 16).value();
  ASSERT_EQ(result.lr_scales.size(), 16U);
  for (const double scale : result.lr_scales) EXPECT_EQ(scale, result.lr_scales[0]);
  EXPECT_GT(result.lr_scales[0], 2);
  EXPECT_LT(result.lr_scales[0], 2 + worker::MeanRelayDelay(chain));
}

TEST(Descent, RelaySumByDefaultEndsAtTheOptimumOfAll) {
  for (const double spread : {0.0, 0.1}) {
    for (const uint64_t seed : {1U, 2U}) {
      DescentOptions options = RelayDescent(seed);
      options.speed_spread = spread;
      const DescentResult result = RunDescent(options);
      SCOPED_TRACE("seed " + std::to_string(seed) + result.words);
      EXPECT_TRUE(result.together);
      EXPECT_LE(result.mean_square, 1e-12);
      ExpectOneFactor(result);
    }
  }
}

// Learning rates that differ are other weights of the losses: the end is elsewhere.
TEST(Descent, LearningRatesThatDifferAreSeen) {
  DescentOptions options = RelayDescent(1);
  options.rate_spread = 0.1;
  EXPECT_GT(RunDescent(options).mean_square, 1e-6);
}

TEST(Descent, TwoRunsOfASeedAreTheSameToTheLastByte) {
  const DescentOptions options = OptionsOf(StrategyKind::kRelaySum, GraphKind::kChain, 5);
  EXPECT_EQ(RunDescent(options).trace, RunDescent(options).trace);
  const DescentOptions power = PowerOptions(5, Seconds(3));
  EXPECT_EQ(RunDescent(power).trace, RunDescent(power).trace);
}

TEST(Descent, AWorkerThatTakesTwoStepsBetweenAveragesIsSeen) {
  DescentOptions options = OptionsOf(StrategyKind::kRelaySum, GraphKind::kChain, 1);
  options.plant_second_step = true;
  EXPECT_GT(RunDescent(options).distance, 1e-3);
}

// Three die in whatever step they are in, and two join: the others end together, and where the dead
// pull no more.
TEST(Descent, PowerGossipEndsNearTheOptimumOfWhoIsLeft) {
  constexpr int kSeeds = 3;  // one alone ends at .41 to .51 of the shift
  double share = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const DescentResult result = RunDescent(PowerOptions(seed, Seconds(20)));
    SCOPED_TRACE(result.words);
    EXPECT_TRUE(result.together);
    EXPECT_EQ(result.survivors, 15);
    EXPECT_GT(result.shift, 0.1);
    share += result.distance / result.shift / kSeeds;
  }
  EXPECT_LT(share, 0.5);
}

TEST(Descent, AWorkerThatPowerGossipLeavesAloneIsSeen) {
  DescentOptions options = PowerOptions(1, Seconds(6));
  options.plant_alone = true;
  const DescentResult result = RunDescent(options);
  EXPECT_FALSE(result.together);
  EXPECT_GT(result.distance, 2 * result.shift);
}

// The same of strategies that mix in pairs.
TEST(Descent, PairsEndNearTheOptimumOfWhoIsLeft) {
  for (const StrategyKind strategy : {StrategyKind::kGossip, StrategyKind::kA2CiD2}) {
    DescentOptions options = OptionsOf(strategy, GraphKind::kExponential, 1);
    options.averaging.overlap = worker::Overlap::kDelayed;
    options.learning_rate = 0.01;
    options.end = Seconds(20);
    const DescentResult result = RunDescent(options);
    SCOPED_TRACE(result.words);
    EXPECT_TRUE(result.together);
    EXPECT_EQ(result.survivors, 15);
    EXPECT_LT(result.distance, result.shift / 2);
    EXPECT_GT(result.shift, 0.1);
    options.plant_alone = true;
    options.end = Seconds(6);
    EXPECT_GT(RunDescent(options).distance, 2 * result.shift) << "who is alone is seen";
  }
}

// Nobody speaks to it, and it to nobody, from its second second on.
TEST(Descent, AWorkerThatIsAloneIsSeen) {
  DescentOptions options = OptionsOf(StrategyKind::kMoshpit, GraphKind::kRing, 1);
  options.plant_alone = true;
  options.end = Seconds(4);
  const DescentResult result = RunDescent(options);
  EXPECT_FALSE(result.together);
  EXPECT_GT(result.distance, 1e-3);
}

}  // namespace
}  // namespace crowdsurf::simulator
