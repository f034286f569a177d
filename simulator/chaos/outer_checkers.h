// OuterCheckers: watches an outer optimizer from outside: every step is recomputed, and all that
// hold the state of an averaging hold the same.
//
// Beside PeerCheckers. Statement: outer (violations.h). A step is recomputed in doubles from the
// base, velocity and mean before it. States are compared by bits among the nodes whose mean holds
// the same snapshots; a state that was fetched must be one that some node has made. Owner: one
// world; single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"
#include "worker/core/view/averaging_config.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::simulator {

class OuterCheckers {
 public:
  struct State {
    std::vector<float> base, velocity;
  };

  OuterCheckers(Violations& violations, const worker::OuterOptimizer& outer)
      : violations_(violations), outer_(outer) {}

  // A node has stepped (or has begun a base anew) from `before` to `after`.
  enum class Kind : uint8_t { kStep, kBegin };
  void OnStep(int node, Kind kind, const std::vector<float>& mean, const State& before,
              const State& after);
  void OnChange() { ++changes_; }  // that step is by a mean of changes
  // It has committed that as `averaging`; `mean` is what it stepped to.
  void OnCommitted(int node, worker::AveragingId averaging, const RegionBuffer& mean,
                   const State& state);
  // In a job of changes: all that commit an averaging of a lineage have the same bits.
  void OnBase(int node, const worker::ViewHash& lineage, worker::AveragingId averaging,
              const State& state);
  // It had missed `averaging`, and has this state of it by now.
  void OnFetched(int node, worker::AveragingId averaging, const State& state);

  uint64_t steps() const { return steps_; }
  uint64_t begins() const { return begins_; }
  uint64_t fetched() const { return fetched_; }
  uint64_t changes() const { return changes_; }

 private:
  void Add(int node, const std::string& what);

  Violations& violations_;
  const worker::OuterOptimizer outer_;
  // By averaging and what is inside every element of the mean.
  std::map<std::pair<worker::AveragingId, OriginId>, Digest> states_;
  std::map<worker::AveragingId, std::set<Digest>> made_;
  std::map<std::pair<worker::ViewHash, worker::AveragingId>, Digest> bases_;
  uint64_t steps_ = 0, begins_ = 0, fetched_ = 0, changes_ = 0;
};

}  // namespace crowdsurf::simulator
