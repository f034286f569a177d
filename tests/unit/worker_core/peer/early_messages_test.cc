// Messages of a view that this peer has not seen yet: kept, within bounds.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/peer/peer.h"
#include "worker/core/port/messages.h"
#include "worker/core/round/round_codec.h"

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

// A member of a round of 64 says some 2,500 in a second, and all else only once.
TEST(EarlyMessagesTest, NoBeatIsKeptForAViewToCome) {
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
  for (int i = 0; i < 2'000; ++i) {
    const FrameBody body = i == 0 ? FrameBody(Ready()) : FrameBody(Beat());
    frame.frame = EncodeFrame({InstanceId(), body});
    peer.OnMessage(kNow, Id(2), EncodeMessage(frame), out);
  }
  EXPECT_EQ(registry.Value("crowdsurf_peer_messages_refused_total", {{"reason", "other_view"}}), 0);
}

}  // namespace
}  // namespace crowdsurf::worker
