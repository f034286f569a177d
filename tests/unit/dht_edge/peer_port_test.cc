// The peer port and who may use it: strangers, streams without a hello, one certificate with many.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "coordinator-free-dht/edge/peer.grpc.pb.h"
#include "coordinator-free-dht/edge/port_probe.h"
#include "tests/support/raw_client.h"
#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

constexpr char kRefusedConnections[] = "crowdsurf_peer_connections_refused_total";
constexpr char kRefusedStreams[] = "crowdsurf_peer_streams_refused_total";

class PeerPortTest : public testing::Test {
 protected:
  // A raw stream of `from` to `to`, which says nothing by itself.
  struct Raw {
    std::unique_ptr<peer::PeerExchange::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<peer::Envelope, peer::Envelope>> stream;
    ~Raw() { context.TryCancel(); }
    // False: the other side has ended it.
    bool Reads() const {
      peer::Envelope envelope;
      return stream->Read(&envelope);
    }
  };

  Agent& Add(const TransportOptions& options = {}) {
    const auto directory = temporary_.path() / std::to_string(agents_.size());
    authority_.Equip(directory, {});
    agents_.push_back(std::make_unique<Agent>(directory, options, &waiter_));
    EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    return *agents_.back();
  }
  bool SendText(Agent& from, const Contact& to, const std::string& text) {
    return from.transport().Send(to, ChannelKind::kWorker, Bytes(text.begin(), text.end()));
  }
  static std::unique_ptr<Raw> Open(const std::shared_ptr<grpc::Channel>& channel) {
    auto raw = std::make_unique<Raw>();
    raw->stub = peer::PeerExchange::NewStub(channel);
    raw->stream = raw->stub->Exchange(&raw->context);
    return raw;
  }
  static int PortOf(Agent& agent) {
    const std::string endpoint = agent.contact().endpoint;
    return std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  }
  static peer::Envelope Hello(uint64_t boot, const std::string& endpoint) {
    peer::Envelope envelope;
    envelope.mutable_hello()->set_boot(boot);
    envelope.mutable_hello()->set_endpoint(endpoint);
    return envelope;
  }

  TemporaryDirectory temporary_;
  Waiter waiter_;
  TestAuthority authority_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

TEST_F(PeerPortTest, StrangersThatSayNothingKeepNoPeerOut) {
  Agent& a = Add({.strangers = 8});
  std::vector<RawClient> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(PortOf(a));
  Agent& b = Add();
  SendText(b, a.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  EXPECT_GE(Count(a, kRefusedConnections, {{"reason", "of_address"}}), 150);
}

TEST_F(PeerPortTest, AStreamWithoutAHelloIsEndedAndTheNextOneToo) {
  Agent& a = Add({.connect_timeout = Milliseconds(300)});
  Agent& b = Add();
  const auto channel = b.transport().NewChannel(a.contact().endpoint);
  // A busy machine may take longer for a handshake than this agent waits: then once more.
  EXPECT_TRUE(waiter_.Wait([&] {
    const auto nameless = Open(channel);
    EXPECT_FALSE(nameless->Reads());
    return Count(a, kRefusedStreams, {{"reason", "no_hello"}}) >= 2;
  }));
}

TEST_F(PeerPortTest, OneCertificateDoesNotTakeAllStreams) {
  Agent& a = Add({.streams_in = 8, .streams_of_key = 4});
  Agent& b = Add();
  Agent& c = Add();
  const auto channel = b.transport().NewChannel(a.contact().endpoint);
  std::vector<std::unique_ptr<Raw>> streams;
  for (uint64_t boot = 1; boot <= 8; ++boot) {
    streams.push_back(Open(channel));
    streams.back()->stream->Write(Hello(7, "127.0.0.1:1"));
    EXPECT_EQ(streams.back()->Reads(), boot <= 4) << boot;
  }
  EXPECT_EQ(Count(a, kRefusedStreams, {{"reason", "of_certificate"}}), 4);
  SendText(c, a.contact(), "hello");
  EXPECT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  streams.resize(3);
  // One has made room.
  EXPECT_TRUE(waiter_.Wait([&] {
    const auto again = Open(channel);
    again->stream->Write(Hello(7, "127.0.0.1:1"));
    return again->Reads();
  }));
}

TEST_F(PeerPortTest, OneCertificateLosesItsOldestConnection) {
  Agent& a = Add({.connections_of_key = 2});
  Agent& b = Add();
  std::vector<std::unique_ptr<Raw>> streams;
  for (uint64_t boot = 1; boot <= 3; ++boot) {
    streams.push_back(Open(b.transport().NewChannel(a.contact().endpoint)));
    streams.back()->stream->Write(Hello(7, "127.0.0.1:1"));
    ASSERT_TRUE(streams.back()->Reads());
  }
  EXPECT_FALSE(streams[0]->Reads()) << "it was cut";
  EXPECT_EQ(Count(a, kRefusedConnections, {{"reason", "of_certificate"}}), 1);
}

// Who has said who it is stays longer than anybody has to say it, over both families.
TEST_F(PeerPortTest, KnownConnectionsAreNotCut) {
  for (const char* listen : {"127.0.0.1", "::1"}) {
    Agent& a = Add({.listen = listen, .connect_timeout = Milliseconds(300)});
    Agent& b = Add({.listen = listen});
    ASSERT_TRUE(waiter_.Wait([&] {
      SendText(b, a.contact(), "hello");
      return !a.received().empty();
    }));
    const auto raw = Open(b.transport().NewChannel(a.contact().endpoint));
    if (!raw->stream->Write(Hello(7, "127.0.0.1:1")) || !raw->Reads()) continue;  // a busy machine
    if (std::string(listen) == "127.0.0.1") {
      // Three times the whole of it, for somebody else.
      for (int i = 0; i < 3; ++i) EXPECT_EQ(RawClient(PortOf(a)).ReadToEnd(), "");
    } else {
      for (int i = 0; i < 3; ++i) {
        const auto nameless = Open(b.transport().NewChannel(a.contact().endpoint));
        EXPECT_FALSE(nameless->Reads());
      }
    }
    EXPECT_EQ(Count(a, kRefusedConnections, {{"reason", "no_call"}}), 0);
    peer::Envelope frame;
    frame.mutable_frame()->set_channel(static_cast<uint32_t>(ChannelKind::kWorker));
    frame.mutable_frame()->set_body("still there");
    ASSERT_TRUE(raw->stream->Write(frame));
    EXPECT_TRUE(waiter_.Wait([&] { return a.received().back().second == "still there"; }));
  }
}

TEST_F(PeerPortTest, WhatGrpcWouldReadMoreIntoIsNotDialed) {
  Agent& a = Add();
  const std::string path = (temporary_.path() / "s").string();
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), at.sun_path);
  const int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(local, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(local, 4), 0);
  const std::string port = std::to_string(PortOf(a));
  for (const std::string& endpoint : {"unix:" + path, "ipv4:127.0.0.1:" + port,
                                      "dns:///localhost:" + port, std::string("localhost")}) {
    EXPECT_FALSE(SendText(a, {PeerId(), endpoint}, "hello")) << endpoint;
  }
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "bad_address"}}), 4);
  EXPECT_EQ(Count(a, "crowdsurf_peer_dials_total"), 0);
  // What a hello says is dialed later.
  Agent& b = Add();
  const auto raw = Open(b.transport().NewChannel(a.contact().endpoint));
  raw->stream->Write(Hello(1, "unix:" + path));
  EXPECT_FALSE(raw->Reads());
  EXPECT_EQ(Count(a, "crowdsurf_peer_frames_invalid_total"), 1);
  // And whoever makes a channel of such a text gets one that leads nowhere.
  const auto channel = a.transport().NewChannel("unix:" + path);
  EXPECT_FALSE(Open(channel)->Reads());
  pollfd dialed{local, POLLIN, 0};
  EXPECT_EQ(poll(&dialed, 1, 0), 0) << "it was dialed";
  close(local);
}

