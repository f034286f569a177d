// Tokens of strangers: at a bounded cost to the API server, and never at that of workers.
#include "operator/edge/sign/token_gate.h"

#include <absl/strings/escaping.h>

#include "base/edge/clock.h"
#include "operator/edge/sign/grant_budget.h"
#include "operator/edge/sign/job_authorities.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kReviews[] = "POST /apis/authentication.k8s.io/v1/tokenreviews";

class TokenGateTest : public testing::Test {
 protected:
  TokenGateTest() { Know(true); }
  void Know(bool known) { api_.Put(kReviews, 201, ReviewOfPod0(known)); }
  // signature: anybody may write one.
  static std::string Token(const std::string& uid, const std::string& signature = "c2ln",
                           const char* audience = "crowdsurf",
                           const char* issuer = "https://kubernetes.default.svc") {
    const json claims = {
        {"iss", issuer},
        {"aud", {audience}},
        {"exp", 1'800'003'600},
        {"kubernetes.io", {{"namespace", "team"}, {"pod", {{"name", "crowd-0-1"}, {"uid", uid}}}}}};
    return "e30." + absl::WebSafeBase64Escape(claims.dump()) + "." + signature;
  }
  double Reviews(const char* result) {
    return metrics_.Value("crowdsurf_operator_token_reviews_total", {{"result", result}});
  }

  FakeApiServer api_;
  MetricRegistry metrics_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  KubeClient client_{api_.endpoint(), {}};
  TokenGate gate_{client_,
                  {[](const std::string& uid) { return uid == "uid-0"; },
                   [] { return WallTime::FromNanoseconds(1'800'000'000'000'000'000); },
                   [this] { return now_; }},
                  metrics_};
};

TEST_F(TokenGateTest, WhatCannotBeTrueIsNotAskedAbout) {
  EXPECT_TRUE(absl::IsUnauthenticated(gate_.Review("a1b2c3").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(gate_.Review(Token("uid-0", "c2ln", "api")).status()));
  EXPECT_EQ(api_.Asked(kReviews), 0);
  EXPECT_EQ(Reviews("offline"), 2);
  EXPECT_TRUE(gate_.Review(Token("uid-0")).ok());
  EXPECT_EQ(api_.Asked(kReviews), 1);
}

TEST_F(TokenGateTest, ARefusalIsRememberedForTenSeconds) {
  Know(false);
  EXPECT_TRUE(absl::IsUnauthenticated(gate_.Review(Token("uid-0")).status()));
  Know(true);
  now_ = now_ + Milliseconds(9'999);
  EXPECT_TRUE(absl::IsUnauthenticated(gate_.Review(Token("uid-0")).status()));
  EXPECT_EQ(api_.Asked(kReviews), 1);
  now_ = now_ + Milliseconds(1);
  EXPECT_TRUE(gate_.Review(Token("uid-0")).ok());
}

TEST_F(TokenGateTest, AFloodOfForgedTokensIsBoundedAndWorkersGoOn) {
  Know(false);
  int answered = 0;
  for (int i = 0; i < 500; ++i) {
    const Status status = gate_.Review(Token("uid-" + std::to_string(i + 1), "forged")).status();
    answered += absl::IsUnauthenticated(status);
    EXPECT_TRUE(absl::IsUnauthenticated(status) || absl::IsUnavailable(status)) << status;
  }
  EXPECT_EQ(answered, TokenGate::kStrangersBurst);
  EXPECT_EQ(api_.Asked(kReviews), TokenGate::kStrangersBurst);
  EXPECT_EQ(Reviews("no_budget"), 500 - TokenGate::kStrangersBurst);
  Know(true);
  EXPECT_TRUE(gate_.Review(Token("uid-0")).ok()) << "a worker that the operator knows";
  now_ = now_ + Seconds(1);
  EXPECT_TRUE(gate_.Review(Token("uid-new")).ok()) << "one that its watch has not told yet";
}

// As after a change of the API server's flag: old and new tokens are good for a time.
TEST_F(TokenGateTest, AnIssuerThatTheServerHasNotAcceptedYetSharesTheStrangersBudget) {
  ASSERT_TRUE(gate_.Review(Token("uid-0")).ok());
  Know(false);
  const auto forged = [&](int i, const char* issuer) {
    return gate_.Review(Token("uid-0", "f" + std::to_string(i), "crowdsurf", issuer)).status();
  };
  int reviewed = 0;
  for (int i = 0; i < 200; ++i) reviewed += absl::IsUnauthenticated(forged(i, "https://evil"));
  EXPECT_EQ(reviewed, TokenGate::kStrangersBurst) << "though it names a live worker";
  Know(true);
  EXPECT_TRUE(gate_.Review(Token("uid-0", "c2lo")).ok()) << "the workers' budget is untouched";
  now_ = now_ + Seconds(1);
  EXPECT_TRUE(gate_.Review(Token("uid-0", "new", "crowdsurf", "https://new")).ok());
  Know(false);
  now_ = now_ + Seconds(1);
  int more = 0;
  for (int i = 0; i < 100; ++i) more += absl::IsUnauthenticated(forged(500 + i, "https://new"));
  EXPECT_EQ(more, 100) << "it is the API server's own by now";
}

TEST_F(TokenGateTest, AServerThatIsAwayRefusesNobody) {
  api_.Put(kReviews, 500, json::object());
  EXPECT_TRUE(absl::IsUnavailable(gate_.Review(Token("uid-0")).status()));
  Know(true);
  EXPECT_TRUE(gate_.Review(Token("uid-0")).ok()) << "nothing is remembered of it";
}

TEST_F(TokenGateTest, RefusalsThatAreRememberedHaveABound) {
  Know(false);
  for (size_t i = 0; i < TokenGate::kMaxRefused + 10; ++i) {
    now_ = now_ + Milliseconds(9);  // within the budget, and within what is remembered
    (void)gate_.Review(Token("uid-0", std::to_string(i)));
  }
  ASSERT_EQ(Reviews("refused"), TokenGate::kMaxRefused + 10);
  (void)gate_.Review(Token("uid-0", std::to_string(TokenGate::kMaxRefused + 9)));
  EXPECT_EQ(Reviews("remembered"), 1) << "the newest";
  (void)gate_.Review(Token("uid-0", "0"));
  EXPECT_EQ(Reviews("remembered"), 1) << "the oldest has gone";
}

// One that is a worker's may be shown again and again, and must not make any number of peers.
TEST_F(TokenGateTest, OnePodHasABoundedNumberOfCertificates) {
  api_.Put("/api/v1/namespaces/team/pods/crowd-0-1", 200, Pod(0));
  api_.Put("/apis/crowdsurf.io/v1alpha1/namespaces/team/trainingjobs/crowd", 200, Job());
  const auto ca = CertificateAuthority::Create("crowd", WallNow());
  ASSERT_TRUE(ca.ok());
  api_.Put("/api/v1/namespaces/system/secrets/crowdsurf-ca-job-uid", 200,
           {{"metadata", {{"labels", {{"app.kubernetes.io/managed-by", "crowdsurf"}}}}},
            {"data",
             {{"ca.pem", absl::Base64Escape(ca->pem())},
              {"ca-key.pem", absl::Base64Escape(*ca->KeyPem())}}}});
  KubeClient grants(api_.endpoint(), {});
  JobAuthorities authorities(
      client_, {.space = "system",
                .clock = [this] { return WallTime::FromNanoseconds(now_.nanoseconds()); },
                .review = [this](const std::string& token) { return gate_.Review(token); },
                .grants = &grants});
  int asked = 0;
  while (!absl::IsResourceExhausted(authorities.Grant(Token("uid-0"), "no csr").status()) &&
         asked < 100) {
    ++asked;
  }
  EXPECT_EQ(asked, GrantBudget::kBurst);
  now_ = now_ + Seconds(900);
  EXPECT_TRUE(absl::IsInvalidArgument(authorities.Grant(Token("uid-0"), "no csr").status()));
  EXPECT_TRUE(absl::IsResourceExhausted(authorities.Grant(Token("uid-0"), "no csr").status()));
}

TEST(GrantBudgetTest, OnePodsBudgetIsNoOthersAndTheTableHasABound) {
  GrantBudget budget;
  Time now = Time::FromNanoseconds(1'000'000'000);
  for (int i = 0; i < GrantBudget::kBurst; ++i) EXPECT_TRUE(budget.Take("a", now));
  EXPECT_FALSE(budget.Take("a", now));
  EXPECT_TRUE(budget.Take("b", now));
  for (size_t i = 0; i < GrantBudget::kMaxPods + 10; ++i) {
    EXPECT_TRUE(budget.Take(std::to_string(i), now));
  }
}

}  // namespace
}  // namespace crowdsurf::controller
