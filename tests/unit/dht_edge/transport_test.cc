// The gRPC transports of several agents over real sockets: mutual TLS, deaths, strangers, bounds.
#include "coordinator-free-dht/edge/transport.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <openssl/ssl.h>

#include <iostream>

#include "coordinator-free-dht/edge/peer.grpc.pb.h"

#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("job/roster/0");
constexpr int kFewTries = 8;

class TransportTest : public testing::Test {
 protected:
  Agent& Add(const TestAuthority& authority, const TransportOptions& options = {}) {
    const auto directory = temporary_.path() / std::to_string(agents_.size());
    authority.Equip(directory, {});
    return AddAt(directory, options);
  }
  Agent& AddAt(const std::filesystem::path& directory, const TransportOptions& options = {}) {
    agents_.push_back(std::make_unique<Agent>(directory, options, &waiter_));
    EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    return *agents_.back();
  }
  bool SendText(Agent& from, const Contact& to, const std::string& text) {
    return from.transport().Send(to, ChannelKind::kWorker, Bytes(text.begin(), text.end()));
  }

  TemporaryDirectory temporary_;
  Waiter waiter_;
  TestAuthority authority_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

TEST_F(TransportTest, TwoAgentsExchangeMessagesOverMutualTlsAndKnowEachOther) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(SendText(a, b.contact(), std::to_string(i)));
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 100; }));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(b.received()[static_cast<size_t>(i)].first, a.contact());
    EXPECT_EQ(b.received()[static_cast<size_t>(i)].second, std::to_string(i));
  }
  EXPECT_TRUE(SendText(b, a.contact(), "back"));
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  EXPECT_EQ(a.received()[0].first, b.contact());
  EXPECT_THAT(a.up(), testing::ElementsAre(b.contact()));
  EXPECT_EQ(Count(b, "crowdsurf_peer_dials_total"), 0);  // it answered on the stream it had
}

// Both clocks are of one machine, so they are the same: the reading is wrong by its round trip at
// most.
TEST_F(TransportTest, TheOneThatDialsHearsTheOthersClockBeforeItsFirstMessage) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  EXPECT_TRUE(SendText(a, b.contact(), "hello"));
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
  EXPECT_TRUE(SendText(b, a.contact(), "back"));
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  ASSERT_EQ(a.clocks().size(), 1u);
  const Agent::Clock heard = a.clocks().front();
  EXPECT_EQ(heard.key, b.identity().public_key());
  EXPECT_GT(heard.round_trip, Duration());
  EXPECT_LE(heard.ahead, Milliseconds(1)) << "both clocks are read at other moments";
  EXPECT_GE(heard.ahead, Duration() - heard.round_trip - Milliseconds(1));
  EXPECT_TRUE(b.clocks().empty()) << "who accepts knows no round trip";
}

TEST_F(TransportTest, ACertificateOfAnotherJobIsRefusedAndCountedOnTheServer) {
  const TestAuthority other("another job");
  Agent& a = Add(authority_);
  Agent& stranger = Add(other);
  EXPECT_TRUE(SendText(stranger, {PeerId(), a.contact().endpoint}, "let me in"));
  ASSERT_TRUE(waiter_.Wait([&] { return !stranger.down().empty(); }));
  EXPECT_TRUE(a.received().empty());
  EXPECT_TRUE(a.up().empty());
  EXPECT_GE(Count(a, "crowdsurf_peer_certificates_refused_total") +
                Count(stranger, "crowdsurf_peer_certificates_refused_total"),
            1);
}

TEST_F(TransportTest, AKilledPeerIsSeenAsHardDown) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  SendText(a, b.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
  const Contact dead = b.contact();
  b.Kill();
  ASSERT_TRUE(waiter_.Wait([&] { return !a.down().empty(); }));
  EXPECT_EQ(a.down().back().peer, dead);
  EXPECT_TRUE(a.down().back().hard);
}

