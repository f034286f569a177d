// Peers that mean harm by what they do not do: thousands that say nothing, and one that takes
// nothing. Everybody else goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "tests/unit/worker_edge/tensor/raw_peer.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"

namespace crowdsurf::worker {
namespace {

using Node = TransportNode;

class BadPeersTest : public testing::TestWithParam<bool> {  // with TLS or without
 protected:
  const dht::TestAuthority* authority() { return GetParam() ? &authority_ : nullptr; }
  dht::TestAuthority authority_;
};
INSTANTIATE_TEST_SUITE_P(, BadPeersTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "MutualTls" : "Plain"; });

// While it lives, this process may have so many descriptors where the system lets it.
class Descriptors {
 public:
  explicit Descriptors(rlim_t wanted) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = std::max(before_.rlim_cur, std::min(wanted, before_.rlim_max));
    enough_ = setrlimit(RLIMIT_NOFILE, &more) == 0 && more.rlim_cur >= wanted;
  }
  ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  Descriptors(const Descriptors&) = delete;
  bool enough() const { return enough_; }

 private:
  rlimit before_{};
  bool enough_ = false;
};

TEST_P(BadPeersTest, TenThousandHalfOpenConnectionsKeepNobodyOut) {
  constexpr size_t kSilent = 10'000;
  const Descriptors descriptors(kSilent + 3'000);
  if (!descriptors.enough()) GTEST_SKIP() << "the system allows fewer descriptors";
  TensorTransportOptions patient;
  patient.open_within = Seconds(1000);  // no timer makes room
  Node a(authority(), "a"), b(authority(), "b", patient), late(authority(), "late");
  a.Send(b, Bytes(7));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  std::vector<int> silent;
  for (size_t i = 0; i < kSilent; ++i) silent.push_back(Dial(b.transport().endpoint()));
  // All but those that have a place now were ended, and counted; who was there before is not.
  const double least = static_cast<double>(kSilent - patient.accepted);
  EXPECT_TRUE(b.EventuallyCounts("too_many", least));
  a.Send(b, Bytes(8));
  late.Send(b, Bytes(9));
  EXPECT_TRUE(b.Eventually([&] { return b.received.size() == 3; }));
  EXPECT_EQ(a.Downs().size(), 0U);
  for (const int fd : silent) close(fd);
}

// Slower than one that reads a byte a second.
TEST_P(BadPeersTest, APeerThatTakesNothingHoldsNobodyUp) {
  TensorTransportOptions small;
  small.queue_bytes = 1 << 20;
  small.receive_bytes = 256 << 10;
  Node a(authority(), "a", small), stuck(authority(), "stuck", small), c(authority(), "c", small);
  stuck.SetBlocked(true);
  size_t queued = 0, full = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (stuck.metrics().Value("crowdsurf_tensor_reads_paused_total") == 0 || full == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    (a.Send(stuck, Bytes(128 << 10)) == TensorTransport::Sent::kQueued ? queued : full) += 1;
  }
  for (size_t frames = 1; frames <= 50; ++frames) {
    ASSERT_EQ(a.Send(c, Bytes(128 << 10)), TensorTransport::Sent::kQueued);
    ASSERT_TRUE(c.Eventually([&] { return c.received.size() == frames; })) << frames;
    ASSERT_EQ(c.Send(a, Bytes(100)), TensorTransport::Sent::kQueued);
    ASSERT_TRUE(a.Eventually([&] { return a.received.size() == frames; })) << frames;
  }
  stuck.SetBlocked(false);
  EXPECT_TRUE(stuck.Eventually([&] { return stuck.received.size() == queued; }));
}

// A raw peer in the clear, which connects as often as it likes.
class RawPeerTest : public testing::Test {
 protected:
  explicit RawPeerTest(size_t most = 2) {
    TensorTransportOptions options;
    options.accepted_of_key = most;
    options.threads = 1;
    node_ = std::make_unique<Node>(nullptr, "a", options);
  }
  ~RawPeerTest() override {
    for (const int fd : open_) close(fd);
  }
  // A connection that has said its hello and was answered.
  int Connected(uint8_t number = 7) {
    const int fd = Dial(node_->transport().endpoint());
    open_.push_back(fd);
    TensorHello hello;
    hello.job = "job";
    hello.id = PeerId(std::array<uint8_t, PeerId::kBytes>{number});
    hello.boot = 1;
    hello.listen = "127.0.0.1:1";
    WriteAll(fd, HelloOf(hello));
    char answer = 0;
    EXPECT_EQ(recv(fd, &answer, 1, 0), 1);
    return fd;
  }
  static bool IsOpen(int fd) {
    char bytes[512];
    ssize_t got = 0;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  static void Reset(int fd) {
    const linger now{1, 0};
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  }
  void CloseFirst() {
    close(open_.front());
    open_.erase(open_.begin());
  }

  std::unique_ptr<Node> node_;
  std::vector<int> open_;
};

TEST_F(RawPeerTest, AThirdConnectionOfOnePeerTakesThePlaceOfItsFirst) {
  const int first = Connected();
  const int other = Connected(9);
  const int second = Connected();
  const int third = Connected();
  EXPECT_TRUE(EventuallyHolds([&] { return !IsOpen(first); }));
  EXPECT_TRUE(node_->EventuallyCounts("too_many", 1));
  EXPECT_TRUE(IsOpen(second) && IsOpen(third) && IsOpen(other));
}

// What the first had on its way went with it, and nobody else would say so.
TEST_F(RawPeerTest, AConnectionThatIsThereAgainAfterAResetIsToldOfAndAFirstOneIsNot) {
  const int first = Connected();
  Connected(9);
  Reset(first);
  CloseFirst();
  ASSERT_TRUE(node_->EventuallyCounts("lost", 1));
  Connected();
  EXPECT_TRUE(node_->Eventually([&] { return node_->renewed.size() == 1; }));
  EXPECT_EQ(node_->renewed.front(), PeerId(std::array<uint8_t, PeerId::kBytes>{7}));
}

}  // namespace
}  // namespace crowdsurf::worker
