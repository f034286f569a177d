#include "operator/core/observe/token_look.h"

#include <absl/strings/escaping.h>

#include <nlohmann/json.hpp>

#include "operator/core/job/json_path.h"
#include "operator/core/job/ownership.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr Duration kLag = Seconds(300);  // of clocks, as certificates have it

bool IsFor(const json& claims, const std::string& audience) {
  const json* aud = Member(&claims, "aud");
  if (aud == nullptr) return false;
  if (aud->is_string()) return aud->get_ref<const std::string&>() == audience;
  if (!aud->is_array()) return false;
  for (const json& one : *aud) {
    if (one.is_string() && one.get_ref<const std::string&>() == audience) return true;
  }
  return false;
}

bool IsOver(const json& claims, WallTime now) {
  const json* until = Member(&claims, "exp");
  if (until == nullptr || !until->is_number()) return true;  // pods' tokens end
  return until->get<double>() < (now - kLag).seconds();
}

}  // namespace

StatusOr<TokenPod> LookAtToken(const std::string& token, const std::string& audience,
                               WallTime now) {
  const auto refuse = [](const char* why) {
    return absl::UnauthenticatedError(absl::StrCat("the token ", why));
  };
  const size_t first = token.find('.'), last = token.rfind('.');
  const bool three = first != std::string::npos && first != last &&
                     token.find('.', first + 1) == last && last + 1 < token.size();
  std::string text;
  if (!three || token.size() > kMaxToken ||
      !absl::WebSafeBase64Unescape(token.substr(first + 1, last - first - 1), &text)) {
    return refuse("is no JWT");
  }
  const json claims = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!claims.is_object()) return refuse("is no JWT");
  if (!IsFor(claims, audience)) return refuse("is not for this audience");
  if (IsOver(claims, now)) return refuse("is over");
  // A claim's name has a dot in it.
  const TokenPod pod{TextUnder(claims, "/kubernetes.io/namespace"),
                     TextUnder(claims, "/kubernetes.io/pod/name"),
                     TextUnder(claims, "/kubernetes.io/pod/uid"), TextUnder(claims, "/iss")};
  if (!IsObjectName(pod.space) || !IsObjectName(pod.name) || pod.uid.empty()) {
    return absl::PermissionDeniedError("the token is not a pod's");
  }
  return pod;
}

}  // namespace crowdsurf::controller
