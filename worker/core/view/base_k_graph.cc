#include "worker/core/view/base_k_graph.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

using Rounds = std::vector<std::vector<WeightedEdge>>;
using Nodes = std::vector<uint32_t>;

// Factors of n from 2 to k + 1, greatest first as long as they divide; nullopt: n has a greater
// prime.
std::optional<std::vector<uint32_t>> Factors(uint32_t n, uint32_t k) {
  std::vector<uint32_t> factors;
  for (uint32_t f = std::min(n, k + 1); f >= 2; --f) {
    while (n % f == 0) {
      factors.push_back(f);
      n /= f;
    }
  }
  if (n != 1) return std::nullopt;
  return factors;
}

void PutPair(Rounds& rounds, size_t at, uint32_t a, uint32_t b, double weight) {
  if (rounds.size() <= at) rounds.resize(at + 1);
  rounds[at].push_back({std::min(a, b), std::max(a, b), weight});
}

// k-peer Hyper-hypercube: a mixed-radix grid, one axis a round, everybody of a line with everybody.
// Begins at round `at`; returns the round after its last. Pre: the size has factors up to k + 1.
size_t HyperHypercube(const Nodes& nodes, uint32_t k, size_t at, Rounds& rounds) {
  const auto factors = Factors(static_cast<uint32_t>(nodes.size()), k);
  CHECK(factors.has_value());
  size_t stride = 1;
  for (const uint32_t radix : *factors) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const size_t digit = i / stride % radix;
      for (size_t other = digit + 1; other < radix; ++other)
        PutPair(rounds, at, nodes[i], nodes[i + (other - digit) * stride], 1.0 / radix);
    }
    stride *= radix;
    ++at;
  }
  return at;
}

// n in base k + 1, greatest digit first: parts of `blocks` blocks of `size` = (k + 1)^p nodes.
struct Part {
  size_t begin = 0, blocks = 0, size = 1;
};
std::vector<Part> PartsOf(size_t n, uint32_t k) {
  std::vector<Part> parts;
  size_t size = 1;
  // The largest power of k + 1 that is at most n.
  while (size <= n / (k + 1)) size *= k + 1;
  for (size_t begin = 0; begin < n; size /= k + 1) {
    const size_t blocks = (n - begin) / size;
    if (blocks > 0) parts.push_back({begin, blocks, size});
    begin += blocks * size;
  }
  return parts;
}

Nodes Slice(const Nodes& nodes, size_t begin, size_t count) {
  const auto first = nodes.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

// The Simple Base-(k+1) graph. First every part averages within itself: all of part l hold m_l.
// Then part after part, in one round each, trades with what is left: every node left meets one node
// of each block, with weight s / N (s nodes a block, A = blocks s nodes of the part, N nodes not
// done yet, r = N - A left). A block's sum was s m_l; it becomes s m_l + (s / N) r (m - m_l), m the
// mean of what is left, = s (A m_l + r m) / N: s times the mean of all N. A node left moves from x
// to (r / N) x + (A / N) m_l, so what is left has that mean, too, and each of its parts is still of
// one value: the same again. A block that traded holds its sum in unlike pieces and averages within
// itself, while the others trade.
size_t SimpleBase(const Nodes& nodes, uint32_t k, size_t at, Rounds& rounds) {
  const auto n = static_cast<uint32_t>(nodes.size());
  if (Factors(n, k)) return HyperHypercube(nodes, k, at, rounds);
  const std::vector<Part> parts = PartsOf(n, k);
  size_t end = at;
  for (const Part& part : parts)
    end = std::max(
        end, HyperHypercube(Slice(nodes, part.begin, part.blocks * part.size), k, at, rounds));
  at = end;
  for (size_t l = 0; l + 1 < parts.size(); ++l, ++at) {
    const Part& part = parts[l];
    const size_t left = part.begin + part.blocks * part.size;
    const double weight = static_cast<double>(part.size) / static_cast<double>(n - part.begin);
    for (size_t block = 0; block < part.blocks; ++block) {
      const size_t begin = part.begin + block * part.size;
      for (size_t i = left; i < n; ++i)
        PutPair(rounds, at, nodes[begin + i - left], nodes[i], weight);
      end = std::max(end, HyperHypercube(Slice(nodes, begin, part.size), k, at + 1, rounds));
    }
  }
  return std::max(at, end);
}

// The Base-(k+1) graph: n = p q with p all of n's factors up to k + 1; p groups of q average within
// themselves, then across.
Rounds GroupsFirst(uint32_t n, uint32_t k) {
  uint32_t q = n;
  for (uint32_t f = k + 1; f >= 2; --f)
    while (q % f == 0) q /= f;
  const uint32_t p = n / q;
  Rounds rounds;
  size_t end = 0;
  for (uint32_t group = 0; group < p; ++group) {
    Nodes nodes;
    for (uint32_t i = 0; i < q; ++i) nodes.push_back(group * q + i);
    end = SimpleBase(nodes, k, 0, rounds);
  }
  for (uint32_t i = 0; i < q; ++i) {
    Nodes nodes;
    for (uint32_t group = 0; group < p; ++group) nodes.push_back(group * q + i);
    HyperHypercube(nodes, k, end, rounds);
  }
  return rounds;
}

}  // namespace

StatusOr<std::vector<std::vector<WeightedEdge>>> BaseKRounds(uint32_t n, uint32_t k) {
  if (n == 0 || k == 0)
    return absl::InvalidArgumentError("a Base-(k+1) graph needs a worker and a neighbour");
  k = std::min(k, n);  // nobody has more neighbours than there are workers
  Nodes nodes(n);
  for (uint32_t i = 0; i < n; ++i) nodes[i] = i;
  Rounds simple;
  SimpleBase(nodes, k, 0, simple);
  Rounds grouped = GroupsFirst(n, k);
  Rounds& rounds = grouped.size() < simple.size() ? grouped : simple;
  for (auto& round : rounds)
    std::sort(round.begin(), round.end(), [](const WeightedEdge& x, const WeightedEdge& y) {
      return x.a != y.a ? x.a < y.a : x.b < y.b;
    });
  return std::move(rounds);
}

}  // namespace crowdsurf::worker