TEST_F(TransportTest, FiveAgentsShareARosterAndHearOfADeath) {
  std::vector<Agent*> all;
  all.reserve(5);
  for (int i = 0; i < 5; ++i) all.push_back(&Add(authority_));
  for (Agent* agent : all) {
    agent->AddSeeds({all[0]->contact().endpoint});
    agent->Watch(kRoster);
    agent->Put(kRoster, agent->contact().endpoint);
  }
  for (Agent* agent : all) {
    EXPECT_TRUE(waiter_.Wait([&] { return agent->watched().size() == 5; }));
    EXPECT_TRUE(waiter_.Wait([&] { return agent->contacts() == 4u; }));
    EXPECT_TRUE(waiter_.Wait([&] { return agent->synced(); }));
  }
  all[2]->Put(kRoster, "news");
  for (Agent* agent : all) {
    EXPECT_TRUE(waiter_.Wait([&] { return agent->watched()[all[2]->contact().id] == "news"; }));
  }
  all[2]->Kill();
  for (Agent* agent : all) {
    if (agent == all[2]) continue;
    EXPECT_TRUE(waiter_.Wait([&] { return agent->contacts() == 3u; }));
  }
}

TEST_F(TransportTest, AFreshAgentHasItsFirstWatchAnsweredSoonAfterItsStart) {
  std::vector<Agent*> all;
  all.reserve(7);
  for (int i = 0; i < 7; ++i) all.push_back(&Add(authority_));
  for (Agent* agent : all) {
    agent->AddSeeds({all[0]->contact().endpoint});
    agent->Put(kRoster, "here");
  }
  for (Agent* agent : all) {
    ASSERT_TRUE(waiter_.Wait([&] { return agent->contacts() == 6u; }));
  }
  // Some tens of ms on a quiet machine. A busy one can only add to it, so the soonest of a few is
  // what the search itself takes; one that waits for a time-out takes seconds every time.
  double soonest = kFewTries;
  for (int fresh_agent = 0; fresh_agent < kFewTries && soonest >= 1; ++fresh_agent) {
    Agent& fresh = Add(authority_);
    const Time start = fresh.host().Now();
    fresh.AddSeeds({all[3]->contact().endpoint});
    fresh.Watch(kRoster);
    ASSERT_TRUE(waiter_.Wait([&] { return fresh.watched().size() == 7; }));
    const double answered = (fresh.host().Now() - start).seconds();
    ASSERT_TRUE(waiter_.Wait([&] { return fresh.synced(); }));
    std::cout << "answered after " << answered << " s, synced after "
              << (fresh.host().Now() - start).seconds() << " s\n";
    soonest = std::min(soonest, answered);
  }
  EXPECT_LT(soonest, 1);
}

TEST_F(TransportTest, ARestartedAgentAtTheSameAddressIsAnotherPeerAndTheOldOneIsDead) {
  Agent& a = Add(authority_, {.relay = {.refusal_lives = Duration()}});  // it dials again at once
  Agent& b = Add(authority_);
  const auto directory = b.identity().directory();
  SendText(a, b.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
  const Contact old = b.contact();
  const std::string port = old.endpoint.substr(old.endpoint.find(':') + 1);
  b.Kill();
  ASSERT_TRUE(waiter_.Wait([&] { return !a.down().empty(); }));
  Agent& again = AddAt(directory, {.port = std::stoi(port)});
  EXPECT_EQ(again.contact().endpoint, old.endpoint);
  EXPECT_NE(again.contact().id, old.id);
  const size_t before = a.down().size();
  SendText(a, old, "for the old one only");
  ASSERT_TRUE(waiter_.Wait([&] { return a.down().size() > before; }));
  EXPECT_EQ(a.down().back().peer.id, old.id);
  EXPECT_TRUE(a.down().back().hard);
  // The new one answers the dial of the old one, or says first that its key has another boot.
  EXPECT_TRUE(waiter_.Wait([&] {
    return Count(a, "crowdsurf_peer_impostors_total") +
               Count(a, "crowdsurf_peer_boots_total", {{"result", "replaced"}}) >=
           1;
  }));
  SendText(a, again.contact(), "for the new one");
  ASSERT_TRUE(waiter_.Wait([&] { return !again.received().empty(); }));
  EXPECT_EQ(again.received()[0].second, "for the new one");
}

// Whoever holds one certificate gives itself any number of boots, and is one peer all the same.
TEST_F(TransportTest, OfOneKeyTheHighestBootIsThePeerAndTheOthersAreDead) {
  Agent& a = Add(authority_);
  Agent& first = Add(authority_);
  SendText(first, a.contact(), "from the first");
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
  Agent& second = AddAt(first.identity().directory());
  ASSERT_EQ(second.identity().public_key(), first.identity().public_key());
  SendText(second, a.contact(), "from the second");
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 2; }));
  // Known before the second one's first message.
  ASSERT_FALSE(a.down().empty());
  EXPECT_EQ(a.down().front().peer, first.contact());
  EXPECT_TRUE(a.down().front().hard);
  EXPECT_TRUE(a.transport().IsOldBoot(first.identity().public_key(), first.identity().boot()));
  EXPECT_FALSE(a.transport().IsOldBoot(first.identity().public_key(), second.identity().boot()));
  const auto boots = [&](const char* result) {
    return Count(a, "crowdsurf_peer_boots_total", {{"result", result}});
  };
  EXPECT_EQ(boots("replaced"), 1);
  ASSERT_TRUE(waiter_.Wait([&] {
    SendText(first, a.contact(), "from the first again");
    return boots("refused") >= 3;
  }));
  SendText(second, a.contact(), "from the second again");
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 3; }));
  EXPECT_EQ(a.received()[2].second, "from the second again");
  EXPECT_EQ(boots("replaced"), 1);
}

