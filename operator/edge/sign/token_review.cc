#include "operator/edge/sign/token_review.h"

#include <nlohmann/json.hpp>

#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr std::string_view kAccount = "system:serviceaccount:";  // and NAMESPACE:NAME

}  // namespace

StatusOr<TokenPod> ReviewPodToken(KubeClient& client, const std::string& token) {
  // Only for our audience: a token that was made for others must not serve here.
  const auto review =
      client.Create("/apis/authentication.k8s.io/v1/tokenreviews",
                    {{"spec", {{"token", token}, {"audiences", {kAgentAudience}}}}});
  if (!review.ok()) return absl::UnavailableError(review.status().message());
  const json::json_pointer verdict("/status/authenticated");
  if (!review->contains(verdict) || (*review)[verdict] != true) {
    return absl::UnauthenticatedError("the API server does not know this token");
  }
  // A server that does not know audiences leaves them out, and then the token may be for anybody.
  bool ours = false;
  Each(*review, "status.audiences", [&](const json& one) { ours = ours || one == kAgentAudience; });
  if (!ours) return absl::UnauthenticatedError("the API server does not say that it is for us");
  const std::string user = TextUnder(*review, "/status/user/username");
  TokenPod pod;
  // In a JSON pointer ~1 stands for a slash (RFC 6901).
  pod.name = TextUnder(*review, "/status/user/extra/authentication.kubernetes.io~1pod-name/0");
  pod.uid = TextUnder(*review, "/status/user/extra/authentication.kubernetes.io~1pod-uid/0");
  if (user.rfind(kAccount, 0) != 0 || pod.name.empty() || pod.uid.empty()) {
    return absl::PermissionDeniedError("the token is not a pod's");
  }
  pod.space = user.substr(kAccount.size(), user.find(':', kAccount.size()) - kAccount.size());
  return pod;
}

}  // namespace crowdsurf::controller
