// Graphs against closed forms, and against figures of the RelaySum and A2CiD2 papers.
#include "worker/core/view/graph.h"

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <cmath>
#include <numbers>

namespace crowdsurf::worker {
namespace {

constexpr GraphKind kAll[] = {GraphKind::kRing,        GraphKind::kChain,
                              GraphKind::kTorus,       GraphKind::kStar,
                              GraphKind::kBinaryTree,  GraphKind::kDoubleBinaryTree,
                              GraphKind::kExponential, GraphKind::kHypercube,
                              GraphKind::kComplete,    GraphKind::kBaseK};

// 1 - the second largest absolute eigenvalue of symmetric `weights`, row-major [n][n].
double SpectralGap(const std::vector<double>& weights, Eigen::Index n) {
  const Eigen::Map<const Eigen::MatrixXd> matrix(weights.data(), n, n);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix, Eigen::EigenvaluesOnly);
  const Eigen::VectorXd& values = solver.eigenvalues();  // ascending; the last is 1
  return 1.0 - std::max(std::abs(values(0)), std::abs(values(n - 2)));
}

AcidConstants Constants(GraphKind kind, uint32_t n) {
  const Graph graph = MakeGraph(kind, n).value();
  return AcidConstantsOf(graph, UniformRates(graph, 1.0)).value();
}

TEST(GraphTest, EveryKindIsConnectedForEveryCountItAccepts) {
  for (const GraphKind kind : kAll) {
    for (uint32_t n = 1; n <= 40; ++n) {
      const StatusOr<Graph> graph = MakeGraph(kind, n);
      if (!graph.ok()) {
        EXPECT_TRUE(kind == GraphKind::kHypercube || kind == GraphKind::kTorus)
            << NameOf(kind) << n;
        continue;
      }
      EXPECT_EQ(graph->nodes, n);
      EXPECT_LT(Diameter(*graph), std::max(n, 1u) + (n == 1)) << NameOf(kind) << n;
    }
  }
}

TEST(GraphTest, DegreesAreThoseOfTheFamilies) {
  const auto degrees = [](GraphKind kind, uint32_t n) {
    size_t most = 0;
    const Graph graph = MakeGraph(kind, n).value();
    for (const auto& list : graph.Neighbours()) most = std::max(most, list.size());
    return most;
  };
  EXPECT_EQ(degrees(GraphKind::kRing, 9), 2u);
  EXPECT_EQ(degrees(GraphKind::kTorus, 12), 4u);
  EXPECT_EQ(degrees(GraphKind::kHypercube, 16), 4u);
  EXPECT_EQ(degrees(GraphKind::kBinaryTree, 33), 3u);
  EXPECT_EQ(degrees(GraphKind::kComplete, 7), 6u);
  EXPECT_EQ(degrees(GraphKind::kExponential, 16), 7u);  // +-1, +-2, +-4, 8
}

// Vogels et al. 2021: the diameters after which RelaySum has delivered everything.
TEST(GraphTest, TreeDiametersMatchThePublishedOnes) {
  EXPECT_EQ(Diameter(MakeGraph(GraphKind::kChain, 16).value()), 15u);
  EXPECT_EQ(Diameter(MakeGraph(GraphKind::kBinaryTree, 16).value()), 6u);
  EXPECT_EQ(Diameter(MakeGraph(GraphKind::kBinaryTree, 32).value()), 8u);
}

// Vogels et al. 2021: 1 + mean delay of chains and trees.
TEST(GraphTest, RelayDelaysMatchTheClosedForms) {
  const auto scale = [](GraphKind kind, uint32_t n) {
    return 1 + MeanRelayDelay(MakeGraph(kind, n).value());
  };
  EXPECT_NEAR(scale(GraphKind::kChain, 8), 2.750, 5e-4);
  EXPECT_NEAR(scale(GraphKind::kChain, 16), 5.375, 5e-4);
  EXPECT_NEAR(scale(GraphKind::kChain, 32), 10.6875, 5e-4);
  EXPECT_NEAR(scale(GraphKind::kBinaryTree, 16), 3.320, 5e-4);
  EXPECT_NEAR(scale(GraphKind::kBinaryTree, 32), 4.783, 5e-4);
}

TEST(GraphTest, DoubleBinaryTreeIsTwoMirroredTrees) {
  const auto trees = TreesOf(GraphKind::kDoubleBinaryTree, 16).value();
  ASSERT_EQ(trees.size(), 2u);
  double degree = 0;  // mean over nodes and trees: at most 2, as a ring (docs/strategies)
  for (const Graph& tree : trees) {
    EXPECT_TRUE(tree.IsTree());
    degree += static_cast<double>(2 * tree.edges.size()) / 16 / 2;
  }
  EXPECT_LE(degree, 2.0);
  EXPECT_EQ(TreesOf(GraphKind::kRing, 16).status().code(), absl::StatusCode::kInvalidArgument);
}

// Nabli et al. 2023, the table of chi1, chi2, eta and alpha-tilde at one exchange per
// worker.
TEST(GraphTest, AcidConstantsMatchTheTable) {
  struct Row {
    GraphKind kind;
    uint32_t n;
    double chi1, chi2, eta, alpha;
  };
  const Row rows[] = {
      {GraphKind::kComplete, 16, 0.9375, 0.9375, 0.533, 0.5},
      {GraphKind::kRing, 16, 13.137, 0.9375, 0.1425, 1.872},
      {GraphKind::kHypercube, 16, 2.0, 0.9375, 0.365, 0.730},
      {GraphKind::kExponential, 16, 2.0, 1.0097, 0.352, 0.704},
      {GraphKind::kTorus, 16, 2.0, 0.9375, 0.365, 0.730},
      {GraphKind::kStar, 16, 1.875, 0.9375, 0.377, 0.707},
      {GraphKind::kBinaryTree, 16, 19.37, 0.9375, 0.117, 2.27},
      {GraphKind::kChain, 16, 48.79, 0.9375, 0.0739, 3.61},
  };
  for (const Row& row : rows) {
    const AcidConstants got = Constants(row.kind, row.n);
    EXPECT_NEAR(got.chi1 / row.chi1, 1, 1e-3) << NameOf(row.kind);
    EXPECT_NEAR(got.chi2 / row.chi2, 1, 1e-3) << NameOf(row.kind);
    EXPECT_NEAR(got.eta / row.eta, 1, 3e-3) << NameOf(row.kind);
    EXPECT_NEAR(got.alpha_tilde / row.alpha, 1, 3e-3) << NameOf(row.kind);
  }
  struct Row64 {
    GraphKind kind;
    double chi1, eta, alpha;
  };
  for (const Row64& row : {Row64{GraphKind::kRing, 207.67, 0.0350, 7.262},
                           {GraphKind::kHypercube, 3.0, 0.291, 0.873},
                           {GraphKind::kTorus, 6.83, 0.193, 1.317},
                           {GraphKind::kStar, 1.969, 0.359, 0.707},
                           {GraphKind::kBinaryTree, 108.6, 0.0484, 5.25},
                           {GraphKind::kChain, 817.2, 0.0176, 14.4}}) {
    const AcidConstants got = Constants(row.kind, 64);
    EXPECT_NEAR(got.chi1 / row.chi1, 1, 1e-3) << NameOf(row.kind);
    EXPECT_NEAR(got.eta / row.eta, 1, 5e-3) << NameOf(row.kind);
    EXPECT_NEAR(got.alpha_tilde / row.alpha, 1, 5e-3) << NameOf(row.kind);
  }
}

// Closed forms of the same table: ring chi1 = 1 / (1 - cos 2 pi / n), chi2 = (n - 1) / n by
// Foster's theorem.
TEST(GraphTest, RingConstantsFollowTheirClosedForms) {
  for (uint32_t n = 3; n <= 128; n += 5) {
    const AcidConstants got = Constants(GraphKind::kRing, n);
    EXPECT_NEAR(got.chi1 * (1 - std::cos(2 * std::numbers::pi / n)), 1, 1e-9);
    EXPECT_NEAR(got.chi2, (n - 1.0) / n, 1e-9);
  }
}

// chi1 is 1 / lambda_2; chi2 is (n - 1) / n where all edges are alike, by Foster's theorem, and
// half of 1 / rate where removing an edge cuts the graph. The bound of every agent's views.
TEST(GraphTest, ConstantsOfTheLargestGraphsFollowTheirClosedForms) {
  const uint32_t n = kMaxNodes;
  const double alike = (n - 1.0) / n, pi = std::numbers::pi;
  const double cut = (n - 1.0) / n;  // half of 1 / rate at n / 2 exchanges over n - 1 edges
  const struct {
    GraphKind kind;
    double lambda_2_at_rate_one, chi2;
  } rows[] = {{GraphKind::kRing, 2 - 2 * std::cos(2 * pi / n), alike},
              {GraphKind::kChain, 2 - 2 * std::cos(pi / n), cut},
              {GraphKind::kStar, 1, cut},
              {GraphKind::kTorus, 2 - 2 * std::cos(2 * pi / 32), alike},
              {GraphKind::kHypercube, 2, alike},
              {GraphKind::kComplete, n, alike}};
  for (const auto& row : rows) {
    const Graph graph = MakeGraph(row.kind, n).value();
    const double rate = n / 2.0 / static_cast<double>(graph.edges.size());
    const AcidConstants got = Constants(row.kind, n);
    EXPECT_NEAR(got.chi1 * rate * row.lambda_2_at_rate_one, 1, 1e-9) << NameOf(row.kind);
    EXPECT_NEAR(got.chi2 / row.chi2, 1, 1e-9) << NameOf(row.kind);
  }
}

// By all eigenvalues and eigenvectors of the dense Laplacian.
AcidConstants ChisOfDense(const Graph& graph, const std::vector<double>& rates) {
  const uint32_t n = graph.nodes;
  Eigen::MatrixXd laplacian = Eigen::MatrixXd::Zero(n, n);
  for (size_t e = 0; e < rates.size(); ++e) {
    const Edge& edge = graph.edges[e];
    laplacian(edge.a, edge.a) += rates[e];
    laplacian(edge.b, edge.b) += rates[e];
    laplacian(edge.a, edge.b) -= rates[e];
    laplacian(edge.b, edge.a) -= rates[e];
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(laplacian);
  AcidConstants dense;
  dense.chi1 = 1 / solver.eigenvalues()(1);
  for (const Edge& edge : graph.edges) {
    double resistance = 0;
    for (uint32_t k = 1; k < n; ++k) {
      const double apart = solver.eigenvectors()(edge.a, k) - solver.eigenvectors()(edge.b, k);
      resistance += apart * apart / solver.eigenvalues()(k);
    }
    dense.chi2 = std::max(dense.chi2, resistance / 2);
  }
  return dense;
}

// Symmetric graphs, whose eigenvalues coincide, and the same ones with unequal rates.
TEST(GraphTest, ConstantsMatchADenseDecomposition) {
  for (const GraphKind kind : kAll) {
    for (const uint32_t n : {2u, 3u, 16u, 36u, 37u, 64u, 100u}) {
      const StatusOr<Graph> graph = MakeGraph(kind, n);
      if (!graph.ok()) continue;
      for (const double factor : {1.0, 2.5}) {
        std::vector<double> rates = ProposalRates(*graph, 0.7);
        for (size_t e = 0; e < rates.size(); e += 3) rates[e] *= factor;
        const AcidConstants dense = ChisOfDense(*graph, rates);
        const AcidConstants got = AcidConstantsOf(*graph, rates).value();
        EXPECT_NEAR(got.chi1 / dense.chi1, 1, 1e-9) << NameOf(kind) << n << " " << factor;
        EXPECT_NEAR(got.chi2 / dense.chi2, 1, 1e-9) << NameOf(kind) << n << " " << factor;
      }
    }
  }
}

// A node that proposes at half the rate is proposed to at the other half, on average.
TEST(GraphTest, ProposalsGiveEachNodeItsRateOnAverage) {
  for (const GraphKind kind : kAll) {
    const Graph graph = MakeGraph(kind, 16).value();
    double sum = 0;
    for (const double rate : ProposalRates(graph, 1.5)) sum += 2 * rate;
    EXPECT_NEAR(sum, 16 * 1.5, 1e-12) << NameOf(kind);
  }
}

TEST(GraphTest, DoublingTheRateHalvesBothChis) {
  const Graph graph = MakeGraph(GraphKind::kBinaryTree, 20).value();
  const AcidConstants one = AcidConstantsOf(graph, UniformRates(graph, 1)).value();
  const AcidConstants two = AcidConstantsOf(graph, UniformRates(graph, 2)).value();
  EXPECT_NEAR(two.chi1, one.chi1 / 2, 1e-9);
  EXPECT_NEAR(two.eta, one.eta * 2, 1e-9);
  EXPECT_NEAR(two.alpha_tilde, one.alpha_tilde, 1e-9);
}

TEST(GraphTest, MetropolisWeightsAreDoublyStochasticAndContract) {
  for (const GraphKind kind : kAll) {
    const Graph graph = MakeGraph(kind, 16).value();
    const std::vector<double> w = MetropolisWeights(graph);
    for (size_t i = 0; i < 16; ++i) {
      double row = 0, column = 0;
      for (size_t j = 0; j < 16; ++j) {
        row += w[i * 16 + j];
        column += w[j * 16 + i];
        EXPECT_GE(w[i * 16 + j], -1e-15);
      }
      EXPECT_NEAR(row, 1, 1e-12);
      EXPECT_NEAR(column, 1, 1e-12);
    }
    EXPECT_GT(SpectralGap(w, 16), 0) << NameOf(kind);
  }
  // Uniform thirds on a ring: 1 - (1 + 2 cos(2 pi / n)) / 3.
  const Graph ring = MakeGraph(GraphKind::kRing, 16).value();
  EXPECT_NEAR(SpectralGap(MetropolisWeights(ring), 16),
              1 - (1 + 2 * std::cos(std::numbers::pi / 8)) / 3, 1e-9);
}

TEST(GraphTest, RefusalsSayWhatIsNeeded) {
  EXPECT_EQ(MakeGraph(GraphKind::kHypercube, 12).status().message(),
            "Hypercube needs a power of two of workers, not 12");
  EXPECT_EQ(MakeGraph(GraphKind::kTorus, 14).status().code(), absl::StatusCode::kInvalidArgument);
  const Graph apart{4, {{0, 1}, {2, 3}}};
  EXPECT_FALSE(AcidConstantsOf(apart, {1, 1}).ok());
}

}  // namespace
}  // namespace crowdsurf::worker
