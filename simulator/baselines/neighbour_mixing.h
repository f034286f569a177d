// NeighbourMixing: x_i <- sum of W_ij x_j over a graph, on links that lose messages.
//
// W are Metropolis weights, or half of them and half the identity. A receiver that misses a message
// divides by the weights that it has, as the released code of RelaySGD does (Vogels et al. 2021,
// arXiv 2110.04175). Owner: one baseline; single sequence. Memory: one copy of all models.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::simulator {

enum class MixingWeights : uint8_t {
  kMetropolis,
  kLazy,  // (W + I) / 2: no eigenvalue is negative
};

template <class Scalar>
class NeighbourMixing {
 public:
  using Vectors = std::vector<std::vector<Scalar>>;

  // loss: the chance that a message is lost, 0..1.
  NeighbourMixing(const worker::Graph& graph, MixingWeights weights, double loss, Rng rng);

  // Mixes in place. Pre: one vector for each node, of one size.
  void Mix(Vectors& values);

  uint32_t nodes() const { return static_cast<uint32_t>(own_.size()); }
  double own(uint32_t node) const { return own_[node]; }  // W_ii
  // j and W_ij of each neighbour, ascending.
  const std::vector<std::pair<uint32_t, double>>& of(uint32_t node) const { return of_[node]; }
  uint64_t messages() const { return messages_; }  // of one Mix, by all

 private:
  std::vector<double> own_;
  std::vector<std::vector<std::pair<uint32_t, double>>> of_;
  uint64_t messages_ = 0;
  const double loss_;
  Rng rng_;
  Vectors mixed_;
};

extern template class NeighbourMixing<float>;
extern template class NeighbourMixing<double>;

}  // namespace crowdsurf::simulator
