// Tensor planes of several agents over real sockets, with TLS and without: delivery, deaths, full
// queues, and peers that mean harm.
#include "worker/edge/tensor/tensor_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "tests/unit/worker_edge/tensor/half_dead.h"
#include "tests/unit/worker_edge/tensor/no_descriptors.h"
#include "tests/unit/worker_edge/tensor/raw_peer.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"

namespace crowdsurf::worker {
namespace {

using dht::TestAuthority;
using testing::ElementsAre;
using Node = TransportNode;

Bytes Random(size_t size, uint64_t seed) {
  Rng rng(seed);
  Bytes out(size);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng.Next());
  return out;
}

// Whether the other side has ended the connection. What it said before is read and forgotten.
bool Ended(int fd) {
  char ignored[256];
  ssize_t n = 0;
  while ((n = recv(fd, ignored, sizeof ignored, MSG_DONTWAIT)) > 0) {
  }
  return n == 0 || errno != EAGAIN;
}

class TensorTransportTest : public testing::TestWithParam<bool> {  // with TLS or without
 protected:
  const TestAuthority* authority() { return GetParam() ? &authority_ : nullptr; }
  TestAuthority authority_;
};
INSTANTIATE_TEST_SUITE_P(, TensorTransportTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "MutualTls" : "Plain"; });

TEST_P(TensorTransportTest, FramesOfEverySizeArriveInOrderBothWays) {
  Node a(authority(), "a"), b(authority(), "b");
  const size_t sizes[] = {0, 1, 100, 16'335, 16'336, 16'337, 65'536, 131'072, 1 << 20};
  uint32_t chunk = 0;
  for (const size_t size : sizes) {
    EXPECT_EQ(a.Send(b, Random(size, size), chunk), TensorTransport::Sent::kQueued);
    EXPECT_EQ(b.Send(a, Random(size, size + 1), chunk), TensorTransport::Sent::kQueued);
    ++chunk;
  }
  for (auto [from, at, salt] : {std::tuple{&a, &b, 0}, std::tuple{&b, &a, 1}}) {
    ASSERT_TRUE(at->Eventually([&, node = at] { return node->received.size() == 9; }));
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(at->received[i].from, from->id());
      EXPECT_EQ(at->received[i].header.chunk, i);
      EXPECT_EQ(at->received[i].header.rank, 3);
      EXPECT_EQ(at->received[i].header.hash == 0, authority() != nullptr)
          << "inputs in TLS have none";
      EXPECT_EQ(at->received[i].payload, Random(sizes[i], sizes[i] + static_cast<size_t>(salt)));
    }
  }
}

TEST_P(TensorTransportTest, ChunksAreLookedAtAsTheyArrive) {
  Node a(authority(), "a"), b(authority(), "b");
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& values : {std::vector<float>{1, 2}, {1, none}}) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    a.Send(b, bytes);
  }
  a.Send(b, Bytes(7));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 3; }));
  EXPECT_EQ(b.received[0].look, Float32Look::kFinite);
  EXPECT_EQ(b.received[1].look, Float32Look::kNotFinite);
  EXPECT_EQ(b.received[2].look, Float32Look::kNone);
}

TEST_P(TensorTransportTest, ChunksThatHaveLeftAreCountedOnce) {
  Node a(authority(), "a"), b(authority(), "b");
  for (int i = 0; i < 3; ++i) a.Send(b, Bytes(7));
  a.transport().Send(b.id(), b.transport().endpoint(), {.kind = TensorKind::kState},
                     std::make_shared<Bytes>(7));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 4; }));
  uint32_t left = 0;
  EXPECT_TRUE(EventuallyHolds([&] {
    for (const LeftForPeer& to : a.transport().TakeLeft()) {
      EXPECT_EQ(to.peer, b.id());
      EXPECT_TRUE(to.round_trip.has_value());
      EXPECT_LT(to.round_trip.value_or(Seconds(9)), Seconds(1)) << "over loopback";
      left += to.chunks;
    }
    return left >= 3;
  }));
  EXPECT_EQ(left, 3u);
}

