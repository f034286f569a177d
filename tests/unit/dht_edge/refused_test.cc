// Strangers at the gRPC port: each kind is refused and counted by why, which gRPC's log alone says.
#include <gmock/gmock.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "coordinator-free-dht/edge/grpc_log.h"
#include "coordinator-free-dht/edge/openssl_handles.h"
#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

using Connection = std::unique_ptr<BIO, openssl::Deleter<BIO_free_all>>;

class RefusedTest : public testing::Test {
 protected:
  std::unique_ptr<Agent> MakeAgent(const TestAuthority& authority, const std::string& name,
                                   const TransportOptions& options = {}) {
    const auto directory = temporary_.path() / name;
    authority.Equip(directory, {});
    auto agent = std::make_unique<Agent>(directory, options, &waiter_);
    EXPECT_TRUE(agent->start_status().ok()) << agent->start_status();
    return agent;
  }
  Connection Dial(Agent& agent) {
    Connection connection(BIO_new_connect(agent.contact().endpoint.c_str()));
    EXPECT_EQ(BIO_do_connect(connection.get()), 1);
    return connection;
  }
  bool Counted(Agent& agent, const std::string& reason, double times) {
    return waiter_.Wait([&] {
      return Count(agent, "crowdsurf_peer_connections_refused_total", {{"reason", reason}}) ==
             times;
    });
  }
  double All(Agent& agent) {
    double all = 0;
    for (const char* reason : {"tls", "certificate", "cut_off", "timed_out", "other"}) {
      all += Count(agent, "crowdsurf_peer_connections_refused_total", {{"reason", reason}});
    }
    return all;
  }

  TemporaryDirectory temporary_;
  Waiter waiter_;
  TestAuthority authority_;
};

TEST_F(RefusedTest, WhatIsNoTlsAndWhatIsCutOff) {
  const auto agent = MakeAgent(authority_, "a");
  EXPECT_EQ(All(*agent), 0);
  const std::string words(5000, 'x');
  const Connection noise = Dial(*agent);
  BIO_write(noise.get(), words.data(), static_cast<int>(words.size()));
  EXPECT_TRUE(Counted(*agent, "tls", 1));
  Dial(*agent);  // and goes
  EXPECT_TRUE(Counted(*agent, "cut_off", 1));
  EXPECT_EQ(All(*agent), 2);
}

TEST_F(RefusedTest, ATlsClientWithoutACertificate) {
  const auto agent = MakeAgent(authority_, "a");
  const std::unique_ptr<SSL_CTX, openssl::Deleter<SSL_CTX_free>> context(
      SSL_CTX_new(TLS_client_method()));
  const Connection connection(BIO_new_ssl_connect(context.get()));
  BIO_set_conn_hostname(connection.get(), agent->contact().endpoint.c_str());
  BIO_do_connect(connection.get());
  BIO_do_handshake(connection.get());
  EXPECT_TRUE(Counted(*agent, "tls", 1));
  EXPECT_EQ(All(*agent), 1);
}

TEST_F(RefusedTest, WhoSaysNothingIsNotWaitedForLongerThanADialLasts) {
  const auto agent = MakeAgent(authority_, "a", {.connect_timeout = Milliseconds(100)});
  const Connection silent = Dial(*agent);
  EXPECT_TRUE(Counted(*agent, "timed_out", 1));
  EXPECT_EQ(All(*agent), 1);
}

TEST_F(RefusedTest, APeerOfAnotherJobAndOnlyThePeerThatIsRefused) {
  const TestAuthority other("another job");
  const auto stranger = MakeAgent(other, "stranger");
  const auto friend_of_it = MakeAgent(authority_, "b");
  const auto agent = MakeAgent(authority_, "a");  // started last: its server is the one that counts
  const std::string hello = "hello";
  friend_of_it->transport().Send(agent->contact(), ChannelKind::kWorker,
                                 Bytes(hello.begin(), hello.end()));
  ASSERT_TRUE(waiter_.Wait([&] { return agent->received().size() == 1; }));
  EXPECT_EQ(All(*agent), 0);
  stranger->transport().Send({PeerId(), agent->contact().endpoint}, ChannelKind::kWorker,
                             Bytes(hello.begin(), hello.end()));
  EXPECT_TRUE(Counted(*agent, "certificate", 1));
}

TEST(RefusalInTest, OnlyTheServersOwnLineCounts) {
  const char* const server = "./src/core/ext/transport/chttp2/server/chttp2_server.cc";
  EXPECT_EQ(RefusalIn(server, "Handshaking failed: UNKNOWN:Handshake read failed {}"), "cut_off");
  EXPECT_EQ(RefusalIn(server, "Handshaking failed: words of another version"), "other");
  EXPECT_EQ(RefusalIn(server, "Failed to create endpoint"), "");
  EXPECT_EQ(RefusalIn("./src/core/lib/security/transport/security_handshaker.cc",
                      "Handshaking failed: UNKNOWN:Handshake read failed {}"),
            "");
}

}  // namespace
}  // namespace crowdsurf::dht
