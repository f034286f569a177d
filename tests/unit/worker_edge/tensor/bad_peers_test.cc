// Peers that mean harm by what they do not do: thousands that say nothing, and one that takes
// nothing. Everybody else goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

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

}  // namespace
}  // namespace crowdsurf::worker
