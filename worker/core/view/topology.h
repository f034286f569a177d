// Topology: who is whose neighbour in a view, as every member derives it.
//
// Pure function of the view. Nodes are the members in join order (joined-at, then id): a join adds
// a last node, and trees keep the longest-lived near the root. A departure moves later nodes up by
// one. Values; any thread. Bounds: MaxMembersOf (view_plan.h). Source: docs/strategies.
#pragma once

#include <string>
#include <vector>

#include "worker/core/view/graph.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

struct Topology {
  std::vector<PeerId> nodes;
  uint32_t self = 0;
  GraphKind kind = GraphKind::kRing;  // what was built
  std::vector<Graph> graphs;          // one, or the two trees of a DoubleBinaryTree

  std::vector<uint32_t> Neighbours(size_t graph) const;  // of self, ascending
};

enum class GraphUse : uint8_t { kGraph, kTrees };

// A graph that `n` members cannot form (a hypercube of seven) gives way to one that any number can:
// Hypercube to Exponential, Torus to Ring; numbers change with every preemption. kTrees: the
// trees that messages of RelaySum travel on; a kind that is no tree gives way to DoubleBinaryTree
// (admission refuses it before). Pre: `self` is a member.
Topology TopologyOf(const View& view, const PeerId& self, GraphKind kind, GraphUse use);
GraphKind BuildableKind(GraphKind kind, uint32_t n);

}  // namespace crowdsurf::worker
