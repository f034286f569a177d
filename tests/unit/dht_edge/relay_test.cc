// Agents in one process, some of which cannot dial each other: their dials go to a port that
// refuses, as a firewall's REJECT does.
#include "coordinator-free-dht/edge/relay.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "base/rng.h"
#include "coordinator-free-dht/edge/peer.grpc.pb.h"
#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

constexpr char kRefusing[] = "127.0.0.1:1";  // nobody listens on port 1

int PortOf(const std::string& endpoint) {
  return std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
}

// A plain socket of the test's own; reads give up after a minute.
class Plain {
 public:
  explicit Plain(int fd) : fd_(fd) {
    const timeval patience{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Plain() { Close(); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  static int Connected(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Until `bytes` have come or nothing more does.
  std::string Read(size_t bytes) {
    std::string out;
    std::string piece(1 << 16, '\0');
    while (out.size() < bytes) {
      const ssize_t got = ::recv(fd_, piece.data(), std::min(piece.size(), bytes - out.size()), 0);
      if (got <= 0) break;
      out.append(piece, 0, static_cast<size_t>(got));
    }
    return out;
  }
  bool Write(const std::string& text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // What it takes at once and then for `quiet` not any more: bytes.
  size_t Fill(const std::string& text, std::chrono::milliseconds quiet) {
    size_t taken = 0;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(quiet);
    const timeval patience{seconds.count(),
                           static_cast<suseconds_t>((quiet - seconds).count() * 1000)};
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (taken < text.size()) {
      const ssize_t sent = ::send(fd_, text.data() + taken, text.size() - taken, MSG_NOSIGNAL);
      if (sent <= 0) break;
      taken += static_cast<size_t>(sent);
    }
    return taken;
  }

 private:
  int fd_;
};

class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    socklen_t size = sizeof at;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Listener() { ::close(fd_); }
  const std::string& endpoint() const { return endpoint_; }
  // Has anybody connected?
  bool Waits() const {
    pollfd waiting{fd_, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  int Accept() { return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  int fd_;
  std::string endpoint_;
};

class RelayTest : public testing::Test {
 protected:
  Agent& Add(RelayConfig config = {}) {
    const size_t number = agents_.size();
    const auto directory = temporary_.path() / std::to_string(number);
    authority_.Equip(directory, {});
    TransportOptions options;
    options.relay = config;
    options.dial_at = [this, number](const std::string& endpoint) {
      const std::lock_guard lock(mutex_);
      return hidden_.contains({number, endpoint}) ? kRefusing : endpoint;
    };
    agents_.push_back(std::make_unique<Agent>(directory, options, &waiter_));
    EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    return *agents_.back();
  }
  void Hide(size_t from, const std::string& endpoint) {
    const std::lock_guard lock(mutex_);
    hidden_.insert({from, endpoint});
  }
  // Nobody may dial anybody but the next and the one before.
  void MakeChain(size_t agents) {
    for (size_t i = 0; i < agents; ++i) Add();
    for (size_t i = 0; i < agents; ++i) {
      for (size_t j = 0; j < agents; ++j) {
        if (i + 1 < j || j + 1 < i) Hide(i, agents_[j]->contact().endpoint);
      }
    }
    for (size_t i = 0; i + 1 < agents; ++i) ASSERT_TRUE(Say(i, i + 1, "neighbour"));
  }
  bool Say(size_t from, size_t to, const std::string& text) {
    const size_t before = agents_[to]->received().size();
    const bool sent = agents_[from]->transport().Send(agents_[to]->contact(), ChannelKind::kWorker,
                                                      Bytes(text.begin(), text.end()));
    return sent && waiter_.Wait([&] { return agents_[to]->received().size() > before; });
  }
  double Count(size_t agent, const std::string& name, const MetricLabels& labels = {}) {
    return dht::Count(*agents_[agent], name, labels);
  }
  double Refused(size_t agent, const std::string& reason) {
    return Count(agent, "crowdsurf_relay_refused_total", {{"reason", reason}});
  }
  // A socket for `endpoint` of agent `from`'s relay; -1: none, and whether it is said to be dead.
  std::pair<int, bool> Connect(size_t from, const std::string& endpoint) {
    std::promise<std::pair<int, bool>> done;
    agents_[from]->transport().relay().Connect(
        endpoint, [&](const std::shared_ptr<RelaySocket>& socket, DownEvidence evidence) {
          done.set_value({socket ? socket->Take() : -1, evidence == DownEvidence::kRefused});
        });
    return done.get_future().get();
  }

  TemporaryDirectory temporary_;
  Waiter waiter_;
  TestAuthority authority_;
  std::mutex mutex_;
  std::set<std::pair<size_t, std::string>> hidden_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

TEST_F(RelayTest, WhoMayNotDialEachOtherTalkThroughTheNeighbourAndItReadsNothing) {
  MakeChain(3);
  ASSERT_TRUE(Say(0, 2, "over the wall"));
  EXPECT_EQ(agents_[2]->received().back().first, agents_[0]->contact());
  EXPECT_EQ(agents_[2]->received().back().second, "over the wall");
  ASSERT_TRUE(Say(2, 0, "and back"));
  EXPECT_EQ(Count(2, "crowdsurf_relay_searches_total", {{"outcome", "found"}}), 0) << "one stream";
  EXPECT_EQ(Count(0, "crowdsurf_relay_searches_total", {{"outcome", "found"}}), 1);
  EXPECT_GT(Count(1, "crowdsurf_relay_carried_bytes_total"), 1000);
  EXPECT_EQ(Count(1, "crowdsurf_relay_connections"), 1);
  EXPECT_EQ(agents_[1]->received().size(), 1) << "its own";
  EXPECT_TRUE(agents_[0]->down().empty());
  EXPECT_TRUE(agents_[0]->transport().relay().Via(agents_[2]->contact()));
  EXPECT_TRUE(agents_[2]->transport().relay().Via(agents_[0]->contact())) << "its hello says so";
}

TEST_F(RelayTest, AChainOfSixIsCrossedAndADeathAtItsEndIsSeenAtTheOther) {
  MakeChain(6);
  ASSERT_TRUE(Say(0, 5, "hello"));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(Count(i, "crowdsurf_relay_connections"), 1) << i;
  const Contact dead = agents_[5]->contact();
  agents_[5]->Kill();
  ASSERT_TRUE(waiter_.Wait([&] { return !agents_[0]->down().empty(); }));
  EXPECT_EQ(agents_[0]->down().back().peer, dead);
  EXPECT_TRUE(agents_[0]->down().back().hard) << "the last hop had met it and is refused";
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(waiter_.Wait([&] { return Count(i, "crowdsurf_relay_connections") == 0; })) << i;
  }
}

TEST_F(RelayTest, ARelayThatDiesCutsWhatItCarriesAndNobodyBeyondItIsCalledDead) {
  MakeChain(3);
  ASSERT_TRUE(Say(0, 2, "hello"));
  const Contact beyond = agents_[2]->contact();
  agents_[1]->Kill();
  const auto told = [&](size_t agent, const Contact& of) {
    const auto downs = agents_[agent]->down();
    const auto it = std::find_if(downs.begin(), downs.end(),
                                 [&](const Agent::Down& d) { return d.peer.id == of.id; });
    return it == downs.end() ? -1 : static_cast<int>(it->hard);
  };
  for (const auto& [agent, of] : {std::pair(size_t{0}, beyond), {2, agents_[0]->contact()}}) {
    EXPECT_TRUE(waiter_.Wait([&, a = agent, o = of] { return told(a, o) >= 0; }));
    EXPECT_EQ(told(agent, of), 0) << "its dials are refused by the firewall, and nobody is asked";
    EXPECT_TRUE(waiter_.Wait([&, a = agent] { return told(a, agents_[1]->contact()) == 1; }));
  }
}

TEST_F(RelayTest, AnotherWayIsFoundWhenTheOneThereWasIsCut) {
  for (int i = 0; i < 4; ++i) Add();  // 0 and 3 see 1 and 2, which see both
  Hide(0, agents_[3]->contact().endpoint);
  Hide(3, agents_[0]->contact().endpoint);
  for (const size_t between : {size_t{1}, size_t{2}}) {
    ASSERT_TRUE(Say(0, between, "hello"));
    ASSERT_TRUE(Say(between, 3, "hello"));
  }
  ASSERT_TRUE(Say(0, 3, "one way"));
  const size_t carrier = Count(1, "crowdsurf_relay_connections") == 1 ? 1 : 2;
  EXPECT_EQ(Count(3 - carrier, "crowdsurf_relay_connections"), 0) << "who lost the race carries on";
  agents_[carrier]->Kill();
  EXPECT_TRUE(waiter_.Wait([&] { return Count(3 - carrier, "crowdsurf_relay_connections") >= 1; }));
  EXPECT_TRUE(Say(0, 3, "another"));
  for (const Agent::Down& down : agents_[0]->down()) {
    EXPECT_TRUE(down.peer.id != agents_[3]->contact().id || !down.hard);
  }
}

TEST_F(RelayTest, WithoutAFirewallNothingIsAskedNotEvenWhenSomebodyDies) {
  for (int i = 0; i < 4; ++i) Add();
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < i; ++j) ASSERT_TRUE(Say(i, j, "hello"));
  }
  agents_[0]->Kill();
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(waiter_.Wait([&] { return !agents_[i]->down().empty(); }));
    EXPECT_TRUE(agents_[i]->down().back().hard);
    EXPECT_EQ(Count(i, "crowdsurf_relay_questions_total"), 0);
    EXPECT_EQ(Count(i, "crowdsurf_relay_carried_bytes_total"), 0);
  }
}

TEST_F(RelayTest, TheEntranceOpensForTheSecretAlone) {
  MakeChain(2);
  Relay& relay = agents_[0]->transport().relay();
  const auto ask = [&](const std::string& text) {
    Plain socket(Plain::Connected(PortOf(relay.entrance())));
    EXPECT_TRUE(socket.Write(text));
    return socket.Read(12).substr(9);
  };
  const std::string connect = "CONNECT 127.0.0.1:9 HTTP/1.1\r\n";
  EXPECT_EQ(ask(connect + "\r\n"), "407");
  EXPECT_EQ(ask(connect + "Proxy-Authorization: " + std::string(64, '0') + "\r\n\r\n"), "407");
  EXPECT_EQ(Refused(0, "secret"), 2);
  const std::string secret = "Proxy-Authorization: " + relay.secret() + "\r\n\r\n";
  EXPECT_EQ(ask("GET / HTTP/1.1\r\n" + secret), "400");
  EXPECT_EQ(ask(connect + secret + "too early"), "400");
  {
    Plain endless(Plain::Connected(PortOf(relay.entrance())));
    EXPECT_TRUE(endless.Write(std::string(5000, 'x')));
    EXPECT_EQ(endless.Read(1), "");
  }
  EXPECT_EQ(Refused(0, "malformed"), 3);
  EXPECT_EQ(ask(connect + secret), "504") << "an address that nobody has";
  EXPECT_EQ(Refused(1, "unknown_peer"), 1);
  std::vector<std::unique_ptr<Plain>> silent;
  for (size_t i = 0; i < kRelayWaiting; ++i) {
    silent.push_back(std::make_unique<Plain>(Plain::Connected(PortOf(relay.entrance()))));
  }
  Plain one_more(Plain::Connected(PortOf(relay.entrance())));
  EXPECT_EQ(one_more.Read(1), "");
  EXPECT_EQ(Refused(0, "waiting"), 1);
}

TEST_F(RelayTest, ASlowReaderSlowsTheWriterAndEveryByteArrivesInOrder) {
  MakeChain(3);
  Listener end;
  const Contact there{agents_[2]->contact().id, end.endpoint()};
  agents_[2]->transport().relay().Introduce(there.id, there.endpoint, RelayPort::kTensor);
  agents_[2]->transport().relay().OnProved(there);
  const auto [fd, dead] = Connect(0, end.endpoint());
  ASSERT_GE(fd, 0);
  Plain writer(fd);
  Plain reader(end.Accept());
  Rng rng(7);
  std::string text(64 << 20, '\0');
  for (size_t i = 0; i < text.size(); i += 64) text[i] = static_cast<char>(rng.Next());
  const size_t taken = writer.Fill(text, std::chrono::milliseconds(500));
  // Two hops of a piece and gRPC's windows each, and what the kernel keeps for three sockets.
  std::cout << "taken without a reader: " << taken / 1024 << " KiB\n";
  EXPECT_LT(taken, text.size() / 2);
  std::thread rest([&] {
    EXPECT_EQ(writer.Fill(text.substr(taken), std::chrono::seconds(60)), text.size() - taken);
    writer.Close();
  });
  EXPECT_TRUE(reader.Read(text.size() + 1) == text) << "and then it ends";
  rest.join();
  reader.Close();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(waiter_.Wait([&] { return Count(i, "crowdsurf_relay_connections") == 0; })) << i;
  }
  EXPECT_GE(Count(1, "crowdsurf_relay_carried_bytes_total"), static_cast<double>(text.size()));
}

TEST_F(RelayTest, AListenerThatNeverProvedACertificateGetsNoConnection) {
  MakeChain(2);
  Listener of_others;  // the cloud's address of secrets, say, which a peer says is its own
  agents_[1]->transport().relay().Introduce(agents_[0]->contact().id, of_others.endpoint(),
                                            RelayPort::kTensor);
  EXPECT_EQ(Connect(0, of_others.endpoint()), std::pair(-1, false));
  EXPECT_EQ(Refused(1, "unproved"), 1);
  EXPECT_FALSE(of_others.Waits());
}

TEST_F(RelayTest, WhereAPeerSaysItIsGetsAHandshakeOfTheAgentsOwnAndNoByteOfOthers) {
  MakeChain(2);
  Listener of_others;
  agents_[1]->transport().relay().Introduce(agents_[0]->contact().id, of_others.endpoint(),
                                            RelayPort::kPeer);
  std::thread listener([&] {
    Plain socket(of_others.Accept());
    EXPECT_EQ(socket.Read(1), "\x16") << "the first byte of TLS";
  });
  EXPECT_EQ(Connect(0, of_others.endpoint()), std::pair(-1, false));
  listener.join();
}

TEST_F(RelayTest, NeighboursAreNoOpenProxyAndTheirBoundsHold) {
  MakeChain(2);
  Listener private_service;
  EXPECT_EQ(Connect(0, private_service.endpoint()), std::pair(-1, false));
  EXPECT_EQ(Refused(1, "unknown_peer"), 1);
  // Garbage on the neighbours' call.
  const auto stub =
      peer::PeerRelay::NewStub(agents_[0]->transport().NewChannel(agents_[1]->contact().endpoint));
  const auto say = [&](const peer::RelayPiece& first) {
    grpc::ClientContext context;
    auto call = stub->Carry(&context);
    call->Write(first);
    peer::RelayPiece answer;
    const bool answered = call->Read(&answer);
    context.TryCancel();
    (void)call->Finish();
    return answered ? answer.answer() : 0;
  };
  peer::RelayPiece data, nameless, far;
  data.set_data("no question");
  nameless.mutable_open()->set_hops(1);
  far.mutable_open()->set_endpoint(private_service.endpoint());
  far.mutable_open()->set_hops(65);
  EXPECT_EQ(say(data), 0);
  EXPECT_EQ(say(nameless), 0);
  EXPECT_EQ(say(peer::RelayPiece()), 0);
  EXPECT_EQ(Refused(1, "malformed"), 3);
  EXPECT_EQ(say(far), static_cast<uint32_t>(RelayAnswer::kUnreachable));
  EXPECT_EQ(Refused(1, "hops"), 1);
}

}  // namespace
}  // namespace crowdsurf::dht
