// PowerEdge: what one end of an edge keeps for PowerGossip: the factors of every matrix, and the
// message of the present iteration.
//
// Source: PowerGossip (Vogels et al. 2020), algorithm 1, and docs/strategies. All edges of a
// worker project the same snapshot, and all updates are added afterwards (Jacobi). What travels
// whole is averaged by plain gossip with the same weight. Value; single sequence. Scalar: float in
// production, double in paper tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/rng.h"
#include "worker/core/power/power_factors.h"
#include "worker/core/power/power_layout.h"

namespace crowdsurf::worker {

template <class Scalar>
class PowerEdge {
 public:
  // `rng`: equal at both ends of the edge, and another one at other edges.
  PowerEdge(std::shared_ptr<const PowerLayout> layout, const Rng& rng,
            NullColumns null_columns = NullColumns::kKeep);

  uint64_t iteration() const { return iteration_; }  // the next one, from 1
  uint64_t MessageSize() const { return layout_->MessageSize(iteration_); }

  // Writes this end's message of the iteration. `snapshot`: Scalar[elements]. Again: the same.
  void Project(std::span<const Scalar> snapshot, std::span<Scalar> message);

  // Ends the iteration with the messages of both ends: adds `step` times the estimate of
  // (high - low) to `vector`. The end with the lower id steps by +W, the other by -W, so that the
  // sum of both stays. Pre: Project was called in this iteration.
  void Apply(std::span<const Scalar> low, std::span<const Scalar> high, double step,
             std::span<Scalar> vector);

  // The next iteration is number `iteration`: the factors stay, and a Project without its Apply is
  // undone.
  void Restart(uint64_t iteration);
  // Equal at both ends, else their factors have come apart (power_factors.h).
  uint64_t Fingerprint() const;

  uint64_t reseeded_columns() const;

 private:
  std::shared_ptr<const PowerLayout> layout_;
  std::vector<PowerFactors<Scalar>> factors_;  // by matrix
  uint64_t iteration_ = 1;
};

extern template class PowerEdge<float>;
extern template class PowerEdge<double>;

}  // namespace crowdsurf::worker