TEST_F(PeerPortTest, ANameIsDialedAsOne) {
  Agent& a = Add();
  Agent& b = Add();
  SendText(a, {PeerId(), "localhost:" + std::to_string(PortOf(b))}, "hello");
  EXPECT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
}

// ---- does the port answer? ----

TEST(PortHealthTest, TwoFailuresInARowAreNoAnswer) {
  PortHealth health;
  EXPECT_TRUE(health.answers());
  health.OnProbe(false);
  EXPECT_TRUE(health.answers()) << "a busy machine";
  health.OnProbe(true);
  health.OnProbe(false);
  EXPECT_TRUE(health.answers());
  health.OnProbe(false);
  EXPECT_FALSE(health.answers());
  health.OnProbe(true);
  EXPECT_TRUE(health.answers());
}

TEST_F(PeerPortTest, APortThatTakesConnectionsAndAnswersNobodyIsFoundOut) {
  const int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(deaf, reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(deaf, 64), 0);  // and nobody ever accepts
  ASSERT_EQ(getsockname(deaf, reinterpret_cast<sockaddr*>(&at), &size), 0);
  Agent& a = Add();
  std::atomic<int> dialed{0};
  const auto probe = [&](const std::string& endpoint, Duration within) {
    dialed = 0;
    return std::make_unique<PortProbe>(
        PortProbe::Options{Milliseconds(1), within,
                           [&, endpoint] {
                             ++dialed;
                             return a.transport().NewChannel(endpoint);
                           }},
        a.metrics().AddCounter("probes_failed_total", "Of this test."));
  };
  const auto silent = probe("127.0.0.1:" + std::to_string(ntohs(at.sin_port)), Milliseconds(20));
  silent->Start();
  EXPECT_TRUE(waiter_.Wait([&] { return !silent->answers(); }));
  silent->Stop();
  EXPECT_GE(Count(a, "probes_failed_total"), 2);
  const double failed = Count(a, "probes_failed_total");
  const auto good = probe(a.contact().endpoint, Seconds(60));
  good->Start();
  EXPECT_TRUE(waiter_.Wait([&] { return dialed >= 3; }));
  good->Stop();
  EXPECT_TRUE(good->answers());
  EXPECT_EQ(Count(a, "probes_failed_total"), failed);
  EXPECT_TRUE(a.transport().answers());
  close(deaf);
}

}  // namespace
}  // namespace crowdsurf::dht
