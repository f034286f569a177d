// Tensor connections in the clear: who shows a good token is let in, once; everybody else is
// refused and counted by reason. The strangers here are sockets that know what they recorded.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/unit/worker_edge/tensor/raw_peer.h"
#include "tests/unit/worker_edge/tensor/transport_node.h"
#include "worker/edge/tensor/tensor_frame.h"

namespace crowdsurf::worker {
namespace {

using Node = TransportNode;

TensorTransportOptions InTheClear() {
  TensorTransportOptions options;
  options.tokens = true;
  return options;
}

PeerId Claimed() {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  bytes[3] = 7;
  return PeerId(bytes);
}

// A connection that says a Hello and listens to what comes back.
class Stranger {
 public:
  Stranger(const std::string& endpoint, const TensorHello& hello) {
    Connect(fd_, endpoint);
    Say({.kind = TensorKind::kHello}, EncodeTensorHello(hello));
  }
  Stranger(const Stranger&) = delete;
  ~Stranger() { close(fd_); }

  void Say(const TensorHeader& header, const Bytes& payload) {
    WriteAll(fd_, FrameOf(header, payload));
  }
  // The other side's Hello; nullopt: it has closed.
  std::optional<TensorHello> Answer() {
    TensorHeaderBytes head{};
    if (!Read(head)) return std::nullopt;
    const auto header = DecodeTensorHeader(head);
    EXPECT_TRUE(header && header->kind == TensorKind::kHello);
    Bytes payload(header ? header->payload_bytes : 0);
    return Read(payload) ? DecodeTensorHello(payload) : std::nullopt;
  }

 private:
  bool Read(std::span<uint8_t> into) {
    while (!into.empty()) {
      const ssize_t got = recv(fd_, into.data(), into.size(), 0);
      if (got <= 0) return false;
      into = into.subspan(static_cast<size_t>(got));
    }
    return true;
  }
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
};

TensorHello HelloOf(const PeerId& id, std::optional<TensorToken> token) {
  return {.job = "job", .id = id, .boot = 1, .listen = "127.0.0.1:1", .token = token};
}

// b, its peer a, which has asked it over control, and what a was given.
struct TensorAdmissionTest : testing::Test {
  TensorAdmissionTest() {
    a.SetControl([this](const PeerId& peer) {
      EXPECT_EQ(peer, b.id());
      given.push_back(b.transport().GiveToken(a.id()));
      return given.back();
    });
  }
  std::optional<TensorHello> Ask(const TensorHello& hello) {
    return Stranger(b.transport().endpoint(), hello).Answer();
  }
  // The first that a was given, once it was.
  std::optional<TokenHalves> FirstGiven() {
    std::optional<TokenHalves> first;
    EXPECT_TRUE(a.Eventually([&] { return !given.empty(); }));
    (void)a.Eventually([&] {
      first = given.front();
      return true;
    });
    return first;
  }
  std::vector<std::optional<TokenHalves>> given;  // under a's lock
  Node b{nullptr, "b", InTheClear()};
  Node a{nullptr, "a", InTheClear()};  // ends first: its host asks b
};

TEST_F(TensorAdmissionTest, APeerWithATokenIsAcceptedAndItsInputsAreHashed) {
  a.Send(b, Bytes(1000, 3));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  EXPECT_EQ(b.received[0].from, a.id());
  EXPECT_EQ(b.received[0].payload, Bytes(1000, 3));
  EXPECT_EQ(b.received[0].header.hash,
            TensorPayloadHash(b.received[0].header.instance, b.received[0].payload));
  EXPECT_EQ(b.Tokens("given"), 1);
  for (const std::string_view reason : kTokenRefusals)
    EXPECT_EQ(b.Tokens(std::string(reason)), 0) << reason;
  a.Send(b, Bytes(10, 4));  // on the same connection
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 2; }));
  EXPECT_EQ(b.Tokens("given"), 1);
}

