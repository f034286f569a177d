// Messages of a view that this peer has not seen yet: kept, within bounds.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/peer/peer.h"
#include "worker/core/port/messages.h"

namespace crowdsurf::worker {
namespace {

constexpr Time kNow = Time::FromNanoseconds(1'000'000'000);

TEST(EarlyMessagesTest, WhatIsKeptForAViewToComeIsBoundedByItsBytes) {
  MetricRegistry registry;
  PeerConfig config;
  config.job = "job";
  config.worker = "w";
  config.id = Id(1);
  Peer peer(config, Rng(1), Logger(), registry);
  Actions out;
  peer.Start(kNow, out);
  message::RoundFrame frame;
  frame.view = ViewHash(std::array<uint8_t, 32>{9});
  frame.frame.resize(4 << 20);
  const Bytes body = EncodeMessage(frame);
  const auto refused = [&] {
    return registry.Value("crowdsurf_peer_messages_refused_total", {{"reason", "other_view"}});
  };
  for (int i = 0; i < 3; ++i) peer.OnMessage(kNow, Id(2), body, out);
  EXPECT_EQ(refused(), 0) << "12 MiB are kept";
  for (int i = 0; i < 3; ++i) peer.OnMessage(kNow, Id(2), body, out);
  EXPECT_EQ(refused(), 3) << "of 16 MiB at most";
}

}  // namespace
}  // namespace crowdsurf::worker
