// KubeClient on connections that end while they are idle, as when an API server is restarted: over
// a socket that the test closes when it likes, which no HTTP server does.
#include "operator/edge/kube/kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "operator/edge/kube/kube_requests.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;

constexpr std::chrono::seconds kPatience{10};  // a test fails by it, and never waits for it

// Answers the first request of every connection with {} and ends with the second, unanswered: when
// it has read all of it, or its head.
class ForgetfulServer {
 public:
  enum class Reads { kAll, kHead };
  explicit ForgetfulServer(Reads second = Reads::kAll)
      : second_(second), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ForgetfulServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }
  std::vector<std::string> asked() {  // methods, in order
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void Serve() {
    for (int peer; (peer = accept(listener_, nullptr, nullptr)) >= 0; close(peer)) {
      if (!Read(peer, Reads::kAll)) continue;
      const std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
      if (send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) > 0) Read(peer, second_);
    }
  }
  bool Read(int peer, Reads what) {
    std::string request;
    size_t wanted = 0;  // with the body
    for (size_t head; request.size() < wanted || wanted == 0;) {
      char bytes[4096];
      const ssize_t got = recv(peer, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      request.append(bytes, static_cast<size_t>(got));
      if (wanted > 0 || (head = request.find("\r\n\r\n")) == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      wanted = head + 4;
      if (what == Reads::kAll && length < head) wanted += std::stoul(request.substr(length + 16));
    }
    const std::lock_guard lock(mutex_);
    asked_.push_back(request.substr(0, request.find(' ')));
    return true;
  }
  const Reads second_;
  const int listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

TEST(KubeClientTest, WhatChangesNothingIsAskedAgainWhenItsConnectionHadEnded) {
  ForgetfulServer server;
  KubeClient client(PlainEndpoint(server.port()), {});
  EXPECT_TRUE(client.Get("/api").ok());
  const auto again = client.Get("/api");
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(server.asked(), ElementsAre("GET", "GET", "GET"));
  client.Stop();
}

TEST(KubeClientTest, WhatMayHaveBeenDoneIsNotAskedAgain) {
  ForgetfulServer server;
  KubeClient client(PlainEndpoint(server.port()), {});
  EXPECT_TRUE(client.Get("/api").ok());
  EXPECT_TRUE(absl::IsUnavailable(client.Delete("/api/pods/a")));
  EXPECT_THAT(server.asked(), ElementsAre("GET", "DELETE"));
  EXPECT_TRUE(client.Get("/api").ok()) << "on a new connection";
  client.Stop();
}

TEST(KubeClientTest, WhatCouldNotBeSentWholeIsSentAgain) {
  ForgetfulServer server(ForgetfulServer::Reads::kHead);
  KubeClient client(PlainEndpoint(server.port()), {});
  EXPECT_TRUE(client.Get("/api").ok());
  const std::string large(32 << 20, 'x');  // more than sockets hold, so the server ends it halfway
  const auto made = client.Create("/api/pods", {{"data", large}});
  EXPECT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(server.asked(), ElementsAre("GET", "POST", "POST"));
  client.Stop();
}

TEST(KubeClientTest, AListThatIsNoneIsAnError) {
  httplib::Server server;
  std::string answer;
  server.Get("/api/v1/pods", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(answer, "application/json");
  });
  const LoopbackServer loopback(server);
  KubeClient client(PlainEndpoint(loopback.port()), {});
  for (const char* said : {R"({"items": [], "metadata": null})", R"({"items": [], "metadata": []})",
                           R"({"items": {}, "metadata": {}})", "[]", "null", "7"}) {
    answer = said;
    EXPECT_TRUE(absl::IsUnavailable(client.List("/api/v1/pods").status())) << said;
  }
  answer = R"({"items": [1], "metadata": {"resourceVersion": null, "continue": 3}})";
  const auto list = client.List("/api/v1/pods");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->resource_version, "");
  client.Stop();
}

