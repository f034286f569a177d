// Graph: the fixed communication graphs of the decentralised strategies, as pure functions of the
// member count.
//
// Nodes are ranks 0..n-1 in the view's join order, so that a join adds a last node and trees keep
// old nodes near the root. Used by Gossip, A2CiD2, RelaySum, PowerGossip; never by Moshpit. Values;
// any thread. Bounds: n <= kMaxNodes where a spectrum is asked for. Sources:
// D-PSGD and AD-PSGD (Lian et al. 2017, 2018) for rings and weights; A2CiD2 (Nabli et al. 2023) for
// chi1 and chi2; RelaySum (Vogels et al. 2021) for the trees; Ying et al. 2021 for the exponential
// graph. Differs from their released code: any n, and real edge rates instead of rate / degree,
// which holds only on regular graphs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/manifest/spec_fields.h"
#include "base/status.h"

namespace crowdsurf::worker {

enum class GraphKind : uint8_t {
  kRing,
  kChain,
  kTorus,
  kStar,
  kBinaryTree,
  kDoubleBinaryTree,
  kExponential,
  kHypercube,
  kComplete,
  kBaseK,  // the edges of all rounds of the Base-2 graph (base_k_graph.h): any n, O(log n)
           // neighbours
};
inline constexpr GraphKind kLastGraphKind = GraphKind::kBaseK;

const char* NameOf(GraphKind kind);  // the manifest's word: Ring, Chain, ...

struct Edge {
  uint32_t a = 0, b = 0;  // a < b
  uint32_t multiplicity =
      1;  // how often the pair appears among the offsets (Exponential: offset n/2 twice)
  bool operator==(const Edge&) const = default;
};

// Undirected; edges ascending by (a, b), each pair once.
struct Graph {
  uint32_t nodes = 0;
  std::vector<Edge> edges;

  std::vector<std::vector<uint32_t>> Neighbours() const;  // ascending
  bool IsConnected() const;
  bool IsTree() const;  // connected and nodes - 1 edges
  bool operator==(const Graph&) const = default;
};

inline constexpr uint32_t kMaxNodes = manifest::kMaxOnGraph;

// InvalidArgument in a user's words: Hypercube needs a power of two; Torus needs n = r * c with r,
// c >= 3 (the most square one is taken). n >= 1; n == 1 has no edges. DoubleBinaryTree is the union
// of its two trees (see TreesOf).
StatusOr<Graph> MakeGraph(GraphKind kind, uint32_t n);

// The trees that messages of RelaySum travel on: one, or the two of DoubleBinaryTree, of which each
// carries half of the vector (the second maps node i to n-1-i). InvalidArgument for a graph that is
// no tree (Star, Chain, BinaryTree are).
StatusOr<std::vector<Graph>> TreesOf(GraphKind kind, uint32_t n);

// Metropolis-Hastings weights: W_ij = 1 / (1 + max(deg_i, deg_j)), W_ii = the rest; symmetric,
// doubly stochastic. Row-major float64[n][n].
std::vector<double> MetropolisWeights(const Graph& graph);

// The constants of A2CiD2, for exchange rate `rate[e]` on edge e (exchanges per unit time; unit: a
// gradient step).
struct AcidConstants {
  double chi1 = 0;         // 1 / lambda_2 of the rate-weighted Laplacian
  double chi2 = 0;         // half the largest effective resistance over edges
  double eta = 0;          // 1 / (2 sqrt(chi1 chi2))
  double alpha_tilde = 0;  // sqrt(chi1 / chi2) / 2
};
// Every member calls it for every view, on its host thread, so it is solved along the graph's
// sparsity: under 0.2 ms at 64 nodes, 2 ms at 256 and 0.1 s at 1,024 (BaseK is the dearest).
// Pre: rate.size() == edges.size(), all > 0. InvalidArgument: not connected, fewer than 2 nodes,
// over kMaxNodes.
StatusOr<AcidConstants> AcidConstantsOf(const Graph& graph, const std::vector<double>& rate);
// Uniform rates with one exchange per node and unit time on average: edge e gets rate_com * (n/2) *
// share(e).
std::vector<double> UniformRates(const Graph& graph, double rate_com);
// Rates of edges where each node proposes rate_com / 2 exchanges per unit time, to a neighbour at
// random. A node of degree k then has rate_com / 2 * (1 + the sum of its neighbours' 1 / degree)
// exchanges: rate_com where the graph is regular, and on average.
std::vector<double> ProposalRates(const Graph& graph, double rate_com);

// Mean over ordered pairs of max(hops - 1, 0): RelaySum dilutes each update by 1 / (1 + this)
// (docs/strategies). Pre: a tree.
double MeanRelayDelay(const Graph& tree);
uint32_t Diameter(const Graph& graph);  // pre: connected

}  // namespace crowdsurf::worker
