// A connection in the clear reads whole frames, however the network cuts their bytes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"
#include "worker/edge/tensor/tensor_frame.h"

namespace crowdsurf::worker {
namespace {

int Dial(const std::string& endpoint) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int at_once = 1;
  EXPECT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port =
      htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void Append(Bytes& stream, TensorHeader header, ByteView payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.hash = TensorPayloadHash(header.instance, payload);
  const TensorHeaderBytes bytes = EncodeTensorHeader(header);
  stream.insert(stream.end(), bytes.begin(), bytes.end());
  stream.insert(stream.end(), payload.begin(), payload.end());
}

TEST(TensorStreamTest, FramesArriveWholeHoweverTheirBytesAreCut) {
  constexpr uint64_t kSeed = 1;
  constexpr size_t kFrames = 200;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Rng rng(kSeed);
  TransportNode node(nullptr, "a");
  Bytes stream;
  Append(stream, {.kind = TensorKind::kHello},
         EncodeTensorHello({"job", PeerId(std::array<uint8_t, 32>{9}), 1, "127.0.0.1:1"}));
  std::vector<Bytes> payloads;
  for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {
    // Many are empty or short, so that whole headers follow each other.
    payloads.emplace_back(rng.Uniform(3) == 0 ? 0 : rng.Uniform(300), uint8_t(rng.Next()));
    Append(stream, {.kind = TensorKind::kInput, .chunk = chunk}, payloads.back());
  }
  Append(stream, {.kind = TensorKind::kGoodbye}, {});
  const int fd = Dial(node.transport().endpoint());
  for (size_t at = 0; at < stream.size();) {
    const size_t piece = std::min<size_t>(stream.size() - at, 1 + rng.Uniform(400));
    ASSERT_EQ(send(fd, stream.data() + at, piece, MSG_NOSIGNAL), static_cast<ssize_t>(piece));
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

}  // namespace
}  // namespace crowdsurf::worker