TEST_P(TensorTransportTest, AResultIsReceivedIntoItsSlot) {
  Node a(authority(), "a"), b(authority(), "b");
  const InstanceId instance;
  Bytes memory(3000);
  b.transport().slots().Open(instance, {std::span(memory).first(1000), std::span(memory)});
  const Bytes sent = Random(1000, 3);
  for (const uint32_t chunk : {0U, 0U, 2U}) {  // the second one's place is taken; there is no third
    TensorHeader header;
    header.kind = TensorKind::kResult;
    header.chunk = chunk;
    header.hash = TensorPayloadHash(instance, sent);
    a.transport().Send(b.id(), b.transport().endpoint(), header, std::make_shared<Bytes>(sent));
  }
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 3; }));
  ASSERT_NE(b.received[0].landing, nullptr);
  EXPECT_TRUE(b.transport().slots().Keep(*b.received[0].landing));
  EXPECT_TRUE(std::ranges::equal(sent, std::span(memory).first(1000)));
  EXPECT_TRUE(b.received[0].payload.empty());
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(b.received[i].landing, nullptr);
    EXPECT_EQ(b.received[i].payload, sent);
  }
}

TEST_P(TensorTransportTest, ADeadPeerIsHardDownAtOnceForBothDirections) {
  TensorTransportOptions patient;
  patient.open_within = Seconds(1000);  // no timer can have told: only the connection's end
  Node a(authority(), "a", patient);
  auto b = std::make_unique<Node>(authority(), "b");
  auto c = std::make_unique<Node>(authority(), "c");
  ASSERT_EQ(a.Send(*b, Bytes(10)), TensorTransport::Sent::kQueued);  // a dials b
  ASSERT_EQ(c->Send(a, Bytes(10)), TensorTransport::Sent::kQueued);  // c dials a
  ASSERT_TRUE(b->Eventually([&] { return b->received.size() == 1; }));
  ASSERT_TRUE(a.Eventually([&] { return a.received.size() == 1; }));
  const PeerId dead_b = b->id(), dead_c = c->id();
  b.reset();
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  c.reset();
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 2; }));
  EXPECT_THAT(a.Downs(), ElementsAre(std::pair(dead_b, true), std::pair(dead_c, true)));
}

// A process that is being killed may still answer a dial or two, and close them.
TEST_P(TensorTransportTest, APeerThatOnlyAnswersIsDialledThreeTimesMore) {
  Node a(authority(), "a"), b(authority(), "b");
  HalfDead between(b.transport().endpoint());
  a.transport().Send(b.id(), between.endpoint(), {}, nullptr);
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  between.Die();
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.Downs()[0], std::pair(b.id(), false)) << "no refusal: it may live";
  EXPECT_EQ(between.answered(), 3);
}

TEST_P(TensorTransportTest, AnotherPeerAtTheEndpointMeansTheOldOneIsDead) {
  Node a(authority(), "a"), b(authority(), "b"), c(authority(), "c");
  a.transport().Send(b.id(), c.transport().endpoint(), {}, nullptr);
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.Downs()[0], std::pair(b.id(), true));
}

TEST_P(TensorTransportTest, AFullQueueIsSaidAndItsDrainingToo) {
  TensorTransportOptions small;
  small.queue_bytes = 1 << 20;
  small.receive_bytes = 256 << 10;
  Node a(authority(), "a", small), b(authority(), "b", small);
  b.SetBlocked(true);  // the host of b is slow: sockets fill up, then a's queue
  size_t queued = 0, full = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (b.metrics().Value("crowdsurf_tensor_reads_paused_total") == 0 || full == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    (a.Send(b, Bytes(128 << 10)) == TensorTransport::Sent::kQueued ? queued : full) += 1;
  }
  b.SetBlocked(false);
  ASSERT_TRUE(a.Eventually([&] { return a.drained > 0; }));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == queued; }));
}

