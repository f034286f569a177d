// What a world knows of leases, for their checkers (chaos_world.h).
#include <map>
#include <set>
#include <utility>

#include "simulator/chaos/chaos_world.h"

namespace crowdsurf::simulator {

void ChaosWorld::SeeLeases(int node, const worker::Deliver& deliver, const RegionBuffer& mean) {
  const std::set<SnapshotId> inside = origins_.Throughout(mean.origins);
  std::map<int, const LeaseTrainer*> trainers;
  for (const auto& other : nodes_) trainers[other->index()] = other->leases();
  lease_checkers_.OnDelivered(node, deliver, inside, trainers);
}

void ChaosWorld::CheckLeases() {
  std::map<int, std::pair<const LeaseTrainer*, LeaseCheckers::End>> nodes;
  for (const auto& node : nodes_) {
    const auto end = node->left()    ? LeaseCheckers::End::kLeft
                     : node->alive() ? LeaseCheckers::End::kLives
                                     : LeaseCheckers::End::kDied;
    nodes[node->index()] = {node->leases(), end};
  }
  lease_checkers_.CheckEnd(nodes, queue_.now());
  report_.leases_committed = lease_checkers_.committed();
  report_.leases_retrained = lease_checkers_.retrained();
  report_.leases_epochs = lease_checkers_.epochs();
}

}  // namespace crowdsurf::simulator
