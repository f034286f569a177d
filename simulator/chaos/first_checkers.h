// FirstCheckers: watches from outside that the trainers of a job start from equal parameters.
//
// Every trainer begins with parameters of its own. It may start from a delivered average, or from
// what some node has offered as the first parameters; or each of its values from one of these,
// where its transfer took longer than averages follow each other (docs/averaging.md). Nodes that
// are in a mean for the first time, and started from no average, started equal. A trainer may start
// from its own only where donors failed for long: never in mild runs. Statement: first
// (violations.h). Owner: one world; single sequence. Memory: a digest and the values of each
// average and offer.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/id.h"
#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"

namespace crowdsurf::simulator {

struct FirstStarts {
  uint64_t given = 0;     // first parameters that were offered
  uint64_t taken = 0;     // starts from others' first parameters
  uint64_t own = 0;       // starts from own ones that nobody was given
  uint64_t compared = 0;  // nodes whose start was compared with another's
};

class FirstCheckers {
 public:
  FirstCheckers(Violations& violations, bool mild, FirstStarts& starts)
      : violations_(violations), mild_(mild), starts_(starts) {}

  void OnOffered(int node, const std::vector<float>& values);
  void OnAverage(const std::vector<float>& values);
  // The trainer starts from these, or is told to go on from them.
  void OnStart(int node, const std::vector<float>& values);
  void OnPublished(int node, SnapshotId snapshot) { node_of_[snapshot] = node; }
  // A node delivers a mean of these snapshots.
  void OnMean(const std::set<SnapshotId>& inside);

 private:
  struct Start {
    Digest values;
    bool average = false;  // or mixed of several: it has no weight in a mean
  };
  void Keep(const std::vector<float>& values);
  bool IsMixed(const std::vector<float>& values) const;

  Violations& violations_;
  const bool mild_;
  FirstStarts& starts_;
  std::map<Digest, int> offered_;  // and by which node
  std::set<Digest> averages_;
  std::vector<std::set<uint32_t>> seen_;  // bits at each place of averages and offers
  std::map<int, Start> start_of_;
  std::map<SnapshotId, int> node_of_;
  std::set<int> averaged_;  // nodes that were in some mean
};

}  // namespace crowdsurf::simulator
