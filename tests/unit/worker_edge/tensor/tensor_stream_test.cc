// What a connection in the clear reads: whole frames, however the network cuts their bytes, and
// none of a peer that means harm.
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker_edge/tensor/raw_peer.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"

namespace crowdsurf::worker {
namespace {

using Node = TransportNode;

Bytes GoodHello() { return HelloOf({"job", PeerId(std::array<uint8_t, 32>{9}), 1, "127.0.0.1:1"}); }

TEST(TensorStreamTest, FramesArriveWholeHoweverTheirBytesAreCut) {
  constexpr uint64_t kSeed = 1;
  constexpr size_t kFrames = 200;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Rng rng(kSeed);
  Node node(nullptr, "a");
  Bytes stream = GoodHello();
  const auto add = [&](const TensorHeader& header, const Bytes& payload) {
    const Bytes frame = FrameOf(header, payload);
    stream.insert(stream.end(), frame.begin(), frame.end());
  };
  std::vector<Bytes> payloads;
  for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {
    // Many are empty or short, so that whole headers follow each other.
    payloads.emplace_back(rng.Uniform(3) == 0 ? 0 : rng.Uniform(300), uint8_t(rng.Next()));
    add({.kind = TensorKind::kInput, .chunk = chunk}, payloads.back());
  }
  add({.kind = TensorKind::kGoodbye}, {});
  const int fd = Dial(node.transport().endpoint());
  const int at_once = 1;
  ASSERT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once), 0);
  for (size_t at = 0; at < stream.size();) {
    const size_t piece = std::min<size_t>(stream.size() - at, 1 + rng.Uniform(400));
    WriteAll(fd, ByteView(stream).subspan(at, piece));
    at += piece;
  }
  ASSERT_TRUE(node.Eventually([&] { return node.received.size() == kFrames; }));
  for (size_t i = 0; i < kFrames; ++i) {
    EXPECT_EQ(node.received[i].header.chunk, i);
    EXPECT_EQ(node.received[i].payload, payloads[i]) << i;
  }
  EXPECT_TRUE(node.EventuallyCounts("goodbye", 1));
  close(fd);
}

TEST(TensorStreamTest, HostileFramesAfterAGoodHelloEndTheConnection) {
  Node b(nullptr, "b");
  TensorHeader huge;  // a length over the bound
  huge.payload_bytes = 0xFFFFFFFF;
  TensorHeader corrupt;  // a payload that fails its hash
  corrupt.payload_bytes = 4;
  corrupt.hash = 1;
  double ended = 0;
  for (const TensorHeader& bad : {huge, corrupt}) {
    const int fd = Dial(b.transport().endpoint());
    WriteAll(fd, GoodHello());
    WriteAll(fd, EncodeTensorHeader(bad));
    WriteAll(fd, Bytes(4));
    EXPECT_TRUE(b.EventuallyCounts("garbage", ++ended));
    close(fd);
  }
  EXPECT_TRUE(b.received.empty());
}

TEST(TensorStreamTest, AResultThatFailsItsHashOrEndsHalfwayFreesItsSlot) {
  Node b(nullptr, "b");
  Bytes memory(1000);
  ResultSlots& slots = b.transport().slots();
  slots.Open({}, {std::span(memory)});
  TensorHeader result;
  result.kind = TensorKind::kResult;
  result.payload_bytes = 1000;
  result.hash = 1;
  for (const auto& [bytes, how] :
       {std::pair(size_t{1000}, "garbage"), std::pair(size_t{10}, "lost")}) {
    const int fd = Dial(b.transport().endpoint());
    WriteAll(fd, GoodHello());
    WriteAll(fd, EncodeTensorHeader(result));
    WriteAll(fd, Bytes(bytes, 7));
    shutdown(fd, SHUT_WR);  // close would send a reset, and what was written might be lost
    EXPECT_TRUE(b.EventuallyCounts(how, 1));
    close(fd);
    const auto next = slots.Begin({}, 0, 1000);
    ASSERT_NE(next, nullptr) << how;
    EXPECT_EQ(memory[bytes - 1], 7) << "it began to land";
    slots.Abandon(*next);
    std::fill(memory.begin(), memory.end(), uint8_t{0});
  }
}

}  // namespace
}  // namespace crowdsurf::worker
