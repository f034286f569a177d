#include "simulator/baselines/neighbour_mixing.h"

#include "base/check.h"

namespace crowdsurf::simulator {

template <class Scalar>
NeighbourMixing<Scalar>::NeighbourMixing(const worker::Graph& graph, MixingWeights weights,
                                         double loss, Rng rng)
    : own_(graph.nodes), of_(graph.nodes), loss_(loss), rng_(rng) {
  const std::vector<double> w = worker::MetropolisWeights(graph);
  const double share = weights == MixingWeights::kLazy ? 0.5 : 1;
  for (uint32_t i = 0; i < graph.nodes; ++i) {
    own_[i] = share * w[size_t{i} * graph.nodes + i] + (1 - share);
    for (uint32_t j = 0; j < graph.nodes; ++j) {
      const double weight = share * w[size_t{i} * graph.nodes + j];
      if (j == i || weight == 0) continue;
      of_[i].emplace_back(j, weight);
      ++messages_;
    }
  }
}

template <class Scalar>
void NeighbourMixing<Scalar>::Mix(Vectors& values) {
  CHECK_EQ(values.size(), of_.size());
  mixed_.resize(values.size());
  for (uint32_t i = 0; i < nodes(); ++i) {
    double total = own_[i];
    // The own value is never lost.
    std::vector<std::pair<uint32_t, double>> arrived = {{i, own_[i]}};
    for (const auto& [j, weight] : of_[i]) {
      if (loss_ > 0 && rng_.Bernoulli(loss_)) continue;
      arrived.emplace_back(j, weight);
      total += weight;
    }
    std::vector<Scalar>& sum = mixed_[i];
    sum.assign(values[i].size(), Scalar(0));
    for (const auto& [j, weight] : arrived) {
      // With all there the weights stand as they are: they sum to 1 but for rounding.
      const auto share =
          static_cast<Scalar>(arrived.size() > of_[i].size() ? weight : weight / total);
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += share * values[j][k];
    }
  }
  values.swap(mixed_);
}

template class NeighbourMixing<float>;
template class NeighbourMixing<double>;

}  // namespace crowdsurf::simulator
