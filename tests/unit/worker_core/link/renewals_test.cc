// When a connection is there again: written out by hand.
#include "worker/core/link/renewals.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

TEST(RenewalsTest, OnlyAfterACutOrBesideAHalfOpenOne) {
  Renewals links;
  EXPECT_FALSE(links.OnOpen(PeerAt(1)));
  EXPECT_FALSE(links.OnOpen(PeerAt(2)));
  links.OnEnd(PeerAt(1), LinkEnd::kInGoodOrder);
  EXPECT_FALSE(links.OnOpen(PeerAt(1)));
  links.OnEnd(PeerAt(1), LinkEnd::kCut);
  EXPECT_TRUE(links.OnOpen(PeerAt(1)));
  EXPECT_TRUE(links.OnOpen(PeerAt(1))) << "nobody saw that the one before is gone";
  links.OnEnd(PeerAt(1), LinkEnd::kInGoodOrder);
  links.OnEnd(PeerAt(1), LinkEnd::kInGoodOrder);
  EXPECT_FALSE(links.OnOpen(PeerAt(1)));
}

TEST(RenewalsTest, PeersThatComeAndDieAreForgotten) {
  Renewals links;
  EXPECT_FALSE(links.OnOpen(PeerAt(0)));
  for (size_t i = 1; i < 3 * Renewals::kMost; ++i) {
    links.OnOpen(PeerAt(i));
    links.OnEnd(PeerAt(i), LinkEnd::kCut);
    ASSERT_LE(links.size(), Renewals::kMost);
  }
  EXPECT_TRUE(links.OnOpen(PeerAt(0))) << "it is still connected";
}

}  // namespace
}  // namespace crowdsurf::worker
