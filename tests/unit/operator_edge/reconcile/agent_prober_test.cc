// Which agents live, asked over real sockets: one answers, one refuses, one hangs.
#include "operator/edge/reconcile/agent_prober.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>

#include "tests/support/eventually.h"
#include "tests/support/hostile_server.h"
#include "tests/support/loopback_server.h"

namespace crowdsurf::controller {
namespace {

constexpr std::chrono::seconds kPatience{30};  // a test fails by it, and never waits for it

// An agent's plain port. `misses`: of so many first requests it closes the connection.
class Agent {
 public:
  explicit Agent(int misses = 0) : misses_(misses) {
    server_.set_pre_routing_handler([this](const auto&, httplib::Response& response) {
      ++asked;
      if (misses_-- > 0) {
        response.set_content_provider(10, "text/plain",
                                      [](size_t, size_t, httplib::DataSink&) { return false; });
        return httplib::Server::HandlerResponse::Handled;
      }
      return httplib::Server::HandlerResponse::Unhandled;
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
    loopback_.emplace(server_);
  }
  std::string http() const { return loopback_->address(); }
  std::atomic<int> asked{0};

 private:
  std::atomic<int> misses_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
};

// A process that is stopped: the kernel takes connections, and nobody answers.
class Frozen {
 public:
  Frozen() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Frozen() { close(socket_); }
  std::string http() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int socket_;
  int port_ = 0;
};

std::string NobodyThere() { return Frozen().http(); }  // closed again: refused

class AgentProberTest : public testing::Test {
 protected:
  // `timeout`: of one question; a live agent on a busy machine must answer within it.
  ProbeResult Of(const std::string& http, const std::string& control,
                 Duration timeout = Seconds(20)) {
    AgentProber prober({.timeout = timeout, .between = Milliseconds(20)},
                       [this](const std::string& uid, ProbeResult result) {
                         EXPECT_EQ(uid, "uid");
                         EXPECT_TRUE(results_.Post(result));
                       });
    EXPECT_TRUE(prober.Ask({"uid", http, control}));
    const auto result = results_.Take(std::chrono::steady_clock::now() + kPatience);
    EXPECT_TRUE(result.has_value());
    return result.value_or(ProbeResult::kBlind);
  }
  Agent reporter_;
  Mailbox<ProbeResult> results_{1024};
};

TEST_F(AgentProberTest, AnAnswerIsLifeAlsoAtTheSecondTry) {
  Agent agent;
  EXPECT_EQ(Of(agent.http(), reporter_.http()), ProbeResult::kAnswers);
  EXPECT_EQ(agent.asked, 1);
  Agent restarts(1);
  EXPECT_EQ(Of(restarts.http(), reporter_.http()), ProbeResult::kAnswers);
  EXPECT_EQ(reporter_.asked, 0) << "the control is asked only after a silence";
}

TEST_F(AgentProberTest, WhoRefusesHangsOrNeverHadAnAddressIsSilent) {
  EXPECT_EQ(Of(NobodyThere(), reporter_.http()), ProbeResult::kSilent);
  Frozen frozen;
  EXPECT_EQ(Of(frozen.http(), reporter_.http(), Seconds(1)), ProbeResult::kSilent);
  EXPECT_EQ(Of("", reporter_.http()), ProbeResult::kSilent);
  EXPECT_EQ(Of("no address", reporter_.http()), ProbeResult::kSilent);
}

TEST_F(AgentProberTest, WhenItReachesNobodyItKnowsNothing) {
  EXPECT_EQ(Of(NobodyThere(), NobodyThere()), ProbeResult::kBlind);
  EXPECT_EQ(Of(NobodyThere(), ""), ProbeResult::kBlind);
}

TEST_F(AgentProberTest, AWaveIsBoundedAndEndsSoon) {
  Frozen frozen;
  AgentProber prober({.timeout = Milliseconds(300), .between = Milliseconds(20)},
                     [](const std::string&, ProbeResult) {});
  size_t refused = 0;
  const size_t most = AgentProber::kLanes * (AgentProber::kMaxWaiting + 1);
  for (size_t i = 0; i < most + 10; ++i) refused += !prober.Ask({"uid", frozen.http(), ""});
  EXPECT_GE(refused, 10u);
}

// A tenant's own image may be its agent.
TEST_F(AgentProberTest, WhoDripsOrAnswersWithoutEndIsSilentAndOccupiesNobody) {
  for (const Hostile how : kAllHostile) {
    const HostileServer hostile(how);
    EXPECT_EQ(Of(hostile.address(), reporter_.http(), Milliseconds(500)), ProbeResult::kSilent)
        << static_cast<int>(how);
    EXPECT_LT(hostile.sent(), 48u << 20) << "what two connections hold, and no more";
  }
}

TEST_F(AgentProberTest, ItEndsAtOnceWhileAgentsDrip) {
  auto drips = std::make_unique<HostileServer>(Hostile::kDripsHeader);
  auto prober = std::make_unique<AgentProber>(
      AgentProber::Options{.timeout = Seconds(3600), .between = Seconds(3600)},
      [](const std::string&, ProbeResult) {});
  EXPECT_TRUE(prober->Ask({"uid", drips->address(), ""}));
  ASSERT_TRUE(EventuallyHolds([&] { return drips->open() > 0; }));
  auto ended = std::async(std::launch::async, [&] { prober.reset(); });
  EXPECT_EQ(ended.wait_for(kPatience), std::future_status::ready);
  drips.reset();  // where it waits for its agents, this ends it
}

}  // namespace
}  // namespace crowdsurf::controller
