// PowerBaseline: PowerGossip in lock step, with the factors of its edges warm or cold.
//
//   u = -rate g, D = x_high - x_low of an edge, D^ = P Q^T of half a power iteration
//   x_low += W D^, x_high -= W D^          Vogels et al. 2020 (2008.01425) Alg. 1
// Warm factors begin where the exchange before has ended: what the strategy ships. Cold ones are
// drawn anew for each exchange, as the released code does without its warm start. Messages are not
// lost. Made by MakeBaseline only. Owner: one run; single sequence. Memory: both ends' factors of
// each edge, and a copy of all models.
#pragma once

#include <memory>
#include <vector>

#include "base/rng.h"
#include "simulator/baselines/baseline.h"
#include "worker/core/power/power_edge.h"

namespace crowdsurf::simulator {

template <class Scalar>
class PowerBaseline : public Baseline<Scalar> {
 public:
  // Pre: options.power_layout is of as many elements as the gradients.
  PowerBaseline(const BaselineOptions& options, Gradients<Scalar>& gradients);

 protected:
  void Communicate() override;

 private:
  struct Ends {
    worker::PowerEdge<Scalar> low, high;
  };
  Ends Draw(size_t edge) const;

  const std::vector<double> weights_;  // W, row after row
  std::vector<Ends> edges_;            // as in the graph
};

}  // namespace crowdsurf::simulator
