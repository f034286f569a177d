// Power actions: what PowerGossip has its host do with parameters and factors.
//
// The host runs them on its PowerEdges (power_edges.h), in order, before the next input. Values;
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class PowerFrames;

// An edge as its one end sees it.
struct PowerEnd {
  PeerId peer;
  Region region = Region::kExtra0;  // PowerFrames::RegionSize() values
  double weight = 0;                // the share of the difference that an update takes, both ends'
};

// A view begins: these are the edges now.
struct UsePowerEdges {
  PeerId self;
  std::vector<PowerEnd> ends;
  std::shared_ptr<const PowerFrames> frames;
  WireFormat wire = WireFormat::kFloat32;
};
// Writes the own frames of `step` into the regions of all edges, from the vector in `from`.
struct ProjectPower {
  uint64_t step = 0;
  Region from = Region::kInboxA;
};
// Ends `step` on the edges to `peers`, whose frames are here: adds their updates to `to`.
struct ApplyPower {
  uint64_t step = 0;
  Region to = Region::kInboxA;
  std::vector<PeerId> peers;
};
using PowerAction = std::variant<UsePowerEdges, ProjectPower, ApplyPower>;

}  // namespace crowdsurf::worker
