// The codes of the operator's pages: kubelet acts on two of them, Prometheus on the third.
#include "operator/edge/serve/operator_pages.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>

namespace crowdsurf::controller {
namespace {

int CodeOf(int port, const char* path) {
  httplib::Client client("127.0.0.1", port);
  const auto result = client.Get(path);
  return result ? result->status : 0;
}

TEST(OperatorPagesTest, HealthAndReadinessAreWhatTheyAreToldNow) {
  MetricRegistry metrics;
  MetricsPage page(metrics, "crowdsurf-operator");
  std::atomic<bool> live{true}, ready{false};
  OperatorPages::Options options{"127.0.0.1", 0, 0};
  options.live = [&] { return live.load(); };
  const auto pages = OperatorPages::Start(
      options, [&] { return ready.load(); }, page, metrics);
  ASSERT_TRUE(pages.ok()) << pages.status();
  const int port = (*pages)->health_port();
  EXPECT_NE(port, (*pages)->metrics_port()) << "a scrape must not delay a probe";
  EXPECT_EQ(CodeOf(port, "/healthz"), 200);
  EXPECT_EQ(CodeOf(port, "/readyz"), 503);
  ready = true;
  live = false;
  EXPECT_EQ(CodeOf(port, "/healthz"), 503);
  EXPECT_EQ(CodeOf(port, "/readyz"), 200);
  EXPECT_EQ(CodeOf(port, "/metrics"), 404) << "not on the port that everybody reaches";
}

TEST(OperatorPagesTest, MetricsAreForAccountsThatTheGuardAdmits) {
  MetricRegistry metrics;
  metrics.AddGauge("crowdsurf_test", "A test.").Set(7);
  MetricsPage page(metrics, "crowdsurf-operator");
  OperatorPages::Options options{"127.0.0.1", 0, 0};
  options.admit = [](const std::string& authorization) -> Status {
    if (authorization == "Bearer good") return absl::OkStatus();
    if (authorization.empty()) return absl::UnauthenticatedError("who?");
    if (authorization == "Bearer away") return absl::UnavailableError("away");
    return absl::PermissionDeniedError("no");
  };
  const auto pages = OperatorPages::Start(
      options, [] { return true; }, page, metrics);
  ASSERT_TRUE(pages.ok()) << pages.status();
  httplib::Client client("127.0.0.1", (*pages)->metrics_port());
  const auto scrape = [&](const std::string& authorization) {
    httplib::Headers headers;
    if (!authorization.empty()) headers.emplace("Authorization", authorization);
    return client.Get("/metrics", headers);
  };
  EXPECT_EQ(scrape("")->status, 401);
  EXPECT_EQ(scrape("Bearer bad")->status, 403);
  EXPECT_EQ(scrape("Bearer away")->status, 503);
  const auto good = scrape("Bearer good");
  ASSERT_EQ(good->status, 200);
  EXPECT_NE(good->body.find("crowdsurf_test 7"), std::string::npos);
  EXPECT_EQ(scrape("Bearer bad")->body.find("crowdsurf_test"), std::string::npos);
}

}  // namespace
}  // namespace crowdsurf::controller
