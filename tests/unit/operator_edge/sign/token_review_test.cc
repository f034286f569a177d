// The pod behind a token: only the word of the API server counts.
#include "operator/edge/sign/token_review.h"

#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kReviews[] = "POST /apis/authentication.k8s.io/v1/tokenreviews";

class TokenReviewTest : public testing::Test {
 protected:
  // A review of a pod's token, as the API server answers it (KEP-1205).
  static json Good() {
    return json::parse(R"({"status": {"authenticated": true, "audiences": ["crowdsurf"], "user": {
      "username": "system:serviceaccount:team:default",
      "extra": {"authentication.kubernetes.io/pod-name": ["crowd-0-1"],
                "authentication.kubernetes.io/pod-uid": ["uid-0"]}}}})");
  }
  StatusOr<TokenPod> Review(const json& answer, int code = 201) {
    api_.Put(kReviews, code, answer);
    return ReviewPodToken(client_, "token");
  }
  FakeApiServer api_;
  KubeClient client_{api_.endpoint(), {}};
};

TEST_F(TokenReviewTest, APodIsNamedByItsToken) {
  const auto pod = Review(Good());
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->space, "team");
  EXPECT_EQ(pod->name, "crowd-0-1");
  EXPECT_EQ(pod->uid, "uid-0");
  EXPECT_EQ(api_.Body(kReviews)["spec"], (json{{"token", "token"}, {"audiences", {"crowdsurf"}}}))
      << "a token for others is none";
}

TEST_F(TokenReviewTest, ATokenThatTheServerDoesNotKnowIsRefused) {
  json answer = Good();
  answer["status"]["authenticated"] = false;
  EXPECT_TRUE(absl::IsUnauthenticated(Review(answer).status()));
  answer["status"].erase("authenticated");
  EXPECT_TRUE(absl::IsUnauthenticated(Review(answer).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(Review(json::object()).status()));
}

// A server that knows no audiences leaves them out; a token that is good for others is not for us.
TEST_F(TokenReviewTest, ATokenThatIsNotSaidToBeForOurAudienceIsRefused) {
  for (const json& audiences : {json(), json::array(), json{"https://kubernetes.default.svc"}}) {
    json answer = Good();
    answer["status"]["audiences"] = audiences;
    EXPECT_TRUE(absl::IsUnauthenticated(Review(answer).status())) << audiences;
  }
  json answer = Good();
  answer["status"]["audiences"] = {"others", "crowdsurf"};
  EXPECT_TRUE(Review(answer).ok());
}

TEST_F(TokenReviewTest, APersonIsNoPod) {
  json answer = Good();
  answer["status"]["user"]["username"] = "system:admin";
  EXPECT_TRUE(absl::IsPermissionDenied(Review(answer).status()));
  for (const char* name :
       {"authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"}) {
    answer = Good();
    answer["status"]["user"]["extra"].erase(name);
    EXPECT_TRUE(absl::IsPermissionDenied(Review(answer).status())) << name;
  }
}

TEST_F(TokenReviewTest, AServerThatIsAwayHasSaidNothing) {
  EXPECT_TRUE(absl::IsUnavailable(Review(json::object(), 500).status()));
}

}  // namespace
}  // namespace crowdsurf::controller
