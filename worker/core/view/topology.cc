#include "worker/core/view/topology.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace crowdsurf::worker {

std::vector<uint32_t> Topology::Neighbours(size_t graph) const {
  std::vector<uint32_t> result;
  for (const Edge& edge : graphs[graph].edges) {
    if (edge.a == self) result.push_back(edge.b);
    if (edge.b == self) result.push_back(edge.a);
  }
  std::sort(result.begin(), result.end());
  return result;
}

GraphKind BuildableKind(GraphKind kind, uint32_t n) {
  if (MakeGraph(kind, n).ok()) return kind;
  // Hypercube and Torus fit only some numbers of workers.
  return kind == GraphKind::kHypercube ? GraphKind::kExponential : GraphKind::kRing;
}

Topology TopologyOf(const View& view, const PeerId& self, GraphKind kind, GraphUse use) {
  // By age: a newcomer is the last node, so fixed neighbours change little.
  std::vector<Member> members = view.members;
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.joined_unix_ms, a.id) < std::tie(b.joined_unix_ms, b.id);
  });
  Topology topology;
  for (const Member& member : members) topology.nodes.push_back(member.id);
  const auto at = std::find(topology.nodes.begin(), topology.nodes.end(), self);
  CHECK(at != topology.nodes.end());
  topology.self = static_cast<uint32_t>(at - topology.nodes.begin());
  const auto n = static_cast<uint32_t>(members.size());
  if (use == GraphUse::kTrees) {
    auto trees = TreesOf(kind, n);
    // A graph that is no tree: the double tree takes its place.
    topology.kind = trees.ok() ? kind : GraphKind::kDoubleBinaryTree;
    if (!trees.ok()) trees = TreesOf(topology.kind, n);
    topology.graphs = *std::move(trees);
  } else {
    topology.kind = BuildableKind(kind, n);
    topology.graphs = {MakeGraph(topology.kind, n).value()};
  }
  return topology;
}

}  // namespace crowdsurf::worker
