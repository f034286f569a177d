// Claims about the decentralised strategies, each against its closed form or the published figure.
// The experiments are simulator/lock_step/convergence.h; `./dev bench convergence` prints the same
// figures over more seeds.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "simulator/lock_step/convergence.h"
#include "simulator/lock_step/power_consensus.h"
#include "worker/core/strategy/a2cid2.h"
#include "worker/core/strategy/relay_sum.h"

namespace crowdsurf::simulator {
namespace {

using worker::GraphKind;

// A2CiD2, section 3: the mixing is exp(delta [[-eta, eta], [eta, -eta]]).
TEST(A2CiD2PaperTest, MixingIsTheMatrixExponentialAndASemigroup) {
  const double eta = 0.1425;
  const auto two = worker::AcidMixing::After(eta, 0.7), rest = worker::AcidMixing::After(eta, 1.9);
  const auto whole = worker::AcidMixing::After(eta, 2.6);
  EXPECT_NEAR(whole.keep, (1 + std::exp(-2 * eta * 2.6)) / 2, 1e-15);
  EXPECT_NEAR(two.keep * rest.keep + two.swap * rest.swap, whole.keep, 1e-15);
  EXPECT_EQ(worker::AcidMixing::After(0, 5).swap, 0);
  double x = 3, xt = -1;
  worker::AcidMix(whole, std::span(&x, 1), std::span(&xt, 1));
  EXPECT_NEAR(x + xt, 2, 1e-15);
  EXPECT_NEAR(x - xt, 4 * std::exp(-2 * eta * 2.6), 1e-15);
}

// eta = 0 and alpha-tilde = 1/2 is plain pairwise gossip, bit for bit.
TEST(A2CiD2PaperTest, WithoutMomentumItIsGossip) {
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    const double a = rng.Normal(), b = rng.Normal();
    double x = a, xt = a;
    worker::AcidExchange(0.5, std::span(&a, 1), std::span(&b, 1), std::span(&x, 1),
                         std::span(&xt, 1));
    EXPECT_EQ(x, a + 0.5 * (b - a));
    EXPECT_EQ(x, xt);
  }
}

// Nabli et al. 2023: S = sum(x) + sum(x-tilde) is invariant whatever each worker's
// clock, and E1: the speed-up on rings over plain gossip (a correct build reproduces 2.5, 4.7, 8.9
// within 10-15 %).
TEST(A2CiD2PaperTest, RingsSpeedUpAsPublishedAndKeepTheirMean) {
  struct Row {
    uint32_t n;
    double least;
  };
  for (const Row& row : {Row{16, 2.2}, Row{32, 4.0}}) {
    double gossip = 0, momentum = 0;
    constexpr int kSeeds = 15;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const auto plain = RunConsensus({.n = row.n, .momentum = false, .seed = seed});
      const auto fast = RunConsensus({.n = row.n, .momentum = true, .seed = seed});
      ASSERT_TRUE(plain.reached && fast.reached) << "seed " << seed;
      EXPECT_LT(fast.invariant_drift, 1e-12) << "seed " << seed;
      gossip += plain.exchanges;
      momentum += fast.exchanges;
    }
    EXPECT_GT(gossip / momentum, row.least) << "n " << row.n;
  }
}

// Finding 2: on a complete graph A2CiD2 is plain gossip (alpha-tilde = 1/2, no gain), measured 24.6
// against 24.0.
TEST(A2CiD2PaperTest, NothingIsGainedOnACompleteGraph) {
  double gossip = 0, momentum = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    gossip +=
        RunConsensus({.kind = GraphKind::kComplete, .momentum = false, .seed = seed}).exchanges;
    momentum +=
        RunConsensus({.kind = GraphKind::kComplete, .momentum = true, .seed = seed}).exchanges;
  }
  EXPECT_NEAR(gossip / momentum, 1.0, 0.1);
}

