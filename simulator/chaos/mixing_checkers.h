// MixingCheckers: watches strategies on graphs from outside: what moves one end of an exchange
// moves the other by the opposite, once, and what trainers are given is sound.
//
// Beside PeerCheckers, which has the job's count and each view's full average. It keeps an account
// of every difference that an end has moved by and the other has not yet. At the end the account of
// pairs must be what the ends have counted as one-sided, and what is still under way. Statements:
// mass, hull, finite (violations.h). Owner: one world; single sequence. Memory: what one end alone
// has applied, and two vectors for each view.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "simulator/engine/violations.h"
#include "worker/core/view/averaging_config.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::simulator {

struct MixingTotals {
  uint64_t results = 0;    // that trainers were given by neighbours' mixing
  uint64_t counted = 0;    // averagings that counted samples only, over all nodes
  uint64_t exchanges = 0;  // ends of exchanges, or of steps over an edge, that were compared
  uint64_t one_sided = 0;  // of those that one end alone has applied
};

class MixingCheckers {
 public:
  // config: of the strategy on a graph. Only models of neighbours that are averaged whole (Gossip
  // with Neighbours, RelaySum) stay within all models of their view; others may overshoot.
  MixingCheckers(Violations& violations, const worker::AveragingConfig& config)
      : violations_(violations), config_(config) {}

  // The node has its strategy for that view from now on.
  void OnView(int node, const worker::ViewHash& view) { views_[node] = view; }
  void OnSnapshot(int node, const std::vector<float>& values);
  void OnResult(int node, const std::vector<float>& values);
  void OnCounted() { ++totals_.counted; }

  // Pairs: `model` (0: x, 1: x-tilde) moves by `weight` times `difference`.
  void OnMove(int node, size_t model, double weight, const std::vector<float>& difference);
  // PowerGossip: `node` ends that step of the edge between peers low and high, by those two frames.
  struct Step {
    PeerId low, high;
    uint64_t number = 0;
    double weight = 0;
    ByteView low_frame, high_frame;
  };
  void OnStep(int node, const Step& step);

  // A node that lives at the end. It has counted `one_sided` ends, and has places for `under_way`.
  void CheckEnd(int node, uint64_t one_sided, uint64_t under_way);

  const MixingTotals& totals() const { return totals_; }

 private:
  // View, model, and the bytes of the difference.
  using Difference = std::tuple<worker::ViewHash, size_t, Digest>;
  struct Moved {
    int node = 0;
    double weight = 0;
  };
  using EdgeStep = std::tuple<worker::ViewHash, PeerId, PeerId, uint64_t>;
  struct Ended {
    int node = 0;
    Digest of;  // frames and weight
    bool both = false;
  };
  struct Hull {
    std::vector<float> least, most;
  };
  bool HasHull() const;
  void Add(std::string_view statement, int node, const std::string& what);

  Violations& violations_;
  const worker::AveragingConfig config_;
  std::map<int, worker::ViewHash> views_;  // by node
  std::map<Difference, std::vector<Moved>> open_;
  std::map<Difference, std::set<int>> movers_;  // nodes that were pushed, and moved by it
  std::map<EdgeStep, Ended> steps_;
  std::map<worker::ViewHash, Hull> hulls_;
  MixingTotals totals_;
};

}  // namespace crowdsurf::simulator
