// The client's side of the agent: found, registered with, and again when it was restarted
// (link_client.h).
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/edge/clock.h"
#include "worker/edge/link/link_client_impl.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

void Sleep(Duration d) { std::this_thread::sleep_for(std::chrono::nanoseconds(d.nanoseconds())); }

std::string ErrorWords(const HttpReply& reply) {
  const Json json = Json::parse(reply.body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    return json["error"].get<std::string>();
  }
  return absl::StrCat("the agent answered ", reply.code);
}

std::string RegisterBody(const std::vector<LinkTensor>& tensors, const LinkClientOptions& options,
                         bool fresh) {
  Json list = Json::array();
  for (const LinkTensor& t : tensors) {
    Json json = {{"name", t.name},
                 {"dtype", LinkDtypeName(t.dtype)},
                 {"role", LinkRoleName(t.role)},
                 {"shape", t.shape}};
    for (const UnitAxis& axis : t.units) {
      json["units"].push_back({{"axis", axis.axis},
                               {"group", axis.group},
                               {"size", axis.unit_size},
                               {"blocks", axis.blocks}});
    }
    if (t.rows != 0) json.update({{"rows", t.rows}, {"cols", t.cols}});
    list.push_back(std::move(json));
  }
  const Json body = {{"tensors", list},
                     {"metrics", options.metrics},
                     {"fresh", fresh},
                     {"bells", true},
                     {"gradients", options.gradients}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Status LinkClient::Impl::StatusOf(const HttpReply& reply) {
  if (reply.code < 300) return absl::OkStatus();
  const std::string words = ErrorWords(reply);
  // As docs/trainer-link.md, section 3, lists the codes.
  if (reply.code == 409) return absl::FailedPreconditionError(words);
  if (reply.code == 507) return absl::ResourceExhaustedError(words);
  if (reply.code == 404) return absl::NotFoundError(words);
  return reply.code < 500 ? absl::InvalidArgumentError(words) : absl::UnavailableError(words);
}

StatusOr<std::unique_ptr<LinkClient>> LinkClient::Connect(std::string dir, Duration patience,
                                                          LinkClientOptions options) {
  CHECK_LE(options.metrics.size(), kLinkMetrics);
  const Time deadline = SteadyNow() + patience;
  while (true) {
    auto http = HttpClient::Connect(dir + "/agent.sock");
    if (http.ok()) {
      auto impl = std::make_unique<Impl>();
      impl->dir = std::move(dir);
      impl->options = std::move(options);
      impl->http = *std::move(http);
      return std::unique_ptr<LinkClient>(new LinkClient(std::move(impl)));
    }
    // Unavailable: it is not there yet. In local mode both start at once.
    if (SteadyNow() >= deadline || !absl::IsUnavailable(http.status())) {
      return absl::DeadlineExceededError(
          absl::StrCat("no agent answers: ", http.status().message()));
    }
    Sleep(Impl::kRetry);
  }
}

StatusOr<LinkRegistration> LinkClient::Impl::Register() {
  ASSIGN_OR_RETURN(
      const HttpReply reply,
      http->Do("POST", "/v1/register", RegisterBody(tensors, options, !training), kAnswer));
  RETURN_IF_ERROR(StatusOf(reply));
  const Json json = Json::parse(reply.body, nullptr, false);
  const auto text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string()
               ? json[key].get<std::string>()
               : std::string();
  };
  ASSIGN_OR_RETURN(LinkMapping opened, LinkMapping::Open(dir + "/tensors"));
  // What has the name must be what the agent answered for.
  if (text("schema") != opened.geometry().schema.hex()) {
    return absl::DataLossError("the agent's answer and its tensors file disagree");
  }
  // The same inode is the same memory: then the mapping in use stays.
  if (!mapping || mapping->inode() != opened.inode()) {
    mapping = std::move(opened);
    // A new file beside a living trainer: it has counted before.
    control().steps.value.store(steps, std::memory_order_relaxed);
    control().samples.value.store(samples, std::memory_order_relaxed);
  }
  epoch = control().agent_epoch.value.load(std::memory_order_acquire);
  beat_at = beat_moved = SteadyNow();
  lost = false;
  LinkRegistration registration;
  if (json.contains("seed") && json["seed"].is_number_unsigned()) {
    registration.seed = json["seed"].get<uint64_t>();
  }
  registration.job = text("job");
  registration.worker = text("worker");
  registration.elements = mapping->geometry().elements;
  registration.tensors = mapping->geometry().tensors;
  gradients = registration.gradients =
      json.contains("gradients") && json["gradients"].is_boolean() && json["gradients"].get<bool>();
  units = UnitsOf(mapping->geometry()).units();
  return registration;
}

// Reads the agent's epoch and beat; registers again with an agent that was restarted. Loads only,
// while all is well.
bool LinkClient::Impl::WatchAgent(Time now) {
  const uint64_t beat_now = control().agent_beat.value.load(std::memory_order_relaxed);
  if (beat_now != beat) {
    beat = beat_now;
    beat_at = beat_moved = now;
    // Our sign of life may have ended though the agent lives: one look a beat, twice a second.
    if (http && !http->alive()) lost = true;
  }
  const bool restarted = control().agent_epoch.value.load(std::memory_order_acquire) != epoch;
  if (!lost && !restarted && now - beat_at < options.agent_patience) return true;
  return Reconnect(now);
}

bool LinkClient::Impl::Reconnect(Time now) {
  if (http && !lost && control().agent_epoch.value.load(std::memory_order_acquire) == epoch &&
      http->alive()) {
    beat_at = now;  // slow, not gone: its end of the connection is open
    return true;
  }
  lost = true;
  const uint64_t there = control().agent_epoch.value.load(std::memory_order_acquire);
  if (now < reconnect_at && there == tried_epoch) return false;  // a new agent is tried at once
  tried_epoch = there;
  // At most ten tries a second, which the training loop pays for.
  reconnect_at = now + kSlice;
  auto connected = HttpClient::Connect(dir + "/agent.sock");
  if (!connected.ok()) return false;
  http = *std::move(connected);
  lost = !Register().ok() || (leases && !DeclareData().ok());
  return false;
}

Status LinkClient::Busy(Duration most) {
  ASSIGN_OR_RETURN(HttpClient http, HttpClient::Connect(impl_->dir + "/agent.sock"));
  const Json body = {{"seconds", most.seconds()}};
  ASSIGN_OR_RETURN(const HttpReply reply, http.Do("POST", "/v1/busy", body.dump(), Impl::kAnswer));
  return Impl::StatusOf(reply);
}

Status LinkClient::Leave(std::string_view reason, Duration patience) {
  ASSIGN_OR_RETURN(HttpClient http, HttpClient::Connect(impl_->dir + "/agent.sock"));
  const Json body = {{"reason", std::string(reason)}};
  ASSIGN_OR_RETURN(const HttpReply reply,
                   http.Do("POST", "/v1/leave",
                           body.dump(-1, ' ', false, Json::error_handler_t::replace), patience));
  return Impl::StatusOf(reply);
}

}  // namespace crowdsurf::worker
