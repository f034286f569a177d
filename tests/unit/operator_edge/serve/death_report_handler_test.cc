// Peers' death reports, from the agent's request to the desk: HTTPS, and an API server that knows
// two tokens.
#include "operator/edge/serve/death_report_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/edge/clock.h"
#include "base/mailbox.h"
#include "operator/edge/sign/signer.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// TokenReviews as kube-apiserver answers them: "worker" is a pod's token of the right audience,
// "account" one without a pod; every other is unknown. `away`: it answers 503.
class FakeApiServer {
 public:
  FakeApiServer() {
    server_.Post("/apis/authentication.k8s.io/v1/tokenreviews",
                 [this](const httplib::Request& request, httplib::Response& response) {
                   ++reviews;
                   if (away) {
                     response.status = 503;
                     return;
                   }
                   response.status = 201;
                   response.set_content(Review(json::parse(request.body)).dump(),
                                        "application/json");
                 });
    loopback_.emplace(server_);
  }
  KubeEndpoint endpoint() const { return PlainEndpoint(loopback_->port()); }
  std::atomic<int> reviews{0};
  std::atomic<bool> away{false};

 private:
  static json Review(const json& asked) {
    const std::string token = asked["spec"]["token"];
    if (asked["spec"]["audiences"] != json::array({"crowdsurf"})) return {{"status", json()}};
    if (token != "worker" && token != "account") {
      return {{"status", {{"authenticated", false}, {"error", "invalid bearer token"}}}};
    }
    json user = {{"username", "system:serviceaccount:team:default"}};
    if (token == "worker") {
      user["extra"] = {{"authentication.kubernetes.io/pod-name", {"crowd-1-1"}},
                       {"authentication.kubernetes.io/pod-uid", {"uid-1"}}};
    }
    return {{"status", {{"authenticated", true}, {"audiences", {"crowdsurf"}}, {"user", user}}}};
  }
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

class DeathReportHandlerTest : public testing::Test {
 protected:
  void SetUp() override {
    authority_ = std::make_unique<CertificateAuthority>(
        std::move(CertificateAuthority::Create("signer", WallNow()).value()));
    client_ = std::make_unique<KubeClient>(api_.endpoint(), KubeClient::Options{});
    handler_ = std::make_unique<DeathReportHandler>(
        DeathReportHandler::Ports{
            [this](const std::string& token) { return ReviewPodToken(*client_, token); },
            [this] { return leading_.load(); },
            [this](DeathReport report) {
              if (full_) return false;
              return taken_.Post(std::move(report));
            },
            [this] { return now_.load(); }},
        metrics_);
    SignerOptions options;
    options.report = [this](const std::string& token, const std::string& body) {
      return handler_->Take(token, body);
    };
    signer_ = std::move(Signer::Start(*authority_, options, WallNow(), metrics_).value());
    ca_path_ = testing::TempDir() + "report_desk_test_ca_" + std::to_string(getpid()) + ".pem";
    std::ofstream(ca_path_) << authority_->pem();
  }
  int Post(const std::string& authorization, const std::string& body) {
    httplib::Client client(signer_->url());
    client.set_ca_cert_path(ca_path_.c_str());
    client.enable_server_certificate_verification(true);
    const auto answer =
        client.Post("/v1/deaths", {{"Authorization", authorization}}, body, "application/json");
    return answer ? answer->status : 0;
  }
  int Report(const std::string& token) {
    return Post("Bearer " + token, R"({"dead": ["crowd-3-1", "crowd-4-2"]})");
  }
  void Pass(Duration time) { now_ = now_.load() + time; }