// RelaySum: everybody holds the exact mean after diameter steps (integers: bit-exact); two workers
// after one.
TEST(RelaySumPaperTest, TheMeanIsExactAfterDiameterSteps) {
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kChain, 16), 15u);
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kStar, 16), 2u);
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kBinaryTree, 16), 6u);
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kDoubleBinaryTree, 16), 6u);
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kBinaryTree, 32), 8u);
  EXPECT_EQ(RelayFiniteSteps(GraphKind::kChain, 2), 1u);
}

// The delivered value of one update is 1 / (1 + mean delay) for every source (chain-8: 0.363636,
// tree-16: 0.301176).
TEST(RelaySumPaperTest, AnUpdateArrivesDilutedByItsClosedForm) {
  const auto delivered = [](GraphKind kind, uint32_t n) {
    return 1 / (1 + worker::MeanRelayDelay(worker::MakeGraph(kind, n).value()));
  };
  EXPECT_NEAR(delivered(GraphKind::kChain, 8), 0.363636, 1e-6);
  EXPECT_NEAR(delivered(GraphKind::kChain, 16), 0.186047, 1e-6);
  EXPECT_NEAR(delivered(GraphKind::kBinaryTree, 16), 0.301176, 1e-6);
  EXPECT_LT(RelayDeliveryError(GraphKind::kChain, 8), 1e-6);
  EXPECT_LT(RelayDeliveryError(GraphKind::kChain, 16), 1e-6);
  EXPECT_LT(RelayDeliveryError(GraphKind::kBinaryTree, 16), 1e-6);
}

// E4: with latest-wins edge memory 10 % of lost messages still end at the exact optimum; every
// deletion fallback stays above 1e-4. And with half of the workers active a tick.
TEST(RelaySumPaperTest, LostMessagesAndAsynchronyStillReachTheOptimum) {
  for (const GraphKind tree :
       {GraphKind::kChain, GraphKind::kBinaryTree, GraphKind::kDoubleBinaryTree}) {
    EXPECT_LT(RunRelay({.tree = tree, .loss = 0.1}).distance, 1e-12) << worker::NameOf(tree);
    EXPECT_LT(RunRelay({.tree = tree, .active = 0.5, .steps = 8000}).distance, 1e-12)
        << worker::NameOf(tree);
  }
}

// A message never contains anything from its target's side, and counts what it contains.
TEST(RelaySumPaperTest, MessagesLeaveOutTheirTargetsSide) {
  const worker::Graph tree = worker::MakeGraph(GraphKind::kBinaryTree, 12).value();
  std::vector<worker::RelaySumMemory<double>> memories;
  for (uint32_t i = 0; i < 12; ++i) memories.emplace_back(tree, i, 12);
  for (uint64_t step = 1; step <= 12; ++step) {
    std::vector<std::tuple<uint32_t, uint32_t, worker::RelaySumMemory<double>::Message>> flying;
    for (uint32_t i = 0; i < 12; ++i) {
      std::vector<double> own(12, 0.0);
      own[i] = 1;
      for (const uint32_t j : memories[i].neighbours()) {
        worker::RelaySumMemory<double>::Message message;
        memories[i].Send(j, step, own, message);
        EXPECT_EQ(message.sum[j], 0);
        double ones = 0;
        for (const double v : message.sum) {
          EXPECT_TRUE(v == 0 || v == 1);
          ones += v;
        }
        EXPECT_EQ(message.count, ones);
        flying.emplace_back(i, j, message);
      }
    }
    for (const auto& [from, to, message] : flying) ASSERT_TRUE(memories[to].Receive(from, message));
  }
}

