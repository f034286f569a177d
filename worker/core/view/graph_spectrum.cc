// The spectral part of graph.h; apart from graph.cc so that only this file pays for Eigen's
// templates.
#include <Eigen/Eigenvalues>
#include <Eigen/SparseCholesky>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/check.h"
#include "base/rng.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using SparseMatrix = Eigen::SparseMatrix<double>;

AcidConstants FromChis(double chi1, double chi2) {
  return {.chi1 = chi1,
          .chi2 = chi2,
          .eta = 1.0 / (2.0 * std::sqrt(chi1 * chi2)),
          .alpha_tilde = 0.5 * std::sqrt(chi1 / chi2)};
}

// ---- circulant graphs ---------------------------------------------------------------------------

// The rate of the edges of each offset 0..n/2, 0 where there are none; nullopt: not every node has
// the same offsets at the same rates.
std::optional<std::vector<double>> OffsetRates(const Graph& graph,
                                               const std::vector<double>& rate) {
  const uint32_t n = graph.nodes;
  std::vector<double> of_offset(n / 2 + 1, 0.0);
  std::vector<uint32_t> edges(n / 2 + 1, 0);
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const uint32_t apart = graph.edges[e].b - graph.edges[e].a;
    const uint32_t offset = std::min(apart, n - apart);
    if (edges[offset]++ > 0 && of_offset[offset] != rate[e]) return std::nullopt;
    of_offset[offset] = rate[e];
  }
  for (uint32_t offset = 1; offset < edges.size(); ++offset) {
    const uint32_t all = 2 * offset == n ? n / 2 : n;
    if (edges[offset] != 0 && edges[offset] != all) return std::nullopt;
  }
  return of_offset;
}

// Ring, Exponential, Complete: the eigenvectors are those of Fourier. O(n * offsets).
AcidConstants OfCirculant(uint32_t n, const std::vector<double>& of_offset) {
  std::vector<double> lift(n);  // |1 - w^k|^2 for the n-th root of unity w
  for (uint32_t k = 0; k < n; ++k) lift[k] = 2 - 2 * std::cos(2 * std::numbers::pi * k / n);
  std::vector<uint32_t> offsets;
  for (uint32_t offset = 1; offset < of_offset.size(); ++offset)
    if (of_offset[offset] > 0) offsets.push_back(offset);
  std::vector<double> values(n, 0.0);
  for (uint32_t k = 1; k < n; ++k) {
    for (const uint32_t offset : offsets) {
      const double edges = 2 * offset == n ? 0.5 : 1;  // of a node, over two
      values[k] += edges * of_offset[offset] * lift[uint64_t{k} * offset % n];
    }
  }
  double chi2 = 0;
  for (const uint32_t offset : offsets) {
    double resistance = 0;
    for (uint32_t k = 1; k < n; ++k) resistance += lift[uint64_t{k} * offset % n] / values[k];
    chi2 = std::max(chi2, resistance / n / 2);
  }
  return FromChis(1.0 / *std::min_element(values.begin() + 1, values.end()), chi2);
}

// ---- all other graphs ---------------------------------------------------------------------------