  FakeApiServer api_;
  MetricRegistry metrics_;
  std::unique_ptr<CertificateAuthority> authority_;
  std::unique_ptr<KubeClient> client_;
  std::atomic<bool> leading_{true}, full_{false};
  std::atomic<Time> now_{Time::FromNanoseconds(1)};
  Mailbox<DeathReport> taken_{64};  // by the server's threads
  std::unique_ptr<DeathReportHandler> handler_;
  std::unique_ptr<Signer> signer_;
  std::string ca_path_;
};

TEST_F(DeathReportHandlerTest, TheTokenSaysWhoReportsAndTheApiServerIsAskedOnceAMinute) {
  EXPECT_EQ(Report("worker"), 202);
  ASSERT_EQ(taken_.size(), 1u);
  const auto taken = taken_.TryTake();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->reporter_uid, "uid-1");
  EXPECT_EQ(taken->space, "team");
  EXPECT_THAT(taken->dead, ElementsAre("crowd-3-1", "crowd-4-2"));
  EXPECT_EQ(Report("worker"), 429) << "four times a second";
  for (int i = 0; i < 11; ++i) {
    Pass(Milliseconds(4500));
    EXPECT_EQ(Report("worker"), 202);
    Pass(Milliseconds(500));
    EXPECT_EQ(Report("worker"), 202) << "whom it lost half a second later";
  }
  EXPECT_EQ(api_.reviews, 1);
  Pass(Seconds(5));
  EXPECT_EQ(Report("worker"), 202);
  EXPECT_EQ(api_.reviews, 2) << "a minute is over: the pod may be gone";
}

TEST_F(DeathReportHandlerTest, WhoIsNoWorkerIsRefusedAndRemembered) {
  EXPECT_EQ(Report("forged"), 401);
  EXPECT_EQ(Report("forged"), 401);
  EXPECT_EQ(Report("account"), 403);
  EXPECT_EQ(Report("account"), 403);
  EXPECT_EQ(api_.reviews, 2);
  EXPECT_EQ(Post("Basic d29ya2Vy", R"({"dead": ["a"]})"), 401);
  EXPECT_EQ(Post("", R"({"dead": ["a"]})"), 401);
  EXPECT_EQ(taken_.size(), 0u);
}

TEST_F(DeathReportHandlerTest, GarbageIsRefusedBeforeAnybodyIsAsked) {
  std::string many = R"({"dead": [)";
  for (size_t i = 0; i < DeathReportHandler::kMaxNames; ++i) many += "\"w\",";
  const std::string bodies[] = {"",
                                "[]",
                                "{",
                                R"({"dead": []})",
                                R"({"dead": "crowd-3-1"})",
                                R"({"dead": [3]})",
                                R"({"dead": [null, "crowd-3-1"]})",
                                many + "\"w\"]}",
                                R"({"dead": [")" + std::string(254, 'x') + R"("]})"};
  for (const std::string& body : bodies) EXPECT_EQ(Post("Bearer worker", body), 400) << body;
  EXPECT_EQ(Post("Bearer worker", std::string(70'000, ' ')), 413);
  EXPECT_EQ(api_.reviews, 0);
  EXPECT_EQ(taken_.size(), 0u);
}

TEST_F(DeathReportHandlerTest, OnlyTheLeaderTakesReports) {
  leading_ = false;
  EXPECT_EQ(Report("worker"), 421);
  EXPECT_EQ(api_.reviews, 0);
  leading_ = true;
  EXPECT_EQ(Report("worker"), 202);
}

TEST_F(DeathReportHandlerTest, AnApiServerThatIsAwayIsNotHeldAgainstTheWorker) {
  api_.away = true;
  EXPECT_EQ(Report("worker"), 503);
  api_.away = false;
  EXPECT_EQ(Report("worker"), 202);
  Pass(Seconds(2));
  full_ = true;
  EXPECT_EQ(Report("worker"), 503);
}

TEST(SignerWithoutADeskTest, HasNoSuchPath) {
  MetricRegistry metrics;
  const auto authority = CertificateAuthority::Create("job", WallNow());
  const auto signer = Signer::Start(*authority, {}, WallNow(), metrics);
  httplib::Client client((*signer)->url());
  client.enable_server_certificate_verification(false);
  const auto answer = client.Post("/v1/deaths", R"({"dead": ["a"]})", "application/json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404) << "agents in local mode then ask no more";
}

}  // namespace
}  // namespace crowdsurf::controller