TEST(RelaySumPaperTest, StaleForeignAndImpossibleMessagesChangeNothing) {
  const worker::Graph chain = worker::MakeGraph(GraphKind::kChain, 4).value();
  worker::RelaySumMemory<double> memory(chain, 1, 2);
  EXPECT_TRUE(memory.Receive(0, {5, 1, {1, 2}}));
  EXPECT_FALSE(memory.Receive(0, {5, 1, {9, 9}}));  // not newer
  EXPECT_FALSE(memory.Receive(0, {4, 1, {9, 9}}));  // older
  EXPECT_FALSE(memory.Receive(3, {6, 1, {9, 9}}));  // no neighbour
  EXPECT_FALSE(memory.Receive(0, {6, 1, {9}}));     // wrong size
  EXPECT_FALSE(memory.Receive(0, {6, 4, {9, 9}}));  // counts the receiver too
  EXPECT_FALSE(memory.Receive(0, {6, 0, {9, 9}}));
  std::vector<double> y{3, 4}, x{0, 0};
  EXPECT_EQ(memory.Average(y, x), 2u);
  EXPECT_EQ(x[0], (3 + 1) / 4.0);
}

// Bytes a step: one message of the vector's size per edge direction, as gossip on the same tree.
TEST(RelaySumPaperTest, BytesEqualThoseOfGossipOnTheSameTree) {
  const double gossip =
      2.0 * 15 / 16 * 10 * 4;  // both ends of 15 edges send 10 float32, per worker
  EXPECT_NEAR(RunRelay({.tree = GraphKind::kChain, .steps = 10}).bytes_per_step / gossip, 1.0,
              0.01);
  EXPECT_NEAR(RunRelay({.tree = GraphKind::kDoubleBinaryTree, .steps = 10}).bytes_per_step / gossip,
              1.0, 0.01);
}

// PowerGossip (Vogels et al. 2020): the mean is kept and the spread never grows, whatever the graph
// and the rank; consensus is reached with the default step size of 1.
TEST(PowerGossipPaperTest, ConvergesOnEveryGraphAndKeepsTheMean) {
  for (const GraphKind graph :
       {GraphKind::kRing, GraphKind::kTorus, GraphKind::kChain, GraphKind::kBinaryTree}) {
    for (const uint32_t rank : {1U, 3U}) {
      const auto result = RunPowerConsensus(
          {.graph = graph, .n = 9, .shape = {12, 9}, .rank = rank, .matrices = MatrixKind::kNormal},
          1e-4, 20'000);
      EXPECT_TRUE(result.reached) << worker::NameOf(graph) << " rank " << rank;
      EXPECT_FALSE(result.grew) << worker::NameOf(graph) << " rank " << rank;
      EXPECT_LT(result.mean_drift, 1e-14) << worker::NameOf(graph) << " rank " << rank;
    }
  }
}

// Warm factors follow the low-rank part of the differences: so few values that a cold start, whose
// projection is random in each iteration, needs as many as plain gossip.
TEST(PowerGossipPaperTest, WarmFactorsNeedFewValuesWhereDifferencesAreOfLowRank) {
  const auto values = [](MatrixKind kind, uint32_t rank, bool warm = true) {
    const auto run = RunPowerConsensus({.rank = rank, .matrices = kind, .warm = warm}, 1e-4, 5'000);
    EXPECT_TRUE(run.reached);
    return run.floats;
  };
  EXPECT_EQ(values(MatrixKind::kRankOne, 0), 380'000);  // 19 iterations, two edges of 10,000 values
  EXPECT_LT(values(MatrixKind::kRankOne, 1), 40'000);
  EXPECT_LT(values(MatrixKind::kDecaying, 1), 250'000);
  EXPECT_LT(values(MatrixKind::kNormal, 1), 380'000);
  EXPECT_GT(values(MatrixKind::kRankOne, 1, false), 10 * values(MatrixKind::kRankOne, 1));
}

TEST(PowerGossipPaperTest, AnEdgeThatBeginsAtConsensusLives) {
  const double kept = SpreadAfterConsensus(worker::NullColumns::kKeep, 1);
  EXPECT_LT(kept, 0.1 * SpreadAfterConsensus(worker::NullColumns::kOverwrite, 1));
}

}  // namespace
}  // namespace crowdsurf::simulator
