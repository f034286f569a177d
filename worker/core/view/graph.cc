#include "worker/core/view/graph.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "worker/core/view/base_k_graph.h"

namespace crowdsurf::worker {
namespace {

// Counts how often a construction names a pair: its multiplicity.
class Builder {
 public:
  explicit Builder(uint32_t n) : n_(n) {}
  void Add(uint32_t a, uint32_t b) {
    if (a != b) pairs_.emplace_back(std::min(a, b), std::max(a, b));
  }
  Graph Take() {
    std::sort(pairs_.begin(), pairs_.end());
    Graph graph{n_, {}};
    for (const auto& [a, b] : pairs_) {
      const bool again =
          !graph.edges.empty() && graph.edges.back().a == a && graph.edges.back().b == b;
      if (again)
        ++graph.edges.back().multiplicity;
      else
        graph.edges.push_back({a, b});
    }
    return graph;
  }

 private:
  uint32_t n_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
};

// Every edge once: graphs whose construction names a pair from both ends (a ring of two, a small
// torus).
Graph Simple(Graph graph) {
  for (Edge& edge : graph.edges) edge.multiplicity = 1;
  return graph;
}

Graph Ring(uint32_t n) {
  Builder builder(n);
  for (uint32_t i = 0; i < n; ++i) builder.Add(i, (i + 1) % n);
  return Simple(builder.Take());
}

Graph Chain(uint32_t n) {
  Builder builder(n);
  for (uint32_t i = 0; i + 1 < n; ++i) builder.Add(i, i + 1);
  return builder.Take();
}

Graph Star(uint32_t n) {
  Builder builder(n);
  for (uint32_t i = 1; i < n; ++i) builder.Add(0, i);
  return builder.Take();
}

// RelaySum's binary tree: parent(i) = i / 2, so the root 0 has the single child 1. `mirror` maps i
// to n-1-i.
Graph BinaryTree(uint32_t n, bool mirror) {
  Builder builder(n);
  const auto place = [&](uint32_t i) { return mirror ? n - 1 - i : i; };
  for (uint32_t i = 1; i < n; ++i) builder.Add(place(i), place(i / 2));
  return builder.Take();
}

Graph DoubleBinaryTree(uint32_t n) {
  Builder builder(n);
  for (const bool mirror : {false, true}) {
    for (const Edge& edge : BinaryTree(n, mirror).edges) builder.Add(edge.a, edge.b);
  }
  return builder.Take();
}

Graph Exponential(uint32_t n) {
  Builder builder(n);
  // Offsets +-2^k below n: +2^k from every node names every pair, once from each end's point of
  // view.
  for (uint32_t hop = 1; hop < n; hop *= 2) {
    for (uint32_t i = 0; i < n; ++i) builder.Add(i, (i + hop) % n);
  }
  return builder.Take();
}

Graph Complete(uint32_t n) {
  Builder builder(n);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = i + 1; j < n; ++j) builder.Add(i, j);
  }
  return builder.Take();
}

// One neighbour a round; who mixes with a fixed graph has all rounds' edges at once.
Graph BaseK(uint32_t n) {
  Builder builder(n);
  const auto rounds = BaseKRounds(n, 1).value();
  for (const auto& round : rounds) {
    for (const WeightedEdge& edge : round) builder.Add(edge.a, edge.b);
  }
  return Simple(builder.Take());
}

StatusOr<Graph> Hypercube(uint32_t n) {
  if ((n & (n - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hypercube needs a power of two of workers, not ", n));
  }
  Builder builder(n);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t bit = 1; bit < n; bit *= 2) {
      if ((i & bit) == 0) builder.Add(i, i | bit);
    }
  }
  return builder.Take();
}

StatusOr<Graph> Torus(uint32_t n) {
  // The greatest divisor up to the root makes the most square torus.
  uint32_t rows = 0;
  for (uint32_t r = 3; r * r <= n; ++r) {
    if (n % r == 0) rows = r;
  }
  if (rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Torus needs r x c workers with r and c at least 3; ", n, " has no such factors"));
  }
  const uint32_t columns = n / rows;
  Builder builder(n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t r = i / columns, c = i % columns;
    builder.Add(i, r * columns + (c + 1) % columns);
    builder.Add(i, ((r + 1) % rows) * columns + c);
  }
  return Simple(builder.Take());
}

// Hops from `source` to every node; UINT32_MAX where unreachable.
std::vector<uint32_t> Hops(const std::vector<std::vector<uint32_t>>& neighbours, uint32_t source) {
  std::vector<uint32_t> hops(neighbours.size(), UINT32_MAX);
  std::vector<uint32_t> queue{source};
  hops[source] = 0;
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const uint32_t next : neighbours[queue[head]]) {
      if (hops[next] != UINT32_MAX) continue;
      hops[next] = hops[queue[head]] + 1;
      queue.push_back(next);
    }
  }
  return hops;
}

}  // namespace

const char* NameOf(GraphKind kind) {
  switch (kind) {
    case GraphKind::kRing:
      return "Ring";
    case GraphKind::kChain:
      return "Chain";
    case GraphKind::kTorus:
      return "Torus";
    case GraphKind::kStar:
      return "Star";
    case GraphKind::kBinaryTree:
      return "BinaryTree";
    case GraphKind::kDoubleBinaryTree:
      return "DoubleBinaryTree";
    case GraphKind::kExponential:
      return "Exponential";
    case GraphKind::kHypercube:
      return "Hypercube";
    case GraphKind::kComplete:
      return "Complete";
    case GraphKind::kBaseK:
      return "BaseK";
  }
  CHECK(false);
}