TEST_F(TransportTest, ADialOfNobodyIsHardDownAndNothingIsSent) {
  Agent& a = Add(authority_);
  Agent& gone = Add(authority_);
  const Contact contact = gone.contact();
  gone.Kill();
  SendText(a, contact, "hello?");
  ASSERT_TRUE(waiter_.Wait([&] { return !a.down().empty(); }));
  EXPECT_TRUE(a.down()[0].hard);
  EXPECT_EQ(a.down()[0].peer, contact);
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "connection_lost"}}), 1);
}

TEST_F(TransportTest, ADeadPeerIsNotDialedForEachMessage) {
  Agent& a = Add(authority_, {.relay = {.refusal_lives = Seconds(3600)}});
  Agent& gone = Add(authority_);
  Agent& living = Add(authority_);
  const Contact contact = gone.contact();
  gone.Kill();
  SendText(a, contact, "hello?");
  ASSERT_TRUE(waiter_.Wait([&] { return !a.down().empty(); }));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(SendText(a, contact, "are you there?"));
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "connection_lost"}}), 21);
  // A request has its end at once, without a dial.
  const size_t before = a.down().size();
  EXPECT_FALSE(a.transport().Send(contact, ChannelKind::kDht, Bytes(8)));
  ASSERT_TRUE(waiter_.Wait([&] { return a.down().size() > before; }));
  EXPECT_TRUE(a.down().back().hard);
  EXPECT_EQ(Count(a, "crowdsurf_peer_dials_total"), 1);
  EXPECT_TRUE(SendText(a, living.contact(), "hello"));
  ASSERT_TRUE(waiter_.Wait([&] { return living.received().size() == 1; }));
}

TEST_F(TransportTest, ItWorksWithoutTlsAsTestsMayAsk) {
  Agent& a = Add(authority_, {.tls = false});
  Agent& b = Add(authority_, {.tls = false});
  SendText(a, b.contact(), "plain");
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 1; }));
  EXPECT_EQ(b.received()[0].first, a.contact());
}

TEST_F(TransportTest, APlainPeerCannotTalkToATlsOne) {
  Agent& a = Add(authority_);
  Agent& plain = Add(authority_, {.tls = false});
  SendText(plain, a.contact(), "hello");
  SendText(a, plain.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return !plain.down().empty() && !a.down().empty(); }));
  EXPECT_TRUE(a.received().empty());
  EXPECT_TRUE(plain.received().empty());
}

TEST_F(TransportTest, AnotherJobOfTheSameCaIsRefused) {
  Agent& a = Add(authority_, {.job = "job"});
  const auto directory = temporary_.path() / "other";
  authority_.Equip(directory, {.names = "DNS:peer.crowdsurf,URI:crowdsurf://other/worker-0"});
  Agent& other = AddAt(directory, {.job = "other"});
  SendText(other, a.contact(), "hello");
  ASSERT_TRUE(waiter_.Wait([&] { return !other.down().empty(); }));
  EXPECT_TRUE(a.up().empty());
}

