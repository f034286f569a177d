// The sockets to the API server: how soon a machine that is gone is noticed, and how often one is
// made.
#include "operator/edge/kube/kube_connections.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "operator/edge/kube/kube_client.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

// The descriptor of this process that is connected to that port; -1: none.
int ConnectedTo(int port) {
  for (int descriptor = 3; descriptor < 4096; ++descriptor) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) return descriptor;
  }
  return -1;
}

int Option(int descriptor, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(descriptor, level, option, &value, &size), 0);
  return value;
}

// Rancher's and other proxies' URLs have a path: without it requests reach another cluster.
TEST(KubeConnectionsTest, TheServersPathAndWhomItActsForGoWithEachRequest) {
  httplib::Server server;
  std::string user;
  server.Get("/k8s/clusters/c/api", [&](const httplib::Request& request, httplib::Response& reply) {
    user = request.get_header_value("Impersonate-User");
    reply.set_content("{}", "application/json");
  });
  server.Get("/k8s/clusters/c/watch", [](const httplib::Request&, httplib::Response& reply) {
    reply.set_content("seen", "application/json");
  });
  LoopbackServer loopback(server);
  KubeEndpoint endpoint = PlainEndpoint(loopback.port());
  endpoint.path = "/k8s/clusters/c";
  endpoint.headers = {{"Impersonate-User", "jane"}};
  KubeClient client(endpoint, {});
  EXPECT_TRUE(client.Get("/api").ok());
  EXPECT_EQ(user, "jane");
  EXPECT_TRUE(client.Get("/api").ok()) << "also the second time";
  std::string watched;
  (void)client.Watch(
      "/watch",
      [&](std::string_view bytes) {
        watched += bytes;
        return true;
      },
      Seconds(10));
  EXPECT_EQ(watched, "seen");
  client.Stop();
}

// docs/kubernetes.md: the kernel's probes find a machine that is gone after 16 s.
TEST(KubeConnectionsTest, AMachineThatIsGoneIsNoticedAfterSixteenSeconds) {
  httplib::Server server;
  server.Get("/api", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("{}", "application/json");
  });
  LoopbackServer loopback(server);
  KubeClient client(PlainEndpoint(loopback.port()), {});
  ASSERT_TRUE(client.Get("/api").ok());
  const int descriptor = ConnectedTo(loopback.port());
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(Option(descriptor, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(Option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE) +
                Option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL) *
                    Option(descriptor, IPPROTO_TCP, TCP_KEEPCNT),
            16)
      << "in silence";
  EXPECT_EQ(Option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT), 16'000) << "of what was sent";
  EXPECT_EQ(Option(descriptor, IPPROTO_TCP, TCP_NODELAY), 1);
  client.Stop();
}

// Closes every connection as soon as something has come.
class RefusingServer {
 public:
  RefusingServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int peer; (peer = accept(listener_, nullptr, nullptr)) >= 0; close(peer)) {
        ++taken;
        char bytes[4096];
        (void)recv(peer, bytes, sizeof bytes, 0);
      }
    });
  }
  ~RefusingServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int port = 0;
  std::atomic<int> taken{0};

 private:
  const int listener_;
  std::thread thread_;
};

TEST(KubeConnectionsTest, AConnectionThatWasNeverGoodIsNotMadeAgain) {
  RefusingServer server;
  KubeClient client(PlainEndpoint(server.port), {});
  EXPECT_TRUE(absl::IsUnavailable(client.Get("/api").status()));
  EXPECT_EQ(server.taken, 1) << "a server that is overloaded is not asked twice at once";
  client.Stop();
}

// Of two connections both are out: a third request waits until one is back, or its time is over.
TEST(KubeConnectionsTest, APoolHasItsBoundAndEndsItsWaits) {
  const KubeEndpoint endpoint = PlainEndpoint(1);  // nothing is sent
  KubeConnections pool(endpoint, "test", Seconds(1), 2);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto first = pool.Acquire(now()), second = pool.Acquire(now());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->used);
  EXPECT_TRUE(absl::IsUnavailable(pool.Acquire(now()).status()));
  pool.Release(*std::move(first));
  auto again = pool.Acquire(now());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->used);
  EXPECT_TRUE(absl::IsUnavailable(pool.Acquire(now()).status()));
  pool.Discard();
  EXPECT_TRUE(pool.Acquire(now()).ok());
  pool.Stop();
  EXPECT_TRUE(absl::IsCancelled(pool.Acquire(now()).status()));
}

}  // namespace
}  // namespace crowdsurf::controller
