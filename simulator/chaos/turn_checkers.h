// TurnCheckers: watches a job with `rounds: One`: who takes a mean is in it, and the job's count is
// of samples that trainers have made.
//
// Beside PeerCheckers, which recomputes the means. Counts carry no values, so they are held against
// what all trainers have made: never more than that; and in a job that loses nobody, at least what
// they had made two counts before. Statements: own, samples (violations.h). Owner: one world;
// single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"

namespace crowdsurf::simulator {

class TurnCheckers {
 public:
  TurnCheckers(Violations& violations, const Origins& origins)
      : violations_(violations), origins_(origins) {}

  // `node` takes `mean`, of its snapshot `own` and those of others.
  void OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own);
  // `node` has completed a count, and all trainers have made so many samples by now. whole: the job
  // loses nobody and nothing.
  void OnCounted(int node, double job_samples, double made, bool whole);

  uint64_t means() const { return means_; }
  uint64_t counts() const { return counts_; }

 private:
  Violations& violations_;
  const Origins& origins_;
  // By node: what was made at its last count, and at the one before.
  std::map<int, std::pair<double, double>> made_;
  uint64_t means_ = 0, counts_ = 0;
};

}  // namespace crowdsurf::simulator
