// What an HttpServer does with clients that are slow, many, or not there any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "tests/unit/base_edge/http_fixture.h"

namespace crowdsurf {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr char kProbe[] = "GET /healthz HTTP/1.1\r\n\r\n";

class HttpLimitsTest : public HttpFixture {};

// Sends a byte each 10 ms until the server closes the connection; false when it never does.
bool IsCut(RawClient& client) {
  const auto until = Clock::now() + std::chrono::milliseconds(RawClient::kPatience_ms);
  while (Clock::now() < until) {
    if (!client.Send("a") || !client.StaysOpenFor(10)) return true;
  }
  return false;
}

TEST_F(HttpLimitsTest, ADrippingRequestIsCutWhenTheTimeOfAWholeOneIsOver) {
  limits_.request = Milliseconds(200);
  Remake();
  Start();
  RawClient header(port()), silent(port());
  ASSERT_TRUE(header.Send("GET /healthz HTTP/1.1\r\nA: "));
  EXPECT_TRUE(IsCut(header));
  RawClient later(port());
  ASSERT_TRUE(later.Send(Echo("one")));
  EXPECT_THAT(later.ReadUntil("one"), EndsWith("one"));
  ASSERT_TRUE(later.Send("POST /echo HTTP/1.1\r\nContent-Length: 60000\r\n\r\n"));
  EXPECT_TRUE(IsCut(later)) << "a connection's second request, too";
  EXPECT_EQ(silent.ReadToEnd(), "") << "one that never sends a byte, too";
  EXPECT_EQ(Refused("slow"), 3);
}

TEST_F(HttpLimitsTest, AnIdleConnectionIsClosedAndNotCounted) {
  limits_.idle = Milliseconds(50);
  Remake();
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Echo("one")));
  EXPECT_THAT(client.ReadToEnd(), EndsWith("one"));
  EXPECT_EQ(Refused("slow"), 0);
}

TEST_F(HttpLimitsTest, WhoDoesNotReadItsReplyIsCut) {
  limits_.reply = Milliseconds(100);
  Remake();
  server_->Get("/large", HttpServer::Runs::kAtOnce, [](const HttpServer::Request&) {
    return HttpServer::Reply{200, std::string(64 << 20, 'x')};
  });
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /large HTTP/1.1\r\n\r\n"));
  const auto until = Clock::now() + std::chrono::milliseconds(RawClient::kPatience_ms);
  pollfd hung_up{client.fd(), POLLRDHUP, 0};
  while (Refused("unread") == 0 && Clock::now() < until) ::poll(&hung_up, 1, 10);
  EXPECT_EQ(Refused("unread"), 1);
}

