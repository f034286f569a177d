#include "operator/edge/lease.h"

#include <algorithm>

#include "operator/core/rfc3339.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

std::chrono::nanoseconds Chrono(Duration d) { return std::chrono::nanoseconds(d.nanoseconds()); }

int64_t Nanoseconds(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::string TextIn(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// metav1.MicroTime wants six digits, always.
std::string MicroNow() {
  const int64_t now = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  std::string text = FormatInstant(WallTime::FromNanoseconds(now * 1000));
  if (text.find('.') == std::string::npos) text.insert(text.size() - 1, ".000000");
  return text;
}

}  // namespace

Lease::Lease(KubeClient& client, LeaseOptions options, Logger log, MetricRegistry& metrics)
    : client_(client),
      options_(std::move(options)),
      log_(log),
      gauge_(metrics.AddGauge("leader_election_master_status", "1 while this process leads.",
                              {{"name", options_.name}})) {}

void Lease::Start() {
  thread_ = std::thread([this] { Run(); });
}

bool Lease::leading() const { return Nanoseconds(Clock::now()) < leads_until_; }

std::string Lease::Path() const {
  return "/apis/coordination.k8s.io/v1/namespaces/" + options_.space + "/leases";
}

void Lease::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  if (!leading()) return;
  leads_until_ = 0;
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
  return client_.Replace(Path() + "/" + options_.name, lease).status();
}

void Lease::TryOnce() {
  const Clock::time_point begun = Clock::now();
  auto lease = client_.Get(Path() + "/" + options_.name);
  if (absl::IsNotFound(lease.status())) {
    lease = client_.Create(
        Path(), {{"metadata", {{"name", options_.name}}}, {"spec", {{"leaseTransitions", 0}}}});
  }
  if (!lease.ok()) {
    log_.Warning("lease not read", {{"why", lease.status().ToString()}});
    return;
  }
  const json spec =
      lease->contains("spec") && (*lease)["spec"].is_object() ? (*lease)["spec"] : json::object();
  const std::string holder = TextIn(spec, "holderIdentity");
  held_by_other_ = !holder.empty() && holder != options_.identity;
  if (held_by_other_) {
    leads_until_ = 0;
    const std::string renewal = holder + " " + TextIn(spec, "renewTime");
    if (renewal != seen_renewal_) {
      seen_renewal_ = renewal;
      seen_at_ = begun;
    }
    // By our own clock: clocks of other machines are not compared.
    if (begun < seen_at_ + Chrono(options_.duration)) return;
  }
  const bool led = leading();
  const Status written = Write(*std::move(lease), options_.identity);
  if (!written.ok()) {
    log_.Warning("lease not written", {{"why", written.ToString()}});
    return;
  }
  held_by_other_ = false;
  leads_until_ = Nanoseconds(begun + Chrono(options_.renew_deadline));
  if (!led) log_.Info("lease taken", {{"identity", options_.identity}});
}

void Lease::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    TryOnce();
    gauge_.Set(leading() ? 1 : 0);
    lock.lock();
    Clock::time_point next = Clock::now() + Chrono(options_.retry);
    if (held_by_other_) {
      next = std::clamp(seen_at_ + Chrono(options_.duration), Clock::now(), next);
    }
    wake_.wait_until(lock, next, [this] { return stopping_; });
  }
}

}  // namespace crowdsurf::controller
