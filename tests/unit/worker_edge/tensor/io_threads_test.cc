// One transport with one, two and four I/O threads: what crosses from thread to thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"

namespace crowdsurf::worker {
namespace {

using Node = TransportNode;

class IoThreadsTest : public testing::TestWithParam<std::tuple<bool, size_t>> {  // TLS, threads
 protected:
  const dht::TestAuthority* authority() { return std::get<0>(GetParam()) ? &authority_ : nullptr; }
  static size_t threads() { return std::get<1>(GetParam()); }
  static TensorTransportOptions Options() {
    TensorTransportOptions options;
    options.threads = threads();
    return options;
  }
  // Peers of "hub".
  std::vector<std::unique_ptr<Node>> Peers(size_t count) {
    std::vector<std::unique_ptr<Node>> peers;
    for (size_t i = 0; i < count; ++i)
      peers.push_back(std::make_unique<Node>(authority(), "p" + std::to_string(i), Options()));
    return peers;
  }
  static bool Heard(const Node& node, uint32_t chunk) {
    return std::ranges::any_of(node.received,
                               [&](const auto& one) { return one.header.chunk == chunk; });
  }
  static size_t Connections(Node& node) {
    const std::vector<size_t> loads = node.transport().loads();
    return std::accumulate(loads.begin(), loads.end(), size_t{0});
  }
  dht::TestAuthority authority_;
};
INSTANTIATE_TEST_SUITE_P(, IoThreadsTest,
                         testing::Combine(testing::Bool(), testing::Values(1, 2, 4)),
                         [](const auto& test) {
                           return (std::get<0>(test.param) ? "MutualTls" : "Plain") +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(IoThreadsTest, FramesOfEachPeerKeepTheirOrderWhicheverThreadsTheyPass) {
  constexpr size_t kPeers = 6;
  constexpr uint32_t kFrames = 100;
  Node hub(authority(), "hub", Options());
  const auto peers = Peers(kPeers);
  for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {
    for (const auto& peer : peers) {
      ASSERT_EQ(peer->Send(hub, Bytes(10'000, 1), chunk), TensorTransport::Sent::kQueued);
      ASSERT_EQ(hub.Send(*peer, Bytes(10'000, 1), chunk), TensorTransport::Sent::kQueued);
    }
  }
  ASSERT_TRUE(hub.Eventually([&] { return hub.received.size() == kPeers * kFrames; }));
  std::map<PeerId, uint32_t> next;
  for (const Received& one : hub.received) EXPECT_EQ(one.header.chunk, next[one.from]++);
  for (const auto& peer : peers) {
    ASSERT_TRUE(peer->Eventually([&] { return peer->received.size() == kFrames; }));
    for (uint32_t i = 0; i < kFrames; ++i) EXPECT_EQ(peer->received[i].header.chunk, i);
  }
}

TEST_P(IoThreadsTest, ConnectionsSpreadAndGiveTheirPlacesBack) {
  Node hub(authority(), "hub", Options());
  ASSERT_EQ(hub.transport().loads().size(), threads());
  {
    const auto peers = Peers(6);
    for (const auto& peer : peers) {
      hub.Send(*peer, Bytes(7));
      peer->Send(hub, Bytes(7));
    }
    ASSERT_TRUE(hub.Eventually([&] { return hub.received.size() == peers.size(); }));
    const std::vector<size_t> loads = hub.transport().loads();
    const auto [low, high] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*high - *low, 1U) << "twelve connections, and the one that is awaited";
    EXPECT_EQ(Connections(hub), 13U);
  }
  EXPECT_TRUE(EventuallyHolds([&] { return Connections(hub) == 1; }))
      << "peers are dead, places are free";
}

// With two links at least that come and go in turn, each is on another thread time after time.
TEST_P(IoThreadsTest, APeerThatIsForgottenAgainAndAgainIsReachedEachTime) {
  Node a(authority(), "a", Options()), b(authority(), "b", Options()), c(authority(), "c");
  const auto links = [&] { return Connections(a) - 1; };  // but for the awaited one
  for (size_t frames = 1; frames <= 10; ++frames) {
    for (Node* const to : {&b, &c}) {
      ASSERT_EQ(a.Send(*to, Bytes(7)), TensorTransport::Sent::kQueued);
      ASSERT_TRUE(to->Eventually([&] { return to->received.size() == frames; })) << frames;
      Node& other = to == &b ? c : b;
      a.transport().Forget(other.id());
      // Before that a Send might join what Forget drops.
      ASSERT_TRUE(EventuallyHolds([&] { return links() == 1; }));
    }
  }
  EXPECT_TRUE(a.Downs().empty());
}

// A thread has room for one link. So a send to another peer ends the link that the next send wants.
TEST_P(IoThreadsTest, ASendThatCrossesTheEndOfItsLinkDoesNoHarm) {
  TensorTransportOptions one = Options();
  one.dialed = 1;
  Node hub(authority(), "hub", one);
  const auto peers = Peers(threads() + 1);
  for (uint32_t round = 1; round <= 20; ++round) {
    Node& to = *peers[round % peers.size()];
    // What waits for a link that goes is dropped, so it is sent until it has come.
    ASSERT_TRUE(EventuallyHolds([&] {
      hub.Send(to, Bytes(7), round);
      return to.Eventually([&] { return Heard(to, round); }, std::chrono::milliseconds(100));
    }));
    for (const auto& other : peers)
      if (other.get() != &to) hub.Send(*other, Bytes(7));
    hub.Send(to, Bytes(7));
  }
  EXPECT_TRUE(hub.Downs().empty());
}

TEST_P(IoThreadsTest, AHostThatIsBehindStopsTheReadingOfAllThreadsAndAllGoOn) {
  TensorTransportOptions small = Options();
  small.receive_bytes = 256 << 10;
  Node hub(authority(), "hub", small);
  const auto peers = Peers(4);
  hub.SetBlocked(true);
  size_t queued = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (hub.metrics().Value("crowdsurf_tensor_reads_paused_total") <
         static_cast<double>(peers.size())) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    for (const auto& peer : peers)
      queued += peer->Send(hub, Bytes(64 << 10)) == TensorTransport::Sent::kQueued ? 1 : 0;
  }
  hub.SetBlocked(false);
  EXPECT_TRUE(hub.Eventually([&] { return hub.received.size() == queued; }));
}

TEST_P(IoThreadsTest, AStopInTheMiddleOfTrafficLosesNobodysThreads) {
  for (int i = 0; i < 5; ++i) {
    Node hub(authority(), "hub", Options());
    const auto peers = Peers(3);
    for (int frame = 0; frame < 20; ++frame) {
      for (const auto& peer : peers) {
        peer->Send(hub, Bytes(100'000));
        hub.Send(*peer, Bytes(100'000));
      }
    }
    hub.transport().Stop();
  }
}

}  // namespace
}  // namespace crowdsurf::worker
