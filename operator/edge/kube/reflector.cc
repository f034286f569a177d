#include "operator/edge/kube/reflector.h"

#include <chrono>
#include <utility>

#include "base/edge/clock.h"
#include "operator/core/job/json_path.h"
#include "operator/edge/reconcile/controller_metrics.h"
#include "operator/edge/reconcile/no_escape.h"

namespace crowdsurf::controller {
namespace {

constexpr uint64_t kWatchFor_s = 20;    // at least; of a notice of 30 s something must be left
constexpr uint64_t kWatchSpread_s = 6;  // so that the kinds' watches do not end together
constexpr Duration kAfterItsEnd = Seconds(5);  // of the end that the server promised

Counter& Restarts(MetricRegistry& metrics, const char* reason) {
  return metrics.AddCounter("crowdsurf_operator_watch_restarts_total",
                            "Watches begun anew, by reason.", {{"reason", reason}});
}

}  // namespace

Reflector::Reflector(KubeClient& client, Receiver receiver, Rng rng, Logger log,
                     MetricRegistry& metrics)
    : client_(client),
      receiver_(std::move(receiver)),
      rng_(rng),
      pace_(rng_.Fork("pace")),
      log_(log),
      exceptions_(ExceptionsOf(metrics, "watch")),
      short_(Restarts(metrics, "short")),
      expired_(Restarts(metrics, "expired")),
      failed_(Restarts(metrics, "failed")),
      garbled_(Restarts(metrics, "garbled")) {}

void Reflector::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Reflector::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Reflector::Sleep(Duration d) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::nanoseconds(d.nanoseconds()),
                 [this] { return stopping_.load(); });
}

Status Reflector::List(std::optional<std::string>& version) {
  receiver_.on_begin();
  auto listed = client_.List(receiver_.path, receiver_.on_item);
  if (!listed.ok()) return listed.status();
  // The mailbox is closed, so the cluster is stopping.
  if (!receiver_.on_list(*listed)) stopping_ = true;
  version = *std::move(listed);
  return absl::OkStatus();
}

Status Reflector::TakeEvent(WatchEvent event, std::string& version) {
  if (event.type == WatchEvent::Type::kExpired) {
    return absl::OutOfRangeError("the watch's version is gone");
  }
  if (event.type == WatchEvent::Type::kFailed) {
    return absl::UnavailableError("the watch failed: " + TextAt(event.object, "message"));
  }
  // Also of a bookmark: in a quiet watch the version would grow too old to go on from.
  version = event.resource_version;
  if (event.type != WatchEvent::Type::kBookmark && !receiver_.on_event(std::move(event))) {
    stopping_ = true;
  }
  return absl::OkStatus();
}

Status Reflector::WatchFrom(std::string& version) {
  WatchParser parser;
  std::vector<WatchEvent> events;
  Status ended = absl::OkStatus();
  const uint64_t seconds = kWatchFor_s + rng_.Uniform(kWatchSpread_s);
  const std::string path =
      absl::StrCat(receiver_.path, receiver_.path.find('?') == std::string::npos ? "?" : "&",
                   "watch=true&allowWatchBookmarks=true", "&timeoutSeconds=", seconds,
                   "&resourceVersion=", version);
  const auto take = [&](std::string_view bytes) {
    events.clear();
    parser.Feed(bytes, events);
    for (WatchEvent& event : events) {
      ended = TakeEvent(std::move(event), version);
      if (!ended.ok() || stopping_) return false;
    }
    // What such a line would have said is only in a list.
    if (parser.garbled() + parser.oversized() > 0)
      ended = absl::DataLossError("a line of the watch is no event, or too long for one");
    return ended.ok();
  };
  const Status status =
      client_.Watch(path, take, Seconds(static_cast<double>(seconds)) + kAfterItsEnd);
  return ended.ok() ? status : ended;
}

Counter& Reflector::Why(const Status& ended) {
  if (ended.ok()) return short_;
  if (absl::IsOutOfRange(ended) || absl::IsNotFound(ended)) return expired_;
  return absl::IsDataLoss(ended) ? garbled_ : failed_;
}

void Reflector::Run() {
  std::optional<std::string> version;  // nullopt: it has to be listed
  while (!stopping_) {
    const Time begun = SteadyNow();
    const bool lists = !version;
    const Status ended =
        NoEscape(&exceptions_, [&] { return lists ? List(version) : WatchFrom(*version); });
    if (stopping_) return;
    // The watch follows its list at once, and misses nothing.
    if (lists && ended.ok()) continue;
    const Time now = SteadyNow();
    const WatchPace::End how = ended.ok()       ? WatchPace::End::kServed
                               : client_.away() ? WatchPace::End::kUnanswered
                                                : WatchPace::End::kFailed;
    const Duration wait = pace_.After(how, begun, now);
    if (wait == Duration()) continue;
    // Gone versions, lost lines, and exceptions, which may have lost some. Not found: the kind
    // itself is gone, and may come back empty.
    if (!ended.ok() && !absl::IsUnavailable(ended)) version.reset();
    Why(ended).Add();
    log_.Warning(lists ? "list failed" : "watch ended",
                 {{"path", receiver_.path},
                  {"error", ended.ok() ? "as soon as it had begun" : ended.ToString()},
                  {"retry_seconds", wait.seconds()}});
    Sleep(wait);
  }
}

}  // namespace crowdsurf::controller