// Between the look at whether the client is stopped and the connection there is nothing to cut: a
// watch that slipped through would end with its time-out, in minutes, and the operator with it.
TEST(KubeClientTest, AWatchThatIsStoppedJustBeforeItConnectsEndsWithTheAnswersHead) {
  std::promise<void> ended;
  const std::shared_future<void> has_ended = ended.get_future().share();
  std::atomic<bool> silent{false};
  httplib::Server server;
  server.Get("/api/watched", [&](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("application/json", [&](size_t, httplib::DataSink& sink) {
      silent = has_ended.wait_for(kPatience) == std::future_status::timeout;
      sink.done();
      return true;
    });
  });
  const LoopbackServer loopback(server);
  KubeClient* running = nullptr;
  KubeClient::Options options;
  options.clock = [&] {  // asked by a watch that is about to connect
    running->Stop();
    return SteadyNow();
  };
  KubeClient client(PlainEndpoint(loopback.port()), options);
  running = &client;
  const Status status = client.Watch("/api/watched", [](std::string_view) { return true; });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_FALSE(silent) << "it waited for the server";
  ended.set_value();
}

// Time-outs of single reads never end such an answer.
TEST(KubeClientTest, ARequestEndsWithItsTimeHoweverOftenAByteComes) {
  std::promise<void> ended;
  const std::shared_future<void> has_ended = ended.get_future().share();
  httplib::Server server;
  server.Get("/api", [&](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("json", [&](size_t, httplib::DataSink& sink) {
      const auto until = std::chrono::steady_clock::now() + kPatience;
      while (has_ended.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout &&
             std::chrono::steady_clock::now() < until) {
        if (!sink.write(" ", 1)) return false;
      }
      sink.write("{}", 2);
      sink.done();
      return true;
    });
  });
  server.Get("/quick", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("{}", "json");
  });
  const LoopbackServer loopback(server);
  KubeClient client(PlainEndpoint(loopback.port()), {.timeout = Seconds(1)});
  // Whoever watches the time has gone to sleep between two requests.
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(client.Get("/quick").ok());
  const auto answer = client.Get("/api");
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << "it waited for all of it";
  ended.set_value();
}

