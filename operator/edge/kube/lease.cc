#include "operator/edge/kube/lease.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "operator/core/job/rfc3339.h"
#include "operator/core/observe/watch_parser.h"
#include "operator/edge/reconcile/controller_metrics.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Between two tries to watch; doubles up to the Lease's duration while none succeeds.
constexpr Duration kFirstPause = Milliseconds(250);

std::chrono::nanoseconds Chrono(Duration d) { return std::chrono::nanoseconds(d.nanoseconds()); }

std::string TextIn(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// metav1.MicroTime wants six digits, always.
std::string MicroNow() {
  std::string text =
      FormatInstant(WallTime::FromNanoseconds(WallNow().nanoseconds() / 1000 * 1000));
  if (text.find('.') == std::string::npos) text.insert(text.size() - 1, ".000000");
  return text;
}

}  // namespace

Lease::Lease(KubeClient& client, KubeClient& watch_client, LeaseOptions options, Logger log,
             MetricRegistry& metrics)
    : client_(client),
      watch_client_(watch_client),
      options_(std::move(options)),
      log_(log),
      gauge_(metrics.AddGauge("leader_election_master_status", "1 while this process leads.",
                              {{"name", options_.name}})),
      exceptions_(ExceptionsOf(metrics, "lease")) {}

void Lease::Start() {
  thread_ = std::thread([this] { Run(); });
  watcher_ = std::thread([this] { Watch(); });
}

bool Lease::leading() const { return options_.clock() < leads_until_.load(); }

bool Lease::watching() const {
  const std::lock_guard lock(mutex_);
  return watching_;
}

std::string Lease::Path() const {
  return "/apis/coordination.k8s.io/v1/namespaces/" + options_.space + "/leases";
}

void Lease::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  // It was never started, or has stopped already.
  if (!thread_.joinable()) return;
  // Ends the watch, for which the join would else wait up to five minutes.
  watch_client_.Stop();
  watcher_.join();
  thread_.join();
  if (!leading()) return;
  leads_until_ = Time();
  gauge_.Set(0);
  auto lease = client_.Get(Path() + "/" + options_.name);
  if (!lease.ok()) return;
  const json& spec = (*lease)["spec"];
  if (!spec.is_object() || TextIn(spec, "holderIdentity") != options_.identity) return;
  if (const Status status = Write(*lease, ""); !status.ok()) {
    log_.Warning("lease not given back", {{"why", status.ToString()}});
  }
}

Status Lease::Write(json lease, const std::string& holder) {
  json& spec = lease["spec"];
  if (!spec.is_object()) spec = json::object();
  const bool mine = TextIn(spec, "holderIdentity") == options_.identity;
  const std::string now = MicroNow();
  if (!mine) {
    spec["acquireTime"] = now;
    const json count = spec.contains("leaseTransitions") ? spec["leaseTransitions"] : json(0);
    spec["leaseTransitions"] = count.is_number_integer() ? count.get<int>() + 1 : 1;
  }
  spec["holderIdentity"] = holder;
  spec["renewTime"] = now;
  // Given back: nobody has to wait.
  spec["leaseDurationSeconds"] = holder.empty() ? 1 : static_cast<int>(options_.duration.seconds());
  // With the resourceVersion that was read: of two who write at once the server refuses one.
  return client_.Replace(Path() + "/" + options_.name, lease).status();
}

// Notes who holds it and when that was last renewed. False while it is another's and not over.
bool Lease::MayTake(const json& lease, Time seen) {
  const auto it = lease.find("spec");
  const json spec = it != lease.end() && it->is_object() ? *it : json::object();
  const std::string holder = TextIn(spec, "holderIdentity");
  held_by_other_ = !holder.empty() && holder != options_.identity;
  if (!held_by_other_) return true;
  leads_until_ = Time();
  const std::string renewal = holder + " " + TextIn(spec, "renewTime");
  if (renewal != seen_renewal_) {
    seen_renewal_ = renewal;
    seen_at_ = seen;
  }
  // By our own clock: clocks of other machines are not compared.
  return seen >= seen_at_ + options_.duration;
}