TEST_P(TensorTransportTest, StrangersWhoSayNothingKeepNoPeerOut) {
  TensorTransportOptions few;
  few.accepted = 4;
  few.open_within = Seconds(1000);  // no timer makes room
  Node a(authority(), "a"), b(authority(), "b", few);
  std::vector<int> silent;
  for (size_t i = 0; i < few.accepted; ++i) silent.push_back(Dial(b.transport().endpoint()));
  a.Send(b, Bytes(7));
  EXPECT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  EXPECT_TRUE(b.EventuallyCounts("too_many", 1));
  for (const int fd : silent) close(fd);
}

TEST_P(TensorTransportTest, TheStrangerThatHasBeenSilentLongestGivesItsPlace) {
  TensorTransportOptions few;
  few.accepted = 2;
  few.open_within = Seconds(1000);  // no timer makes room
  Node b(authority(), "b", few);
  std::vector<int> silent;
  silent.reserve(4);
  for (int i = 0; i < 4; ++i) silent.push_back(Dial(b.transport().endpoint()));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(EventuallyHolds([&] { return Ended(silent[i]); })) << i;
  for (size_t i = 2; i < 4; ++i) EXPECT_FALSE(Ended(silent[i])) << i;
  for (const int fd : silent) close(fd);
}

TEST_P(TensorTransportTest, APeerThatWasSentToLongestAgoGivesItsPlaceAndIsDialledAgain) {
  TensorTransportOptions few;
  few.dialed = 2;
  few.threads = 1;  // else each has a share of them
  Node a(authority(), "a", few), b(authority(), "b"), c(authority(), "c"), d(authority(), "d");
  const auto arrives = [&](Node& at, size_t frames) {
    a.Send(at, Bytes(7));
    return at.Eventually([&] { return at.received.size() == frames; });
  };
  ASSERT_TRUE(arrives(b, 1));
  ASSERT_TRUE(arrives(c, 1));
  ASSERT_TRUE(arrives(b, 2));  // so c was sent to longest ago
  ASSERT_TRUE(arrives(d, 1));
  EXPECT_TRUE(c.EventuallyCounts("goodbye", 1));
  EXPECT_TRUE(arrives(c, 2));
  EXPECT_TRUE(b.EventuallyCounts("goodbye", 1));
  EXPECT_TRUE(a.Downs().empty()) << "nobody is dead";
}

TEST_P(TensorTransportTest, APeerThatAdvertisesANameIsReached) {
  TensorTransportOptions named;
  named.advertise = "localhost";  // which no resolver asks a server for
  Node a(authority(), "a"), b(authority(), "b", named);
  a.Send(b, Bytes(7));
  EXPECT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
}

TEST_P(TensorTransportTest, WithoutDescriptorsItTriesAgainWithPausesAndThenAccepts) {
  Node a(authority(), "a"), b(authority(), "b");
  const auto failures = [&] { return b.metrics().Value("crowdsurf_tensor_accept_failures_total"); };
  std::array<int, 4> dialing;  // before there are none; so many, should some become free
  for (int& fd : dialing) fd = socket(AF_INET, SOCK_STREAM, 0);
  const auto began = std::chrono::steady_clock::now();
  {
    NoDescriptors none;
    for (const int fd : dialing) Connect(fd, b.transport().endpoint());
    EXPECT_TRUE(EventuallyHolds([&] {
      none.TakeFree();
      return failures() >= 3;
    }));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(failures(), took.count() / 0.1 + 2) << "a pause after each";
  a.Send(b, Bytes(7));
  EXPECT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  for (const int fd : dialing) close(fd);
}

TEST_P(TensorTransportTest, GarbageIsCountedAndHarmsNobody) {
  Node a(authority(), "a"), b(authority(), "b");
  const int fd = Dial(b.transport().endpoint());
  WriteAll(fd, Random(4096, 1));
  EXPECT_TRUE(b.EventuallyCounts("wrong_peer", 1));
  close(fd);
  const int silent = Dial(b.transport().endpoint());  // and one that just goes away
  close(silent);
  EXPECT_TRUE(b.EventuallyCounts("failed", 1));
  a.Send(b, Bytes(7));
  EXPECT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
}

TEST(TensorTransportTlsTest, ACertificateOfAnotherAuthorityIsRefusedBothWays) {
  const TestAuthority ours("ours"), theirs("theirs");
  Node a(&ours, "a"), stranger(&theirs, "b");
  a.Send(stranger, Bytes(1));
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.Downs()[0], std::pair(stranger.id(), false));  // refused is not dead
  stranger.Send(a, Bytes(1));
  ASSERT_TRUE(stranger.Eventually([&] { return stranger.downs.size() == 1; }));
  EXPECT_TRUE(a.received.empty());
  EXPECT_TRUE(stranger.received.empty());
}