// Refuses as often as the test has set, and then answers.
class BusyServer {
 public:
  BusyServer() {
    const auto answer = [this](const httplib::Request&, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      ++asked_;
      response.status = asked_ <= refusals_ ? code_ : 200;
      if (response.status == code_ && !pause_.empty()) response.set_header("Retry-After", pause_);
      response.set_content("{}", "application/json");
    };
    server_.Get("/api/pods", answer);
    server_.Post("/api/pods", answer);
    for (const char* path : {"/api/v1/namespaces/team/pods", "/api/v1/namespaces/other/pods/p",
                             "/api/v1/namespaces/other/pods"}) {
      server_.Get(path, answer);
      server_.Post(path, answer);
      server_.Patch(path, answer);
    }
    loopback_.emplace(server_);
  }
  void Refuse(int times, int code, std::string pause) {
    const std::lock_guard lock(mutex_);
    asked_ = 0;
    refusals_ = times;
    code_ = code;
    pause_ = std::move(pause);
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  int port() const { return loopback_->port(); }

 private:
  std::mutex mutex_;
  int asked_ = 0, refusals_ = 0, code_ = 0;
  std::string pause_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
};

TEST(KubeClientTest, WhatABusyServerPutsOffIsSentAgain) {
  BusyServer server;
  MetricRegistry metrics;
  KubeClient client(PlainEndpoint(server.port()), {.metrics = &metrics});
  for (const auto& [code, pause] : {std::pair(429, "0"), {429, ""}, {503, "0"}, {500, "0"}}) {
    server.Refuse(2, code, pause);
    const auto made = client.Create("/api/pods", json::object());
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(server.asked(), 3);
  }
  double retries = 0;
  for (const MetricFamily& family : metrics.Collect()) {
    if (family.name != "rest_client_request_retries_total") continue;
    for (const MetricValue& one : family.series) retries += one.value;
  }
  EXPECT_EQ(retries, 8);
}

TEST(KubeClientTest, AFaultWithoutAPauseIsNotSentAgain) {
  BusyServer server;
  KubeClient client(PlainEndpoint(server.port()), {});
  server.Refuse(1, 500, "");
  EXPECT_TRUE(absl::IsUnavailable(client.Create("/api/pods", json::object()).status()));
  EXPECT_EQ(server.asked(), 1);
}

// Longer than a request may take: it is refused, and until then no other of its kind is sent.
TEST(KubeClientTest, ALongPauseHoldsForRequestsOfItsVerbAndResourceAndForNoOthers) {
  BusyServer server;
  KubeClient client(PlainEndpoint(server.port()), {.timeout = Seconds(5)});
  server.Refuse(1, 429, "3600");
  const std::string pods = "/api/v1/namespaces/team/pods", others = "/api/v1/namespaces/other/pods";
  const Status refused = client.Create(pods, json::object()).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_TRUE(absl::IsUnavailable(client.Create(others, json::object()).status()));
  EXPECT_EQ(server.asked(), 1) << "of any namespace";
  const Status noticed = client.Patch(others + "/p", PatchType::kMerge, json::object()).status();
  EXPECT_TRUE(noticed.ok()) << "a notice waits for creates: " << noticed;
  EXPECT_TRUE(client.Get(pods).ok());
  EXPECT_EQ(server.asked(), 3);
}

TEST(KubeClientTest, NoExceptionLeavesIt) {
  BusyServer server;
  MetricRegistry metrics;
  KubeClient client(PlainEndpoint(server.port()), {.metrics = &metrics});
  // A text that was cut inside of a character.
  EXPECT_TRUE(client.Create("/api/pods", {{"text", "a\xe2\x82"}}).ok());
  const Status watched = client.Watch("/api/pods", [](std::string_view) -> bool {
    throw std::runtime_error("a projection that nobody thought of");
  });
  EXPECT_TRUE(absl::IsInternal(watched)) << watched;
  EXPECT_EQ(metrics.Value("crowdsurf_operator_exceptions_total", {{"thread", "client"}}), 1);
  EXPECT_TRUE(client.Get("/api/pods").ok()) << "its connections are given back";
}

TEST(KubeRequestsTest, AKindOfRequestIsItsVerbItsResourceAndWhetherItIsOne) {
  EXPECT_EQ(KindOfRequest("GET", "/api/v1/pods?limit=500"), "GET pods");
  EXPECT_EQ(KindOfRequest("GET", "/api/v1/namespaces/a/pods"), "GET pods");
  EXPECT_EQ(KindOfRequest("PATCH", "/api/v1/namespaces/a/pods/p"), "PATCH pods/NAME");
  EXPECT_EQ(
      KindOfRequest("PATCH", "/apis/crowdsurf.io/v1alpha1/namespaces/a/trainingjobs/j/status"),
      "PATCH trainingjobs/NAME");
  EXPECT_EQ(KindOfRequest("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
            "POST tokenreviews");
  EXPECT_EQ(KindOfRequest("GET", "/api/v1/nodes/n"), "GET nodes/NAME");
  EXPECT_EQ(KindOfRequest("GET", "/api"), "GET /api");
}

// RFC 3986, 2.1 to 2.3. A server may put anything into its token for the next page.
TEST(KubeRequestsTest, AllButUnreservedCharactersArePercentEncoded) {
  EXPECT_EQ(PercentEncoded("azAZ09-._~"), "azAZ09-._~");
  EXPECT_EQ(PercentEncoded("a/b+c=&? %\n\xC3"), "a%2fb%2bc%3d%26%3f%20%25%0a%c3");
  EXPECT_EQ(PercentEncoded(""), "");
}

}  // namespace
}  // namespace crowdsurf::controller