// The Laplacian of a graph without the row and the column of node 0, whose potential is 0, as
// P' L D L' P. Fill makes the cost: none on trees, 0.12 M values on a hypercube of 1,024.
class GroundedLaplacian {
 public:
  GroundedLaplacian(const Graph& graph, const std::vector<double>& rate) : n_(graph.nodes - 1) {
    std::vector<Eigen::Triplet<double>> entries;
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      const auto a = static_cast<int>(graph.edges[e].a) - 1;
      const auto b = static_cast<int>(graph.edges[e].b) - 1;
      if (a >= 0) entries.emplace_back(a, a, rate[e]);
      entries.emplace_back(b, b, rate[e]);
      if (a < 0) continue;
      entries.emplace_back(a, b, -rate[e]);
      entries.emplace_back(b, a, -rate[e]);
    }
    SparseMatrix matrix(n_, n_);
    matrix.setFromTriplets(entries.begin(), entries.end());
    solver_.compute(matrix);
    CHECK(solver_.info() == Eigen::Success);  // positive definite: the graph is connected
  }

  // L+ b for b that sums to zero; the result sums to zero. b: float64[n + 1].
  VectorXd Solve(const VectorXd& b) const {
    VectorXd x(n_ + 1);
    x(0) = 0;
    x.tail(n_) = solver_.solve(b.tail(n_));
    return x.array() - x.mean();
  }

  // The largest effective resistance of an edge. Of the inverse only the entries in the pattern of
  // L are computed, from the last column back (Takahashi, Fagan, Chen 1973): edges lie in it.
  double MaxResistance(const Graph& graph) const {
    const MatrixXd inverse = InverseOnPattern();
    const auto& place = solver_.permutationP().indices();
    double most = 0;
    for (const Edge& edge : graph.edges) {
      const auto b = place(static_cast<int>(edge.b) - 1);
      double resistance = inverse(b, b);
      if (edge.a > 0) {
        const auto a = place(static_cast<int>(edge.a) - 1);
        resistance += inverse(a, a) - 2 * inverse(a, b);
      }
      most = std::max(most, resistance);
    }
    return most;
  }

 private:
  MatrixXd InverseOnPattern() const {
    const SparseMatrix lower = solver_.matrixL();
    const VectorXd diagonal = solver_.vectorD();
    MatrixXd inverse = MatrixXd::Zero(n_, n_);
    std::vector<int> rows;  // of column j, below the diagonal, which is 1
    std::vector<double> values, sums;
    for (Eigen::Index j = n_ - 1; j >= 0; --j) {
      rows.clear();
      values.clear();
      for (SparseMatrix::InnerIterator it(lower, j); it; ++it) {
        if (it.row() == j) continue;
        rows.push_back(static_cast<int>(it.row()));
        values.push_back(it.value());
      }
      sums.assign(rows.size(), 0.0);
      for (size_t k = 0; k < rows.size(); ++k) {
        const double* const column = inverse.col(rows[k]).data();
        for (size_t i = 0; i < rows.size(); ++i) sums[i] -= values[k] * column[rows[i]];
      }
      double own = 1 / diagonal(j);
      for (size_t i = 0; i < rows.size(); ++i) {
        inverse(rows[i], j) = inverse(j, rows[i]) = sums[i];
        own -= values[i] * sums[i];
      }
      inverse(j, j) = own;
    }
    return inverse;
  }

  Eigen::Index n_;
  Eigen::SimplicialLDLT<SparseMatrix> solver_;
};

// The largest eigenvalue of L+, which is 1 / lambda_2, by Lanczos with all vectors kept orthogonal.
double LargestOfInverse(const GroundedLaplacian& laplacian, Eigen::Index n) {
  constexpr Eigen::Index kMaxSteps = 200;
  constexpr Eigen::Index kLookEvery = 8;  // a look solves a small problem: each step would be dear
  // Of the residual, to the eigenvalue. The eigenvalue's own error is of the order of its square.
  constexpr double kPrecision = 1e-9;
  const Eigen::Index most = std::min(n - 1, kMaxSteps);
  MatrixXd basis(n, most);
  VectorXd diagonal(most), beside(most), next(n);
  Rng rng(1);  // a start that no symmetry of a graph makes orthogonal to the eigenvector
  for (double& value : next) value = rng.UniformDouble();
  double largest = 0;
  for (Eigen::Index step = 0; step < most; ++step) {
    next.array() -= next.mean();
    basis.col(step) = next.normalized();
    next = laplacian.Solve(basis.col(step));
    diagonal(step) = basis.col(step).dot(next);
    const auto so_far = basis.leftCols(step + 1);
    for (int twice = 0; twice < 2; ++twice) next -= so_far * (so_far.transpose() * next);
    beside(step) = next.norm();
    // As many steps as distinct eigenvalues: what is left is rounding.
    const bool exhausted = beside(step) <= kPrecision * diagonal.head(step + 1).maxCoeff();
    if (!exhausted && step + 1 < most && step % kLookEvery != kLookEvery - 1) continue;
    Eigen::SelfAdjointEigenSolver<MatrixXd> small;
    small.computeFromTridiagonal(diagonal.head(step + 1), beside.head(step));
    largest = small.eigenvalues()(step);
    const double residual = beside(step) * std::abs(small.eigenvectors()(step, step));
    if (residual <= kPrecision * largest) break;
  }
  return largest;
}

}  // namespace

StatusOr<AcidConstants> AcidConstantsOf(const Graph& graph, const std::vector<double>& rate) {
  CHECK_EQ(rate.size(), graph.edges.size());
  const uint32_t n = graph.nodes;
  if (n < 2 || n > kMaxNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("A2CiD2 computes its constants for 2 to ", kMaxNodes, " workers, not ", n));
  }
  if (!graph.IsConnected()) return absl::InvalidArgumentError("A2CiD2 needs a connected graph");
  if (const auto of_offset = OffsetRates(graph, rate)) return OfCirculant(n, *of_offset);
  const GroundedLaplacian laplacian(graph, rate);
  return FromChis(LargestOfInverse(laplacian, n), laplacian.MaxResistance(graph) / 2);
}

}  // namespace crowdsurf::worker