TEST_F(TensorAdmissionTest, WithoutATokenAConnectionIsRefused) {
  EXPECT_FALSE(Ask(HelloOf(a.id(), std::nullopt)).has_value());
  EXPECT_EQ(b.Tokens("missing"), 1);
  Node plain(nullptr, "p");  // an agent that knows of no tokens
  plain.Send(b, Bytes(10));
  ASSERT_TRUE(plain.Eventually([&] { return plain.downs.size() == 1; }));
  EXPECT_GE(b.Tokens("missing"), 2);
  EXPECT_TRUE(b.EventuallyCounts("wrong_peer", 2));
  EXPECT_TRUE(b.received.empty());
}

TEST_F(TensorAdmissionTest, AReplayedTokenIsRefusedAndThePeerGoesOn) {
  a.Send(b, Bytes(10, 1));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  const std::optional<TokenHalves> used = FirstGiven();
  ASSERT_TRUE(used.has_value());
  EXPECT_FALSE(Ask(HelloOf(a.id(), used->shown)).has_value());
  EXPECT_EQ(b.Tokens("replayed"), 1);
  EXPECT_FALSE(Ask(HelloOf(Claimed(), used->shown)).has_value());
  EXPECT_FALSE(Ask(HelloOf(a.id(), used->answered)).has_value());
  EXPECT_EQ(b.Tokens("unknown"), 2);
  a.Send(b, Bytes(10, 2));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 2; }));
}

// Each half is known to the two ends alone, so a stranger with the right one stands for the peer.
TEST_F(TensorAdmissionTest, TheAnswerIsTheOtherHalf) {
  const auto halves = b.transport().GiveToken(Claimed());
  ASSERT_TRUE(halves.has_value());
  Stranger peer(b.transport().endpoint(), HelloOf(Claimed(), halves->shown));
  const std::optional<TensorHello> answer = peer.Answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id, b.id());
  EXPECT_EQ(answer->token, halves->answered);
  peer.Say({.kind = TensorKind::kInput, .rank = 2}, Bytes(4, 9));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  EXPECT_EQ(b.received[0].from, Claimed());
}

TEST(TensorAdmissionLimitsTest, AnExpiredTokenIsRefusedAndTheTableIsBounded) {
  TensorTransportOptions options = InTheClear();
  options.token_table = {.peers = 1, .life = Duration()};
  Node b(nullptr, "b", options);
  const auto halves = b.transport().GiveToken(Claimed());
  ASSERT_TRUE(halves.has_value());
  EXPECT_FALSE(
      Stranger(b.transport().endpoint(), HelloOf(Claimed(), halves->shown)).Answer().has_value());
  EXPECT_EQ(b.Tokens("expired"), 1);

  options.token_table = {.peers = 1, .life = Seconds(100)};
  Node full(nullptr, "f", options);
  EXPECT_TRUE(full.transport().GiveToken(Claimed()).has_value());
  EXPECT_FALSE(full.transport().GiveToken(b.id()).has_value());
  EXPECT_EQ(full.Tokens("full"), 1);
}

// It took the address of b, and has seen all that went over the wire, but not what control said.
TEST_F(TensorAdmissionTest, AnImpostorThatAnswersGetsNothing) {
  Node c(nullptr, "c", InTheClear());
  c.SetControl([&](const PeerId&) {
    auto halves = b.transport().GiveToken(c.id());
    halves->answered = halves->shown;  // whoever answers shows something else
    return halves;
  });
  c.Send(b, Bytes(10, 1));
  ASSERT_TRUE(c.Eventually([&] { return c.downs.size() == 1; }));
  EXPECT_EQ(c.Downs()[0], std::pair(b.id(), false)) << "that says nothing of b";
  EXPECT_EQ(c.Tokens("impostor"), 1);
  EXPECT_TRUE(b.received.empty());
}

TEST_F(TensorAdmissionTest, APeerThatGivesNoTokenIsTriedAgainLater) {
  a.SetControl([](const PeerId&) { return std::nullopt; });
  a.Send(b, Bytes(10, 1));
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 1; }));
  EXPECT_EQ(a.Downs()[0], std::pair(b.id(), false));
  ASSERT_TRUE(
      EventuallyHolds([&] { return a.Send(b, Bytes(10, 1)) == TensorTransport::Sent::kQueued; }));
  ASSERT_TRUE(a.Eventually([&] { return a.downs.size() == 2; }));
  EXPECT_EQ(a.warnings(), 1) << "once a peer";
  a.SetControl([this](const PeerId&) { return b.transport().GiveToken(a.id()); });
  // Refused for a moment after the failure, as after any.
  ASSERT_TRUE(
      EventuallyHolds([&] { return a.Send(b, Bytes(10, 2)) == TensorTransport::Sent::kQueued; }));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  EXPECT_EQ(b.received[0].payload, Bytes(10, 2));
}

