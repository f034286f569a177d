// The accounts that may read the metrics: two reviews of the API server decide, for a while.
#include "operator/edge/serve/metrics_guard.h"

#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kReviews[] = "POST /apis/authentication.k8s.io/v1/tokenreviews";
constexpr char kAccess[] = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

class MetricsGuardTest : public testing::Test {
 protected:
  MetricsGuardTest() {
    Know(true);
    Allow(true);
  }
  void Know(bool known) {
    json status = {{"authenticated", known}};
    status["user"] = {{"username", "scraper"}, {"uid", "u"}, {"groups", {"g"}}};
    api_.Put(kReviews, 201, {{"status", status}});
  }
  void Allow(bool allowed) { api_.Put(kAccess, 201, {{"status", {{"allowed", allowed}}}}); }
  Status Admit(const std::string& token) { return guard_.Admit("Bearer " + token); }
  double Scrapes(const char* result) {
    return metrics_.Value("crowdsurf_operator_scrapes_total", {{"result", result}});
  }

  FakeApiServer api_;
  MetricRegistry metrics_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  KubeClient client_{api_.endpoint(), {}};
  MetricsGuard guard_{client_, [this] { return now_; }, metrics_};
};

TEST_F(MetricsGuardTest, AnAccountThatMayIsAskedAboutOnceAMinute) {
  EXPECT_TRUE(Admit("t").ok());
  EXPECT_EQ(api_.Body(kReviews)["spec"]["token"], "t");
  const json asked = api_.Body(kAccess)["spec"];
  EXPECT_EQ(asked["nonResourceAttributes"], (json{{"path", "/metrics"}, {"verb", "get"}}));
  EXPECT_EQ(asked["user"], "scraper");
  EXPECT_EQ(asked["groups"], json::array({"g"}));
  now_ = now_ + Milliseconds(59'999);
  EXPECT_TRUE(Admit("t").ok());
  EXPECT_EQ(api_.Asked(kReviews), 1);
  EXPECT_TRUE(Admit("other").ok());
  EXPECT_EQ(api_.Asked(kReviews), 2) << "each token for itself";
  Allow(false);
  now_ = now_ + Milliseconds(1);
  EXPECT_TRUE(absl::IsPermissionDenied(Admit("t")));
  EXPECT_EQ(Scrapes("admitted"), 3);
  EXPECT_EQ(Scrapes("refused"), 1);
}

TEST_F(MetricsGuardTest, ARefusalIsRememberedForTenSeconds) {
  Know(false);
  EXPECT_TRUE(absl::IsUnauthenticated(Admit("t")));
  EXPECT_EQ(api_.Asked(kAccess), 0) << "of nobody nothing more is asked";
  Know(true);
  now_ = now_ + Milliseconds(9'999);
  EXPECT_TRUE(absl::IsUnauthenticated(Admit("t")));
  now_ = now_ + Milliseconds(1);
  EXPECT_TRUE(Admit("t").ok());
}

TEST_F(MetricsGuardTest, WithoutATokenNobodyIsAsked) {
  for (const char* header : {"", "Basic abc", "bearer t"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(guard_.Admit(header))) << header;
  }
  EXPECT_EQ(api_.Asked(kReviews), 0);
  EXPECT_EQ(Scrapes("refused"), 3);
}

TEST_F(MetricsGuardTest, AServerThatIsAwayRefusesNobodyForLong) {
  api_.Put(kReviews, 500, json::object());
  EXPECT_TRUE(absl::IsUnavailable(Admit("t")));
  Know(true);
  api_.Put(kAccess, 500, json::object());
  EXPECT_TRUE(absl::IsUnavailable(Admit("t")));
  Allow(true);
  EXPECT_TRUE(Admit("t").ok()) << "the next question is asked again";
}

// Any pod may show tokens, and each of them would cost two reviews.
TEST_F(MetricsGuardTest, AFloodOfTokensIsBoundedAndAScraperGoesOn) {
  EXPECT_TRUE(Admit("scraper").ok());
  Know(false);
  const int before = api_.Asked(kReviews);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(Admit("forged-" + std::to_string(i)).ok());
  EXPECT_EQ(api_.Asked(kReviews) - before, MetricsGuard::kStrangersBurst - 1);
  EXPECT_EQ(Scrapes("no_budget"), 500 - MetricsGuard::kStrangersBurst + 1);
  Know(true);
  EXPECT_TRUE(absl::IsUnavailable(Admit("another"))) << "asked again, it may pass";
  for (int minute = 1; minute < 60; ++minute) {
    now_ = now_ + Seconds(60);
    const int asked = api_.Asked(kReviews);
    for (int i = 0; i < 30; ++i) (void)Admit("forged-" + std::to_string(i) + "m");
    EXPECT_TRUE(Admit("scraper").ok()) << minute;
    EXPECT_GT(api_.Asked(kReviews), asked) << "its right is asked about every minute";
  }
}

TEST_F(MetricsGuardTest, AnswersThatSayNothingAdmitNobody) {
  for (const json& odd : {json::object(), json{{"status", {{"authenticated", true}}}}}) {
    api_.Put(kReviews, 201, odd);
    EXPECT_TRUE(absl::IsUnauthenticated(Admit(odd.dump()))) << odd;
  }
  Know(true);
  api_.Put(kAccess, 201, json::object());
  EXPECT_TRUE(absl::IsPermissionDenied(Admit("t")));
}

}  // namespace
}  // namespace crowdsurf::controller
