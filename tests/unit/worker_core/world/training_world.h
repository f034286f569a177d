// Training world: a PeerWorld whose trainers move, driven from averaging to averaging.
//
// Owner: one test; single sequence, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {

// `members` that train towards different places.
inline void Fill(PeerWorld& world, size_t members) {
  for (size_t i = 0; i < members; ++i) {
    world.Add();
    world.node(i).drift = 0.01 * static_cast<double>(i + 1);
  }
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
}

inline size_t Count(const PeerWorld::Node& node, MixKernel kernel) {
  return static_cast<size_t>(std::count_if(node.kernels.begin(), node.kernels.end(),
                                           [&](const RunKernel& k) { return k.kernel == kernel; }));
}

// Until node `i` has delivered once more and all the others had the time to.
inline void RunToDelivery(PeerWorld& world, size_t i) {
  const size_t before = world.node(i).deliveries.size();
  for (int ms = 0; ms < 2'000 && world.node(i).deliveries.size() == before; ++ms)
    world.RunFor(Milliseconds(1));
  ASSERT_GT(world.node(i).deliveries.size(), before);
  world.RunFor(Milliseconds(4));
}

}  // namespace crowdsurf::worker
