#include "operator/edge/kube/reflector.h"

#include <chrono>
#include <utility>

#include "base/backoff.h"
#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

constexpr Backoff kBackoff{
    .initial = Milliseconds(800), .most = Seconds(30), .factor = 2, .jitter = 0.5};
constexpr std::chrono::minutes kHealthy{
    2};  // of working after which a failure counts as the first again

Counter& Restarts(MetricRegistry& metrics, const char* reason) {
  return metrics.AddCounter("crowdsurf_operator_watch_restarts_total",
                            "Watches begun anew, by reason.", {{"reason", reason}});
}

}  // namespace

Reflector::Reflector(KubeClient& client, std::string path, Receiver receiver, Rng rng, Logger log,
                     MetricRegistry& metrics)
    : client_(client),
      path_(std::move(path)),
      receiver_(std::move(receiver)),
      rng_(rng),
      log_(log),
      expired_(Restarts(metrics, "expired")),
      failed_(Restarts(metrics, "failed")),
      garbled_(Restarts(metrics, "garbled")) {}

void Reflector::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Reflector::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

bool Reflector::Sleep(Duration d) {
  // In slices, so that Stop need not wake it: shutdown waits at most 50 ms for a sleeping
  // reflector.
  const auto until = steady_clock::now() + std::chrono::nanoseconds(d.nanoseconds());
  while (!stopping_ && steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return !stopping_;
}

Status Reflector::WatchFrom(std::string& resource_version) {
  WatchParser parser;
  std::vector<WatchEvent> events;
  Status ended = absl::OkStatus();
  const uint64_t seconds = 300 + rng_.Uniform(300);
  const std::string path =
      absl::StrCat(path_, path_.find('?') == std::string::npos ? "?" : "&",
                   "watch=true&allowWatchBookmarks=true", "&timeoutSeconds=", seconds,
                   "&resourceVersion=", resource_version);
  const Status status = client_.Watch(path, [&](std::string_view bytes) {
    parser.Feed(bytes, events);
    for (WatchEvent& event : events) {
      if (event.type == WatchEvent::Type::kExpired) {
        ended = absl::OutOfRangeError("the watch's version is gone");
      } else if (event.type == WatchEvent::Type::kFailed) {
        ended = absl::UnavailableError("the watch failed: " + TextAt(event.object, "message"));
      } else {
        resource_version = event.resource_version;
        if (event.type != WatchEvent::Type::kBookmark && !receiver_.on_event(std::move(event)))
          stopping_ = true;
      }
      if (!ended.ok() || stopping_) return false;
    }
    events.clear();
    // What such a line would have said is only in a list.
    if (parser.garbled() + parser.oversized() > 0)
      ended = absl::DataLossError("a line of the watch is no event, or too long for one");
    return ended.ok() && !stopping_;
  });
  return ended.ok() ? status : ended;
}

void Reflector::Run() {
  int failures = 0;
  auto since = steady_clock::now();
  const auto failed = [&](const Status& status, const char* what) {
    if (steady_clock::now() - since > kHealthy) failures = 0;
    (absl::IsDataLoss(status) ? garbled_ : failed_).Add();
    const Duration delay = kBackoff.Delay(failures++, rng_);
    log_.Warning(
        what, {{"path", path_}, {"error", status.ToString()}, {"retry_seconds", delay.seconds()}});
    const bool go_on = Sleep(delay);
    since = steady_clock::now();
    return go_on;
  };
  while (!stopping_) {
    StatusOr<KubeList> list = client_.List(path_);
    if (!list.ok()) {
      if (stopping_ || !failed(list.status(), "list failed")) return;
      continue;
    }
    std::string version = list->resource_version;
    if (!receiver_.on_list(*std::move(list))) return;
    for (Status status = absl::OkStatus(); !stopping_;) {
      status = WatchFrom(version);
      if (stopping_) return;
      if (absl::IsOutOfRange(status) || absl::IsNotFound(status)) {
        expired_.Add();
        break;  // list again; not found: the kind itself is gone, and may come back empty
      }
      if (!status.ok() && !failed(status, "watch failed")) return;
      if (absl::IsDataLoss(status)) break;
    }
  }
}

}  // namespace crowdsurf::controller
