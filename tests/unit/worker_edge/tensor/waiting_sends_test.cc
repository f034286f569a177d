// What the planes do with sends that a peer's link does not take: a peer that accepts connections
// and says nothing, until it lives again.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/unit/worker_edge/tensor/planes.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kChunk = Planes::kChunk;
constexpr uint32_t kChunks = Planes::kChunks;

// Takes connections, and nobody answers on them.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentPort() { close(fd_); }
  const std::string& endpoint() const { return endpoint_; }

 private:
  const int fd_;
  std::string endpoint_;
};

void ExpectChunkOf(float value, const Bytes& payload) {
  std::vector<float> values(kChunk);
  ASSERT_EQ(payload.size(), values.size() * sizeof(float));
  std::memcpy(values.data(), payload.data(), payload.size());
  EXPECT_EQ(std::ranges::count(values, value), std::ptrdiff_t{kChunk}) << value;
}

TEST(WaitingSendsTest, APeerThatFellSilentAndLivesAgainGetsTheNextInput) {
  SilentPort silent;
  Planes a(Planes::kQueueBytes, Milliseconds(50)), b;
  a.Introduce(b.id(), silent.endpoint());
  a.OpenRound();
  for (uint32_t chunk = 0; chunk + 1 < kChunks; ++chunk) a.SendInput(b.id(), chunk);
  ASSERT_GT(a.waiting(), 0);
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  a.Introduce(b.id(), b.endpoint());
  a.SendInput(b.id(), kChunks - 1);
  EXPECT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
  // The host may still be at the waiting ones when the last has arrived.
  EXPECT_TRUE(a.Eventually([&] { return a.waiting() == 0; }));
}

TEST(WaitingSendsTest, AMixMessageToAPeerThatFellSilentIsSentWhenItLivesAgain) {
  SilentPort silent;
  Planes a(Planes::kQueueBytes, Milliseconds(50)), b;
  a.Introduce(b.id(), silent.endpoint());
  a.SendMix(b.id());
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  EXPECT_EQ(a.mix_sent(), 0u);
  a.Introduce(b.id(), b.endpoint());
  EXPECT_TRUE(a.Eventually([&] { return a.mixes_sent == 1; }));
  EXPECT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
}

TEST(WaitingSendsTest, AnInputWhoseSnapshotIsReplacedIsNotSent) {
  SilentPort silent;
  Planes a(Planes::kQueueBytes, Milliseconds(50)), b;
  a.Introduce(b.id(), silent.endpoint());
  a.OpenRound();
  for (uint32_t chunk = 0; chunk + 1 < kChunks; ++chunk) a.SendInput(b.id(), chunk);
  ASSERT_GT(a.waiting(), 0);
  a.Overwrite();
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  a.Introduce(b.id(), b.endpoint());
  a.SendInput(b.id(), kChunks - 1);
  ASSERT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
  const std::set<uint32_t> arrived = b.arrived();
  EXPECT_FALSE(arrived.contains(kChunks - 2)) << "it waited for the snapshot before";
}

// Inputs that the link has taken lie in the outbox itself until they are sent, or it is
// overwritten.
TEST(WaitingSendsTest, AnInputOnItsWayKeepsItsSnapshot) {
  constexpr uint32_t kSnapshots = 60;
  Planes a(size_t{kSnapshots} << 20), b;
  a.Introduce(b.id(), b.endpoint());
  a.OpenRound();
  for (uint32_t snapshot = 0; snapshot < kSnapshots; ++snapshot) {
    a.Publish(static_cast<float>(snapshot));
    a.SendInput(b.id(), snapshot % kChunks);
  }
  ASSERT_TRUE(b.Eventually([&] { return b.inputs_here.size() == kSnapshots; }));
  for (uint32_t i = 0; i < kSnapshots; ++i) ExpectChunkOf(static_cast<float>(i), b.inputs_here[i]);
}

// Results lie in their slots until they are sent: another result may take the place, or another
// averaging the whole region.
TEST(WaitingSendsTest, AResultOnItsWayKeepsItsValues) {
  constexpr uint32_t kResults = 60;
  Planes a(size_t{kResults} << 20), b;
  a.Introduce(b.id(), b.endpoint());
  a.OpenRound();
  for (uint32_t i = 0; i < kResults; ++i) {
    a.Publish(static_cast<float>(i));
    a.SendResult(b.id(), static_cast<Ballot>(i));
    if (i % 7 == 3) a.Refill(-1);
  }
  ASSERT_TRUE(b.Eventually([&] { return b.results_here.size() == kResults; }));
  for (uint32_t i = 0; i < kResults; ++i) ExpectChunkOf(static_cast<float>(i), b.results_here[i]);
}

}  // namespace
}  // namespace crowdsurf::worker
