// The client's leases of data: what the agent grants in, and how far the trainer is out
// (docs/trainer-link.md, section 10).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/edge/clock.h"
#include "worker/edge/link/link_client_impl.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

// A pause ends sooner when the agent rings; so long it makes no step boundary.
constexpr Duration kPause = Milliseconds(100);

std::optional<uint64_t> NumberAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  const bool number = found != json.end() && found->is_number_unsigned();
  return number ? std::optional(found->get<uint64_t>()) : std::nullopt;
}

std::string Words(const DataSpec& data) {
  return absl::StrCat(data.samples, " samples in batches of ", data.unit);
}

StatusOr<LeasesGranted> ParseGranted(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const Status garbled = absl::DataLossError("the agent's answer has no leases");
  if (!json.is_object()) return garbled;
  LeasesGranted granted;
  const auto stream = NumberAt(json, "stream"), begin = NumberAt(json, "begin");
  const auto leases = json.find("leases"), closed = json.find("closed");
  if (!stream || !begin || leases == json.end() || !leases->is_array()) return garbled;
  granted.stream = *stream;
  granted.begin = *begin;
  granted.closed = closed != json.end() && *closed == true;
  for (const Json& lease : *leases) {
    const bool whole = lease.is_array() && lease.size() == 3 &&
                       std::all_of(lease.begin(), lease.end(),
                                   [](const Json& n) { return n.is_number_unsigned(); });
    if (!whole) return garbled;
    granted.leases.push_back({lease[0], lease[1], lease[2]});
  }
  if (const auto other = json.find("other"); other != json.end() && other->is_object()) {
    granted.other.samples = NumberAt(*other, "samples").value_or(0);
    granted.other.unit = static_cast<uint32_t>(NumberAt(*other, "unit").value_or(0));
  }
  return granted;
}

}  // namespace

// After each registration: a new agent knows of no data set.
Status LinkClient::Impl::DeclareData() {
  const Json body = {{"samples", data.samples}, {"unit", data.unit}};
  ASSIGN_OR_RETURN(const HttpReply reply, http->Do("POST", "/v1/data", body.dump(), kAnswer));
  RETURN_IF_ERROR(StatusOf(reply));
  leases_read.reset();
  TellLeases();
  return absl::OkStatus();
}

Status LinkClient::Impl::ReadGrants() {
  // Before the answer: what changes since is looked at again.
  const uint64_t version = control().leases_version.value.load(std::memory_order_acquire);
  if (leases_read == version) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HttpReply reply, http->Do("GET", "/v1/leases", "", kAnswer));
  RETURN_IF_ERROR(StatusOf(reply));
  ASSIGN_OR_RETURN(const LeasesGranted granted, ParseGranted(reply.body));
  if (!granted.other.none()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job's leases are of a data set of ", Words(granted.other), "; this worker has ",
        Words(data), ": it must be the same at all workers, and as in the checkpoint that the job ",
        "resumes from"));
  }
  leases_read = version;
  leases->Take(granted);
  TellLeases();
  return absl::OkStatus();
}

// At a step boundary, before a snapshot: how far the parameters are.
void LinkClient::Impl::TellLeases() {
  LinkControl& c = control();
  const StreamPosition at = leases->at();
  if (c.leases.stream.load(std::memory_order_relaxed) != at.stream)
    c.leases.stream.store(0, std::memory_order_release);
  c.leases.position.store(at.position, std::memory_order_relaxed);
  c.leases.stream.store(at.stream, std::memory_order_release);
}

void LinkClient::Impl::TellWaits(bool waits) {
  LinkControl& c = control();
  const uint64_t seen = leases_read.value_or(0);
  if (c.leases.waits.load(std::memory_order_relaxed) == (waits ? 1 : 0) &&
      c.leases.seen.load(std::memory_order_relaxed) == seen)
    return;
  c.leases.seen.store(seen, std::memory_order_relaxed);
  c.leases.waits.store(waits ? 1 : 0, std::memory_order_release);
  if (waits) RingBell(c.trainer_bell.value);
}

Status LinkClient::Draw(uint64_t samples, uint32_t unit) {
  Impl& self = *impl_;
  CHECK(self.training);
  CHECK(!self.leases);
  self.data = {.samples = samples, .unit = unit};
  self.leases.emplace(unit);
  Status declared = self.DeclareData();
  if (!declared.ok()) self.leases.reset();  // it may be tried again
  if (absl::IsNotFound(declared)) {
    return absl::FailedPreconditionError("the agent deals no leases: it is of an older release");
  }
  return declared;
}

StatusOr<std::optional<Lease>> LinkClient::NextBatch() {
  Impl& self = *impl_;
  CHECK(self.leases.has_value());
  const Status read = self.ReadGrants();
  // No connection: the next boundary makes another, and what is in hand is trained meanwhile.
  if (absl::IsUnavailable(read) || absl::IsDeadlineExceeded(read)) {
    self.lost = true;
  } else if (!read.ok()) {
    return read;
  }
  const auto batch = self.leases->Next();
  if (batch) self.TellWaits(false);
  return batch;
}

bool LinkClient::leases_closed() const { return impl_->leases && impl_->leases->closed(); }

StepOutcome LinkClient::Pause(std::span<float> params) {
  Impl& self = *impl_;
  CHECK(self.leases.has_value());
  const Time began = SteadyNow();
  const uint32_t rung = self.control().agent_bell.value.load(std::memory_order_acquire);
  StepOutcome outcome = self.Boundary(params, began);
  if (outcome.stop) return outcome;  // its acknowledgement is the last that the agent hears
  self.TellWaits(true);
  LinkControl& c = self.control();
  const bool granted = self.leases_read != c.leases_version.value.load(std::memory_order_acquire);
  if (!outcome.applied && !outcome.adopted && !granted) WaitBell(c.agent_bell.value, rung, kPause);
  return outcome;
}

}  // namespace crowdsurf::worker
