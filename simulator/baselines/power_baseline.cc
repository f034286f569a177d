#include "simulator/baselines/power_baseline.h"

#include <optional>
#include <string>

#include "base/check.h"

namespace crowdsurf::simulator {

template <class Scalar>
PowerBaseline<Scalar>::PowerBaseline(const BaselineOptions& options, Gradients<Scalar>& gradients)
    : Baseline<Scalar>(options, gradients), weights_(worker::MetropolisWeights(options.graph)) {
  CHECK(options.power_layout != nullptr);
  CHECK_EQ(options.power_layout->elements(), this->elements());
  for (size_t edge = 0; edge < options.graph.edges.size(); ++edge) edges_.push_back(Draw(edge));
}

// Equal at both ends, and other ones in each step.
template <class Scalar>
typename PowerBaseline<Scalar>::Ends PowerBaseline<Scalar>::Draw(size_t edge) const {
  const Rng rng = Rng(this->options().seed)
                      .Fork("edge " + std::to_string(edge))
                      .Fork("step " + std::to_string(this->step()));
  const auto& layout = this->options().power_layout;
  return {worker::PowerEdge<Scalar>(layout, rng), worker::PowerEdge<Scalar>(layout, rng)};
}

template <class Scalar>
void PowerBaseline<Scalar>::Communicate() {
  this->AddUpdates();
  // All edges go by the models before the exchange.
  const auto snapshot = this->x();
  const auto& edges = this->options().graph.edges;
  for (size_t e = 0; e < edges.size(); ++e) {
    std::optional<Ends> cold;
    if (!this->options().warm) cold.emplace(Draw(e));
    auto& [low, high] = cold ? *cold : edges_[e];
    std::vector<Scalar> of_low(low.MessageSize()), of_high(of_low.size());
    low.Project(snapshot[edges[e].a], of_low);
    high.Project(snapshot[edges[e].b], of_high);
    const double weight = weights_[size_t{edges[e].a} * this->workers() + edges[e].b];
    low.Apply(of_low, of_high, weight, this->x()[edges[e].a]);
    high.Apply(of_low, of_high, -weight, this->x()[edges[e].b]);
    // Both ends send four bytes a value.
    this->CountBytes(2 * 4.0 * static_cast<double>(of_low.size()));
  }
}

template class PowerBaseline<float>;
template class PowerBaseline<double>;

}  // namespace crowdsurf::simulator