// Its deadline is further off than the test waits.
TEST_F(TensorAdmissionTest, ALostAnswerEndsTheAttemptWhenControlSaysSoAndAnOpenConnectionStays) {
  TensorTransportOptions patient = InTheClear();
  patient.open_within = Seconds(1000);
  Node c(nullptr, "c", patient);
  c.SetControl([&](const PeerId&) { return b.transport().GiveToken(c.id()); });
  c.SetSilent(true);
  c.Send(b, Bytes(10, 1));
  ASSERT_TRUE(c.Eventually([&] { return c.asked.size() == 1; }));
  c.SetSilent(false);
  c.transport().LoseToken(b.id());
  ASSERT_TRUE(c.Eventually([&] { return c.downs.size() == 1; }));
  EXPECT_EQ(c.Downs()[0], std::pair(b.id(), false));
  c.transport().UseToken(b.id(), 1, TokenHalves{});  // it comes after all, and nobody waits
  ASSERT_TRUE(
      EventuallyHolds([&] { return c.Send(b, Bytes(10, 2)) == TensorTransport::Sent::kQueued; }));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 1; }));
  EXPECT_EQ(b.received[0].payload, Bytes(10, 2));
  c.transport().LoseToken(b.id());
  c.Send(b, Bytes(10, 3));
  ASSERT_TRUE(b.Eventually([&] { return b.received.size() == 2; }));
  EXPECT_EQ(b.Tokens("given"), 1) << "on the same connection";
  EXPECT_EQ(c.Downs().size(), 1u);
}

TEST_F(TensorAdmissionTest, AnAnswerThatNeverComesEndsTheAttemptAtItsDeadline) {
  TensorTransportOptions hasty = InTheClear();
  hasty.open_within = Seconds(0.05);
  Node c(nullptr, "c", hasty);
  c.SetSilent(true);
  c.Send(b, Bytes(10, 1));
  ASSERT_TRUE(c.Eventually([&] { return c.downs.size() == 1; }));
  EXPECT_EQ(c.Downs()[0], std::pair(b.id(), false));
}

// And it keeps nothing alive: AddressSanitizer tells.
TEST_F(TensorAdmissionTest, AnAnswerAfterTheStopDoesNothing) {
  a.SetSilent(true);
  a.Send(b, Bytes(10, 1));
  ASSERT_TRUE(a.Eventually([&] { return a.asked.size() == 1; }));
  a.transport().Stop();
  a.transport().UseToken(b.id(), 1, b.transport().GiveToken(a.id()));
  a.transport().LoseToken(b.id());
  EXPECT_TRUE(b.received.empty());
}

// A rate needs the zero before the first.
TEST(TensorAdmissionLimitsTest, EverySeriesOfTokensIsThereFromTheStartInTheClearAlone) {
  const auto series = [](Node& node) {
    for (const MetricFamily& family : node.metrics().Collect())
      if (family.name == "crowdsurf_tensor_tokens_total") return family.series.size();
    return size_t{0};
  };
  const dht::TestAuthority authority;
  Node clear(nullptr, "c", InTheClear());
  Node encrypted(&authority, "e");
  EXPECT_EQ(series(clear), kTokenRefusals.size() + 1);  // and "given"
  EXPECT_EQ(series(encrypted), 0u);
}

TEST(TensorAdmissionLimitsTest, AnAgentWhoseTensorsAreEncryptedGivesNone) {
  const dht::TestAuthority authority;
  Node b(&authority, "b");
  EXPECT_FALSE(b.transport().GiveToken(Claimed()).has_value());
  EXPECT_EQ(b.Tokens("unused"), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