TEST_F(TransportTest, GarbageIsCountedAndHarmsNobodyElse) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  Agent& c = Add(authority_);
  const auto stub = peer::PeerExchange::NewStub(b.transport().NewChannel(a.contact().endpoint));
  const auto say = [&](const std::vector<peer::Envelope>& envelopes) {
    grpc::ClientContext context;
    auto stream = stub->Exchange(&context);
    for (const peer::Envelope& envelope : envelopes) stream->Write(envelope);
    stream->WritesDone();
    peer::Envelope ignored;
    while (stream->Read(&ignored)) {
    }
    return stream->Finish();
  };
  peer::Envelope hello;
  hello.mutable_hello()->set_boot(1);
  hello.mutable_hello()->set_endpoint("127.0.0.1:1");
  peer::Envelope frame;
  frame.mutable_frame()->set_channel(1);
  frame.mutable_frame()->set_body("first");
  peer::Envelope strange = frame;
  strange.mutable_frame()->set_channel(9);
  peer::Envelope nameless;
  nameless.mutable_hello()->set_boot(1);
  EXPECT_FALSE(say({frame}).ok());             // before its hello
  EXPECT_FALSE(say({peer::Envelope()}).ok());  // empty
  EXPECT_FALSE(say({nameless}).ok());          // a hello without an address
  EXPECT_TRUE(say({hello, strange, hello, peer::Envelope()}).ok());
  EXPECT_TRUE(waiter_.Wait([&] { return Count(a, "crowdsurf_peer_frames_invalid_total") == 6; }));
  EXPECT_TRUE(a.received().empty());
  // A body that is no DHT message is counted by the node.
  EXPECT_TRUE(b.transport().Send(a.contact(), ChannelKind::kDht, {1, 2, 3}));
  EXPECT_TRUE(waiter_.Wait([&] { return Count(a, "crowdsurf_dht_messages_invalid_total") == 1; }));
  SendText(c, a.contact(), "still there?");
  EXPECT_TRUE(waiter_.Wait([&] { return a.received().size() == 1; }));
}

TEST_F(TransportTest, AQueueIsBoundedInMessagesAndBytesAndDropsTheNewest) {
  Agent& a = Add(authority_, {.queue_messages = 10, .queue_bytes = 1000, .message_bytes = 2000});
  Agent& b = Add(authority_);
  // Nothing leaves before the handshake is over, so the queue fills in one go.
  int taken = 0;
  for (int i = 0; i < 20; ++i) taken += SendText(a, b.contact(), "x");
  EXPECT_EQ(taken, 10);
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 10; }));
  EXPECT_FALSE(SendText(a, b.contact(), std::string(1001, 'x')));
  EXPECT_FALSE(SendText(a, b.contact(), std::string(2001, 'x')));
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "queue_full"}}), 11);
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "too_large"}}), 1);
}

TEST_F(TransportTest, TheLeastRecentlyUsedStreamMakesRoomAndComesBackWhenNeeded) {
  Agent& a = Add(authority_, {.streams_out = 2});
  std::vector<Agent*> others;
  others.reserve(4);
  for (int i = 0; i < 4; ++i) {
    others.push_back(&Add(authority_));
    SendText(a, others.back()->contact(), "hello");
    ASSERT_TRUE(waiter_.Wait([&] { return others.back()->received().size() == 1; }));
  }
  EXPECT_TRUE(waiter_.Wait([&] { return Count(a, "crowdsurf_peer_streams") == 2; }));
  EXPECT_TRUE(a.down().empty());  // closed in good order: no news
  EXPECT_TRUE(others[0]->down().empty());
  SendText(a, others[0]->contact(), "again");
  EXPECT_TRUE(waiter_.Wait([&] { return others[0]->received().size() == 2; }));
}

