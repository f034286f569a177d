// PowerEdges: the factors of all edges of a worker, and the frames that they make: the part of
// PowerGossip that touches parameters.
//
// The host holds one and runs on it what the core decided (PowerAction), as it does with Reducer.
// An edge whose two ends stay keeps its factors across views: its iterations begin at 1 again, and
// what one end had not ended is undone. The head of each frame has the fingerprint of the sender's
// factors. Where the two differ, nobody applies, and both ends draw the same new factors, from the
// ids of the ends and one re-seed more than either had. So an update that one end alone applied
// costs one step. Source: PowerGossip (Vogels et al. 2020) and docs/strategies. Single sequence.
// Memory: the factors of each edge. Scalar: float in production, double in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "worker/core/power/power_action.h"
#include "worker/core/power/power_edge.h"

namespace crowdsurf::worker {

template <class Scalar>
class PowerEdges {
 public:
  using Part = std::function<std::span<Scalar>(Region, const Extent&)>;

  // Pre: the regions that the action names are there; UsePowerEdges came before the others.
  void Run(const PowerAction& action, const Part& part);

  // Times that factors of an edge were drawn anew because its ends had come apart.
  uint64_t reseeds() const { return reseeds_; }

 private:
  struct Edge {
    PowerEnd end;
    bool low = false;  // the own id is the lesser
    uint32_t reseeds = 0;
    PowerEdge<Scalar> factors;
  };

  void Use(const UsePowerEdges& use);
  void Project(const ProjectPower& project, const Part& part);
  void Apply(const ApplyPower& apply, const Part& part);
  void ApplyDense(const Edge& edge, std::span<const Scalar> mine, std::span<const Scalar> theirs,
                  std::span<Scalar> vector) const;
  PowerEdge<Scalar> Draw(const PeerId& peer, uint32_t reseeds) const;

  PeerId self_;
  std::shared_ptr<const PowerFrames> frames_;
  WireFormat wire_ = WireFormat::kFloat32;
  std::map<PeerId, Edge> edges_;
  uint64_t reseeds_ = 0;
};

extern template class PowerEdges<float>;
extern template class PowerEdges<double>;

}  // namespace crowdsurf::worker