void Lease::TryOnce() {
  // The other replicas can decide, so this one lets the Lease go.
  if (!options_.fit()) {
    log_.Warning("the deciding loop is stuck: the lease is not renewed");
    return;
  }
  const Time begun = options_.clock();
  auto lease = client_.Get(Path() + "/" + options_.name);
  if (absl::IsNotFound(lease.status())) {
    lease = client_.Create(
        Path(), {{"metadata", {{"name", options_.name}}}, {"spec", {{"leaseTransitions", 0}}}});
  }
  if (!lease.ok()) {
    log_.Warning("lease not read", {{"why", lease.status().ToString()}});
    return;
  }
  if (!MayTake(*lease, begun)) return;
  const bool led = leading();
  const Status written = Write(*std::move(lease), options_.identity);
  if (!written.ok()) {
    log_.Warning("lease not written", {{"why", written.ToString()}});
    return;
  }
  held_by_other_ = false;
  // Counted from before the request, because the others count from when it was written.
  leads_until_ = begun + options_.renew_deadline;
  if (!led) log_.Info("lease taken", {{"identity", options_.identity}});
}

void Lease::Renew() {
  try {
    TryOnce();
  } catch (const std::exception& error) {
    exceptions_.Add();
    log_.Error("lease not renewed: an exception", {{"why", ValidText(error.what())}});
  }
}

void Lease::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::optional<json> news = std::exchange(news_, std::nullopt);
    lock.unlock();
    if (!news || MayTake(*news, options_.clock())) Renew();
    gauge_.Set(leading() ? 1 : 0);
    lock.lock();
    Duration wait = options_.retry;
    const Duration left = seen_at_ + options_.duration - options_.clock();
    // The watch tells of renewals and of the end; else it is asked for. An expired one that could
    // not be taken is tried again no sooner than any other.
    if (held_by_other_ && left > Duration()) wait = watching_ ? left : std::min(left, wait);
    wake_.wait_for(lock, Chrono(wait), [this] { return stopping_ || (held_by_other_ && news_); });
  }
}

// Events of the one Lease; its first tells the state. Own renewals come too and are ignored.
Status Lease::WatchOnce(const std::string& path) {
  try {
    WatchParser parser;
    return watch_client_.Watch(path, [&](std::string_view bytes) {
      std::vector<WatchEvent> events;
      parser.Feed(bytes, events);
      for (WatchEvent& event : events) {
        if (event.type == WatchEvent::Type::kBookmark) continue;
        if (event.type > WatchEvent::Type::kBookmark) return false;  // expired or failed
        const std::lock_guard guard(mutex_);
        watching_ = true;
        news_ = std::move(event.object);
        if (event.type == WatchEvent::Type::kDeleted) news_ = json::object();  // nobody's
      }
      wake_.notify_all();
      return true;
    });
  } catch (const std::exception& error) {
    exceptions_.Add();
    return absl::InternalError(ValidText(error.what()));
  }
}

void Lease::Watch() {
  // Version 0: what the server's cache holds is told at once. Without a version the server first
  // brings its cache up to date, which fails in its first seconds.
  const std::string path = absl::StrCat(
      Path(), "?watch=true&resourceVersion=0&timeoutSeconds=300&fieldSelector=", "metadata.name%3D",
      options_.name);
  std::unique_lock lock(mutex_);
  Duration pause = kFirstPause;
  while (!stopping_) {
    lock.unlock();
    const Status ended = WatchOnce(path);
    lock.lock();
    // A watch that has told something worked, so the next failure is a first one.
    if (std::exchange(watching_, false)) pause = kFirstPause;
    wake_.notify_all();
    if (stopping_ || ended.ok()) continue;
    log_.Warning("lease not watched: asking for it instead", {{"why", ended.ToString()}});
    wake_.wait_for(lock, Chrono(pause), [this] { return stopping_; });
    pause = std::min(pause * 2, options_.duration);
  }
}

}  // namespace crowdsurf::controller
