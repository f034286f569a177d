#include "operator/core/observe/api_errors.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxQuoted = 200;  // of an answer that is no Status object
constexpr Duration kUnsaidPause = Seconds(1);

}  // namespace

Status ApiError(int code, const std::string& body, const std::string& what) {
  // The API server explains itself in a Status object; a proxy before it answers in any text.
  const nlohmann::json said = nlohmann::json::parse(body, nullptr, false);
  std::string words = said.is_object() ? TextAt(said, "message") : std::string();
  if (words.empty()) {
    words = absl::StrCat("HTTP ", code, body.empty() ? "" : ": ", CutText(body, kMaxQuoted));
  }
  const std::string message = absl::StrCat(what, ": ", words);
  switch (code) {
    case 400:
    case 422:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message);
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    // A conflict of versions can be tried again. A name that exists already cannot.
    case 409:
      return said.is_object() && TextAt(said, "reason") == "AlreadyExists"
                 ? absl::AlreadyExistsError(message)
                 : absl::AbortedError(message);
    case 410:
      return absl::OutOfRangeError(message);
    default:
      return absl::UnavailableError(message);
  }
}

std::optional<Duration> PauseAskedFor(int code, const std::string& retry_after) {
  if (code != 429 && (code < 500 || retry_after.empty())) return std::nullopt;
  int64_t seconds = 0;
  const char* end = retry_after.data() + retry_after.size();
  const auto [stop, error] = std::from_chars(retry_after.data(), end, seconds);
  // A date, or none: clocks of other machines are not compared.
  if (error != std::errc() || stop != end || seconds < 0) return kUnsaidPause;
  seconds = std::min(seconds, static_cast<int64_t>(kMaxPause.seconds()));
  return std::max(kMinPause, Seconds(static_cast<double>(seconds)));
}

}  // namespace crowdsurf::controller
