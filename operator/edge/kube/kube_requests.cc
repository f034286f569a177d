#include "operator/edge/kube/kube_requests.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <vector>

#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {

httplib::Request GetRequest(const std::string& path) {
  httplib::Request request;
  request.method = "GET";
  request.path = path;
  return request;
}

httplib::Request JsonRequest(const char* method, const std::string& path,
                             const nlohmann::json& object, const char* type) {
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = JsonText(object);  // not in the time that a connection is judged by
  request.set_header("Content-Type", type);
  return request;
}

// As the API server names its kinds of patch. YAML has JSON as a part, so ours is sent as it is.
const char* ContentType(PatchType type) {
  switch (type) {
    case PatchType::kMerge:
      return "application/merge-patch+json";
    case PatchType::kStrategicMerge:
      return "application/strategic-merge-patch+json";
    case PatchType::kApply:
      return "application/apply-patch+yaml";
  }
  return "";
}

// All but the unreserved characters of RFC 3986, 2.3.
std::string PercentEncoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                       c == '_' || c == '~';
    out += plain ? std::string(1, c)
                 : absl::StrCat("%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return out;
}

// /api/v1/namespaces/SPACE/pods/NAME, /apis/GROUP/VERSION/nodes
std::string KindOfRequest(const std::string& method, const std::string& path) {
  const std::vector<std::string> words = absl::StrSplit(path.substr(0, path.find('?')), '/');
  size_t at = words.size() > 1 && words[1] == "apis" ? 4 : 3;
  if (at + 2 < words.size() && words[at] == "namespaces") at += 2;
  if (at >= words.size()) return absl::StrCat(method, " ", path);
  return absl::StrCat(method, " ", words[at], at + 1 < words.size() ? "/NAME" : "");
}

}  // namespace crowdsurf::controller