TEST(TensorTransportTlsTest, ACertificateOfAnotherJobOfTheSameAuthorityIsRefused) {
  const TestAuthority authority;
  TensorTransportOptions other;
  other.job = "other";
  Node a(&authority, "a"), b(&authority, "b", other);
  a.Send(b, Bytes(1));
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  EXPECT_TRUE(b.received.empty());
}

TEST(TensorTransportTlsTest, AnOldBootIsExpelledAndRefused) {
  const TestAuthority authority;
  std::atomic<bool> old = false;
  TensorTransportOptions options;
  options.old_boot = [&](const dht::PublicKey&, uint64_t) { return old.load(); };
  Node a(&authority, "a", options), b(&authority, "b");
  b.Send(a, Bytes(1));
  ASSERT_TRUE(a.Eventually([&] { return a.received.size() == 1; }));
  old = true;
  a.transport().Expel(b.id());
  EXPECT_TRUE(a.EventuallyCounts("wrong_peer", 1)) << "the open one";
  EXPECT_TRUE(EventuallyHolds([&] {
    b.Send(a, Bytes(1));
    return a.metrics().Value("crowdsurf_tensor_connections_ended_total", {{"how", "wrong_peer"}}) >=
           2;
  })) << "one that b tries then";
  EXPECT_EQ(a.received.size(), 1U);
}

TEST(TensorTransportTlsTest, APlainPeerIsRefusedByATlsOne) {
  const TestAuthority authority;
  Node a(&authority, "a"), plain(nullptr, "p");
  plain.Send(a, Bytes(100));
  ASSERT_TRUE(plain.Eventually([&] { return plain.downs.size() == 1; }));
  EXPECT_TRUE(a.EventuallyCounts("wrong_peer", 1));
  EXPECT_TRUE(a.received.empty());
}

TEST(TensorTransportPlainTest, APortInUseIsAnErrorThatNamesIt) {
  Node a(nullptr, "a");
  TensorTransportOptions taken;
  const std::string endpoint = a.transport().endpoint();
  taken.port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  Node b(nullptr, "b", taken, false);
  const Status status = b.transport().Start();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(endpoint));
}

// Takes every connection and ends it at once.
class HangsUp {
 public:
  HangsUp() : thread_([this] { Loop(); }) {}
  ~HangsUp() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string endpoint() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  int calls() const { return calls_; }

 private:
  static int Listen() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd, 16), 0);
    return fd;
  }
  void Loop() {
    for (int fd; (fd = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(fd)) ++calls_;
  }

  const int listener_ = Listen();
  std::atomic<int> calls_{0};
  std::thread thread_;
};

// Only a link that was open is tried again: what never was one is said to be down after one call.
TEST(TensorTransportPlainTest, APeerThatHangsUpBeforeItIsOpenIsCalledOnce) {
  HangsUp stranger;
  Node a(nullptr, "a"), unused(nullptr, "b", {}, false);
  TensorHeader header;
  header.kind = TensorKind::kInput;
  EXPECT_EQ(a.transport().Send(unused.id(), stranger.endpoint(), header,
                               std::make_shared<Bytes>(Bytes{1})),
            TensorTransport::Sent::kQueued);
  EXPECT_TRUE(a.Eventually([&] { return !a.downs.empty(); }));
  EXPECT_EQ(a.Downs(), (std::vector<std::pair<PeerId, bool>>{{unused.id(), false}}));
  EXPECT_EQ(stranger.calls(), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
