// The spectral part of graph.h; apart from graph.cc so that only this file pays for Eigen's
// templates.
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {

double SpectralGap(const std::vector<double>& weights, uint32_t n) {
  CHECK_GE(n, 1u);
  CHECK_LE(n, kMaxNodes);
  CHECK_EQ(weights.size(), static_cast<size_t>(n) * n);
  const Eigen::Map<const Eigen::MatrixXd> matrix(weights.data(), n, n);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix, Eigen::EigenvaluesOnly);
  if (n == 1) return 1.0;
  const Eigen::VectorXd& values = solver.eigenvalues();  // ascending; the last is 1
  return 1.0 - std::max(std::abs(values(0)), std::abs(values(n - 2)));
}

StatusOr<AcidConstants> AcidConstantsOf(const Graph& graph, const std::vector<double>& rate) {
  CHECK_EQ(rate.size(), graph.edges.size());
  const uint32_t n = graph.nodes;
  if (n < 2 || n > kMaxNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("A2CiD2 computes its constants for 2 to ", kMaxNodes, " workers, not ", n));
  }
  Eigen::MatrixXd laplacian = Eigen::MatrixXd::Zero(n, n);
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const auto [a, b, multiplicity] = graph.edges[e];
    laplacian(a, a) += rate[e];
    laplacian(b, b) += rate[e];
    laplacian(a, b) -= rate[e];
    laplacian(b, a) -= rate[e];
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(laplacian);
  const Eigen::VectorXd& values = solver.eigenvalues();
  // lambda_2 of a connected graph is at least of the order rate / n^2; below that it is zero and
  // rounding.
  if (values(1) < 1e-9 * values(n - 1)) {
    return absl::InvalidArgumentError("A2CiD2 needs a connected graph");
  }
  const Eigen::MatrixXd& vectors = solver.eigenvectors();
  AcidConstants result;
  result.chi1 = 1.0 / values(1);
  // Effective resistance of an edge: (e_a - e_b)^T L^+ (e_a - e_b), by the eigenvectors of L.
  for (const Edge& edge : graph.edges) {
    double resistance = 0;
    for (uint32_t k = 1; k < n; ++k) {
      const double difference = vectors(edge.a, k) - vectors(edge.b, k);
      resistance += difference * difference / values(k);
    }
    result.chi2 = std::max(result.chi2, resistance / 2);
  }
  // A2CiD2 (arXiv 2306.08289): docs/strategies/a2cid2.md.
  result.eta = 1.0 / (2.0 * std::sqrt(result.chi1 * result.chi2));
  result.alpha_tilde = 0.5 * std::sqrt(result.chi1 / result.chi2);
  return result;
}

}  // namespace crowdsurf::worker