std::vector<std::vector<uint32_t>> Graph::Neighbours() const {
  std::vector<std::vector<uint32_t>> result(nodes);
  for (const Edge& edge : edges) {
    result[edge.a].push_back(edge.b);
    result[edge.b].push_back(edge.a);
  }
  for (std::vector<uint32_t>& list : result) std::sort(list.begin(), list.end());
  return result;
}

bool Graph::IsConnected() const {
  if (nodes == 0) return false;
  const std::vector<uint32_t> hops = Hops(Neighbours(), 0);
  return std::find(hops.begin(), hops.end(), UINT32_MAX) == hops.end();
}

bool Graph::IsTree() const { return edges.size() + 1 == nodes && IsConnected(); }

StatusOr<Graph> MakeGraph(GraphKind kind, uint32_t n) {
  if (n == 0) return absl::InvalidArgumentError("a graph needs at least one worker");
  if (n == 1) return Graph{1, {}};
  switch (kind) {
    case GraphKind::kRing:
      return Ring(n);
    case GraphKind::kChain:
      return Chain(n);
    case GraphKind::kTorus:
      return Torus(n);
    case GraphKind::kStar:
      return Star(n);
    case GraphKind::kBinaryTree:
      return BinaryTree(n, false);
    case GraphKind::kDoubleBinaryTree:
      return DoubleBinaryTree(n);
    case GraphKind::kExponential:
      return Exponential(n);
    case GraphKind::kHypercube:
      return Hypercube(n);
    case GraphKind::kComplete:
      return Complete(n);
    case GraphKind::kBaseK:
      return BaseK(n);
  }
  CHECK(false);
}

StatusOr<std::vector<Graph>> TreesOf(GraphKind kind, uint32_t n) {
  if (kind == GraphKind::kDoubleBinaryTree && n > 0) {
    return std::vector<Graph>{BinaryTree(n, false), BinaryTree(n, true)};
  }
  ASSIGN_OR_RETURN(Graph graph, MakeGraph(kind, n));
  if (!graph.IsTree()) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(kind), " is no tree: RelaySum needs DoubleBinaryTree, BinaryTree, Chain or Star"));
  }
  return std::vector<Graph>{std::move(graph)};
}

std::vector<double> MetropolisWeights(const Graph& graph) {
  const size_t n = graph.nodes;
  const auto neighbours = graph.Neighbours();
  std::vector<double> weights(n * n, 0.0);
  for (const Edge& edge : graph.edges) {
    const double weight =
        1.0 /
        (1.0 + static_cast<double>(std::max(neighbours[edge.a].size(), neighbours[edge.b].size())));
    weights[edge.a * n + edge.b] = weights[edge.b * n + edge.a] = weight;
  }
  for (size_t i = 0; i < n; ++i) {
    const auto row = weights.begin() + static_cast<std::ptrdiff_t>(i * n);
    weights[i * n + i] = 1.0 - std::accumulate(row, row + static_cast<std::ptrdiff_t>(n), 0.0);
  }
  return weights;
}

std::vector<double> UniformRates(const Graph& graph, double rate_com) {
  double total = 0;
  for (const Edge& edge : graph.edges) total += edge.multiplicity;
  std::vector<double> rates;
  rates.reserve(graph.edges.size());
  for (const Edge& edge : graph.edges) {
    // Each worker makes rate_com exchanges a unit of time, and an exchange has two ends.
    rates.push_back(rate_com * graph.nodes / 2.0 * edge.multiplicity / total);
  }
  return rates;
}

std::vector<double> ProposalRates(const Graph& graph, double rate_com) {
  const auto neighbours = graph.Neighbours();
  const auto share = [&](uint32_t node) {
    return 1.0 / static_cast<double>(neighbours[node].size());
  };
  std::vector<double> rates;
  rates.reserve(graph.edges.size());
  for (const Edge& edge : graph.edges)
    rates.push_back(rate_com / 2 * (share(edge.a) + share(edge.b)));
  return rates;
}

double MeanRelayDelay(const Graph& tree) {
  const auto neighbours = tree.Neighbours();
  double sum = 0;
  for (uint32_t source = 0; source < tree.nodes; ++source) {
    for (const uint32_t hops : Hops(neighbours, source)) {
      CHECK(hops != UINT32_MAX);
      // A neighbour's message counts in the step in which it was sent; each further hop costs one.
      sum += hops == 0 ? 0 : hops - 1;
    }
  }
  return sum / (static_cast<double>(tree.nodes) * tree.nodes);
}

uint32_t Diameter(const Graph& graph) {
  const auto neighbours = graph.Neighbours();
  uint32_t most = 0;
  for (uint32_t source = 0; source < graph.nodes; ++source) {
    for (const uint32_t hops : Hops(neighbours, source)) {
      CHECK(hops != UINT32_MAX);
      most = std::max(most, hops);
    }
  }
  return most;
}

}  // namespace crowdsurf::worker