TEST_F(HttpLimitsTest, AFullServerClosesTheOldestUnfinishedRequest) {
  limits_.connections = 2;
  Remake();
  Start();
  RawClient oldest(port()), second(port());
  ASSERT_TRUE(oldest.Send("GET /healthz HT") && second.Send("GET /healthz HT"));
  RawClient probe(port());
  ASSERT_TRUE(probe.Send(kProbe));
  EXPECT_THAT(probe.ReadUntil("ok\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(oldest.ReadToEnd(), "");
  ASSERT_TRUE(second.Send("TP/1.1\r\n\r\n"));
  EXPECT_THAT(second.ReadUntil("ok\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Refused("full"), 1);
  // Nobody is unfinished now: the probe's connection has been idle for longest.
  RawClient third(port());
  ASSERT_TRUE(third.Send(kProbe));
  EXPECT_THAT(third.ReadUntil("ok\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(probe.ReadToEnd(), "");
}

// A thousand clients that drip, within the server's limit or far above it.
class HttpDripTest : public HttpFixture, public ::testing::WithParamInterface<size_t> {};

TEST_P(HttpDripTest, AProbeIsAnsweredWhileAThousandConnectionsDrip) {
  constexpr size_t kMany = 1000;
  constexpr int kTick_ms = 5;  // each: 5 of the thousand send a byte, so one sends once a second
  rlimit files;                // a server has a part of them
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, std::max<rlim_t>(files.rlim_cur, 16'384));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  limits_.connections = GetParam();
  Remake();
  Start();
  std::vector<RawClient> many;
  for (size_t i = 0; i < kMany; ++i) {
    many.emplace_back(port());
    ASSERT_TRUE(many.back().connected()) << i;
    (void)many.back().Send("GET /healthz HTTP/1.1\r\nA: ");
  }
  Clock::duration slowest{};
  size_t next = 0;
  for (int probes = 0; probes < 5; ++probes) {
    const auto began = Clock::now();
    RawClient probe(port());
    ASSERT_TRUE(probe.Send(kProbe));
    pollfd answered{probe.fd(), POLLIN, 0};
    const auto until = began + std::chrono::milliseconds(RawClient::kPatience_ms);
    while (::poll(&answered, 1, kTick_ms) == 0 && Clock::now() < until) {
      for (int i = 0; i < 5; ++i) (void)many[next++ % kMany].Send("a");
    }
    slowest = std::max(slowest, Clock::now() - began);
    EXPECT_THAT(probe.ReadUntil("ok\n"), StartsWith("HTTP/1.1 200"));
  }
  const double ms = std::chrono::duration<double, std::milli>(slowest).count();
  RecordProperty("slowest_probe_ms", std::to_string(ms));
  std::printf("slowest of 5 probes beside %zu dripping connections: %.1f ms\n", kMany, ms);
  EXPECT_LT(slowest, std::chrono::seconds(1));
}

INSTANTIATE_TEST_SUITE_P(BelowAndAboveTheLimit, HttpDripTest, ::testing::Values(2000, 256));

// No descriptor is free, until the oldest unfinished request gives its own.
TEST_F(HttpLimitsTest, WithoutADescriptorTheOldestUnfinishedMakesRoom) {
  Start();
  RawClient oldest(port());
  ASSERT_TRUE(oldest.Send("GET /healthz HT"));
  RawClient answered_one(port());  // it stays: what it would free would be the next one's
  ASSERT_TRUE(answered_one.Send(kProbe));
  ASSERT_THAT(answered_one.ReadUntil("ok\n"), StartsWith("HTTP/1.1 200"));
  const int late = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // the lowest that was free
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit tight{static_cast<rlim_t>(late) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(port()));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(late, reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
  EXPECT_GT(::send(late, kProbe, sizeof kProbe - 1, MSG_NOSIGNAL), 0);
  pollfd answered{late, POLLIN, 0};
  EXPECT_EQ(::poll(&answered, 1, RawClient::kPatience_ms), 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(Refused("accept"), 1);
  EXPECT_EQ(oldest.ReadToEnd(), "");
  ::close(late);
}

// ---- TLS ----

struct Identity {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  Identity() {
    X509_set_version(certificate, 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
  }
  ~Identity() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
};

// One request over TLS on an open connection; empty when the handshake fails.
std::string AskOverTls(const RawClient& client, const std::string& request, int max_version) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, max_version);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, client.fd());
  std::string reply;
  if (SSL_connect(ssl) == 1) {
    SSL_write(ssl, request.data(), static_cast<int>(request.size()));
    char bytes[4096];
    for (int got; (got = SSL_read(ssl, bytes, sizeof bytes)) > 0;) {
      reply.append(bytes, static_cast<size_t>(got));
    }
    if (SSL_get_error(ssl, 0) != SSL_ERROR_ZERO_RETURN) reply += " (cut)";
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  return reply;
}

TEST_F(HttpLimitsTest, ServesTls12And13AndCutsHandshakesThatNeverEnd) {
  const Identity identity;
  limits_.request = Milliseconds(500);
  Remake(identity.certificate, identity.key);
  Start();
  RawClient silent(port()), plain(port());
  ASSERT_TRUE(plain.Send(kProbe));
  (void)plain.ReadToEnd();
  EXPECT_EQ(Refused("tls"), 1);
  const std::string close = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(AskOverTls(RawClient(port()), close, TLS1_3_VERSION), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(AskOverTls(RawClient(port()), close, TLS1_2_VERSION), EndsWith("\r\n\r\nok\n"));
  EXPECT_EQ(AskOverTls(RawClient(port()), close, TLS1_1_VERSION), "");
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(Refused("slow"), 1);
  EXPECT_EQ(Refused("tls"), 2);
  const std::string long_body = Echo(std::string(100'000, 'x'));
  EXPECT_THAT(AskOverTls(RawClient(port()), long_body, TLS1_3_VERSION), StartsWith("HTTP/1.1 413"));
}

}  // namespace
}  // namespace crowdsurf