// As long as the PLAN of a round of 2^20 chunks; one of a usual model fits a piece.
TEST_F(TransportTest, ALongMessageTravelsInPiecesAndOthersKeepTheirOrder) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  std::string text(size_t{34} << 20, 'x');
  for (size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>('a' + i / 4096 % 26);
  EXPECT_TRUE(SendText(a, b.contact(), "before"));
  EXPECT_TRUE(SendText(a, b.contact(), text));
  EXPECT_TRUE(SendText(a, b.contact(), "after"));
  ASSERT_TRUE(waiter_.Wait([&] { return b.received().size() == 3; }));
  EXPECT_EQ(b.received()[0].second, "before");
  EXPECT_TRUE(b.received()[1].second == text);
  EXPECT_EQ(b.received()[2].second, "after");
  EXPECT_EQ(Count(b, "crowdsurf_peer_messages_received_total"), 3);
  EXPECT_EQ(Count(b, "crowdsurf_peer_frames_invalid_total"), 0);
  EXPECT_FALSE(SendText(a, b.contact(), std::string((size_t{40} << 20) + 1, 'x')));
  EXPECT_EQ(Count(a, "crowdsurf_peer_messages_dropped_total", {{"reason", "too_large"}}), 1);
}

// Four are dialed before any is ready, so none could make room when the next was dialed.
TEST_F(TransportTest, StreamsThatWereBusyMakeRoomWhenTheyAreIdle) {
  Agent& a = Add(authority_, {.streams_out = 2});
  std::vector<Agent*> others;
  others.reserve(4);
  for (int i = 0; i < 4; ++i) others.push_back(&Add(authority_));
  for (Agent* other : others) SendText(a, other->contact(), "hello");
  for (Agent* other : others) {
    ASSERT_TRUE(waiter_.Wait([&] { return other->received().size() == 1; }));
  }
  EXPECT_TRUE(waiter_.Wait([&] { return Count(a, "crowdsurf_peer_streams") == 2; }));
  EXPECT_TRUE(a.down().empty());
}

TEST_F(TransportTest, CrossingDialsEndInOneConversation) {
  Agent& a = Add(authority_);
  Agent& b = Add(authority_);
  for (int i = 0; i < 50; ++i) {
    SendText(a, b.contact(), "a" + std::to_string(i));
    SendText(b, a.contact(), "b" + std::to_string(i));
  }
  ASSERT_TRUE(waiter_.Wait([&] { return a.received().size() == 50 && b.received().size() == 50; }));
  EXPECT_EQ(a.up().size(), 1u);
  EXPECT_EQ(b.up().size(), 1u);
}

TEST_F(TransportTest, WhatIsMissingToStartIsSaid) {
  Agent& a = Add(authority_);
  const std::string endpoint = a.contact().endpoint;
  const auto directory = temporary_.path() / "second";
  authority_.Equip(directory, {});
  const Agent taken(directory, {.port = std::stoi(endpoint.substr(endpoint.find(':') + 1))},
                    &waiter_);
  EXPECT_THAT(std::string(taken.start_status().message()), testing::HasSubstr(endpoint));
  std::filesystem::remove(directory / "cert.pem");
  const Agent unsigned_agent(directory, {}, &waiter_);
  EXPECT_THAT(std::string(unsigned_agent.start_status().message()), testing::HasSubstr("cert.pem"));
}

TEST_F(TransportTest, Tls12IsRefused) {
  Agent& a = Add(authority_);
  const std::string endpoint = a.contact().endpoint;
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const std::unique_ptr<SSL_CTX, openssl::Deleter<SSL_CTX_free>> context(
        SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_max_proto_version(context.get(), version);
    const auto directory = a.identity().directory();
    SSL_CTX_use_certificate_file(context.get(), (directory / "cert.pem").c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context.get(), (directory / "key.pem").c_str(), SSL_FILETYPE_PEM);
    // Two in a chain: the socket's hangs behind TLS's.
    const std::unique_ptr<BIO, openssl::Deleter<BIO_free_all>> bio(
        BIO_new_ssl_connect(context.get()));
    BIO_set_conn_hostname(bio.get(), endpoint.c_str());
    SSL* ssl = nullptr;
    BIO_get_ssl(bio.get(), &ssl);
    const unsigned char alpn[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl, alpn, sizeof alpn);
    const bool connected = BIO_do_connect(bio.get()) == 1 && BIO_do_handshake(bio.get()) == 1;
    EXPECT_EQ(connected, version == TLS1_3_VERSION);
  }
}

}  // namespace
}  // namespace crowdsurf::dht
