#include "worker/edge/link_client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/digest.h"
#include "base/edge/clock.h"
#include "worker/edge/link_http.h"
#include "worker/edge/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

constexpr Duration kRetry = Milliseconds(20);   // between tries to reach an agent that is starting
constexpr Duration kSlice = Milliseconds(100);  // of a wait on the bell; between reconnections
constexpr Duration kAnswer = Seconds(30);  // for one request; making `tensors` clears 3 x the model
constexpr uint64_t kOpaqueMost = 1ULL << 32;  // of an answer with trainer state

void Pause(Duration d) { std::this_thread::sleep_for(std::chrono::nanoseconds(d.nanoseconds())); }

std::string ErrorWords(const HttpReply& reply) {
  const Json json = Json::parse(reply.body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    return json["error"].get<std::string>();
  }
  return absl::StrCat("the agent answered ", reply.code);
}

Status StatusOf(const HttpReply& reply) {
  if (reply.code < 300) return absl::OkStatus();
  const std::string words = ErrorWords(reply);
  if (reply.code == 409) return absl::FailedPreconditionError(words);
  if (reply.code == 507) return absl::ResourceExhaustedError(words);
  if (reply.code == 404) return absl::NotFoundError(words);
  return reply.code < 500 ? absl::InvalidArgumentError(words) : absl::UnavailableError(words);
}

std::string RegisterBody(const std::vector<LinkTensor>& tensors,
                         const std::vector<std::string>& metrics, bool fresh) {
  Json list = Json::array();
  for (const LinkTensor& t : tensors) {
    Json json = {
        {"name", t.name},   {"dtype", LinkDtypeName(t.dtype)}, {"role", LinkRoleName(t.role)},
        {"shape", t.shape}, {"group_in", t.group_in},          {"group_out", t.group_out}};
    if (t.rows != 0) json.update({{"rows", t.rows}, {"cols", t.cols}});
    list.push_back(std::move(json));
  }
  const Json body = {{"tensors", list}, {"metrics", metrics}, {"fresh", fresh}, {"bells", true}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Adds what the averaging changed: inbox - outbox, or the inbox itself where it holds a change. The
// inner loops have a fixed length so that they are vectorized at -O2.
void AddChange(std::span<float> params, std::span<const float> inbox, std::span<const float> outbox,
               bool inbox_is_change) {
  constexpr size_t kLane = 16;
  float* __restrict const p = params.data();
  const float* __restrict const in = inbox.data();
  const float* __restrict const out = outbox.data();
  const size_t whole = params.size() / kLane * kLane;
  if (inbox_is_change) {
    for (size_t i = 0; i < whole; i += kLane) {
      for (size_t k = 0; k < kLane; ++k) p[i + k] += in[i + k];
    }
  } else {
    for (size_t i = 0; i < whole; i += kLane) {
      for (size_t k = 0; k < kLane; ++k) p[i + k] += in[i + k] - out[i + k];
    }
  }
  for (size_t i = whole; i < params.size(); ++i) p[i] += inbox_is_change ? in[i] : in[i] - out[i];
}

}  // namespace

struct LinkClient::Impl {
  std::string dir;
  LinkClientOptions options;
  std::optional<HttpClient>
      http;  // the registration connection: its being open is our sign of life
  std::optional<LinkMapping> mapping;
  std::vector<LinkTensor> tensors;
  OpaqueSource opaque_source;
  OpaqueSink opaque_sink;

  bool training = false;  // has made a step or passed Start: has state of its own
  uint64_t epoch = 0;     // of the agent we are registered with
  uint64_t steps = 0, samples = 0;
  uint64_t rung_steps = 0, rung_samples = 0;  // marks already rung for
  uint64_t beat = 0;
  Time beat_at;       // when the beat last moved, or the agent was last found connected
  Time beat_moved;    // when the beat last moved
  Time reconnect_at;  // not before, unless another agent has come
  uint64_t tried_epoch = 0;
  bool lost = false;
  uint64_t voided = 0;  // a snapshot from before an adoption: its result is acknowledged, not added

  LinkControl& control() { return mapping->control(); }
  StatusOr<LinkRegistration> Register(bool fresh);
  // True when we are registered with the same agent as before the call.
  bool WatchAgent(Time now);
  bool Reconnect(Time now);
  bool OutboxFree();
  void Publish(uint64_t ticket, std::span<const float> params);
  bool Apply(std::span<float> params, StepOutcome& outcome);
  // The opaque state and the parameters of an adoption, both or neither.
  Status Adopt(std::span<float> params, bool with_opaque, StepOutcome& outcome);
  bool GiveOpaque();  // true when it was asked for
  void WaitForResult(std::span<float> params, StepOutcome& outcome);
  void RingMarks();
  void Count(uint64_t new_samples, double loss);
  void Finish(Time began, bool touched, StepOutcome& outcome);
};

LinkClient::LinkClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LinkClient::~LinkClient() = default;

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
    if (SteadyNow() >= deadline || !absl::IsUnavailable(http.status())) {
      return absl::DeadlineExceededError(
          absl::StrCat("no agent answers: ", http.status().message()));
    }
    Pause(kRetry);
  }
}

StatusOr<LinkRegistration> LinkClient::Register(std::vector<LinkTensor> tensors) {
  impl_->tensors = std::move(tensors);
  return impl_->Register(!impl_->training);
}

void LinkClient::SetOpaque(OpaqueSource source, OpaqueSink sink) {
  impl_->opaque_source = std::move(source);
  impl_->opaque_sink = std::move(sink);
}

StatusOr<LinkRegistration> LinkClient::Impl::Register(bool fresh) {
  ASSIGN_OR_RETURN(
      const HttpReply reply,
      http->Do("POST", "/v1/register", RegisterBody(tensors, options.metrics, fresh), kAnswer));
  RETURN_IF_ERROR(StatusOf(reply));
  const Json json = Json::parse(reply.body, nullptr, false);
  const auto text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string()
               ? json[key].get<std::string>()
               : std::string();
  };
  ASSIGN_OR_RETURN(LinkMapping opened, LinkMapping::Open(dir + "/tensors"));
  if (text("schema") != opened.geometry().schema.hex()) {
    return absl::DataLossError("the agent's answer and its tensors file disagree");
  }
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
  reconnect_at = now + kSlice;
  auto connected = HttpClient::Connect(dir + "/agent.sock");
  if (!connected.ok()) return false;
  http = *std::move(connected);
  lost = !Register(!training).ok();
  return false;
}

bool LinkClient::Impl::OutboxFree() {
  LinkControl& c = control();
  const uint64_t published = c.published.ticket.load(std::memory_order_relaxed);
  return c.released.value.load(std::memory_order_acquire) >= published ||
         c.applied.value.load(std::memory_order_relaxed) >= published;
}

void LinkClient::Impl::Publish(uint64_t ticket, std::span<const float> params) {
  LinkControl& c = control();
  std::copy(params.begin(), params.end(), mapping->outbox().begin());
  c.published.steps.store(steps, std::memory_order_relaxed);
  c.published.samples.store(samples, std::memory_order_relaxed);
  c.published.ticket.store(ticket, std::memory_order_release);
  RingBell(c.trainer_bell.value);
}

bool LinkClient::Impl::Apply(std::span<float> params, StepOutcome& outcome) {
  LinkControl& c = control();
  const uint64_t ready = c.result_ready.ticket.load(std::memory_order_acquire);
  const uint64_t ticket = ready / 2;
  if (ticket == 0 || ticket != c.published.ticket.load(std::memory_order_relaxed) ||
      ticket == c.applied.value.load(std::memory_order_relaxed)) {
    return false;
  }
  if (ticket != voided) {
    AddChange(params, mapping->inbox(static_cast<int>(ready % 2)), mapping->outbox(),
              c.mode.inbox_is_change.load(std::memory_order_relaxed) != 0);
    outcome.applied = true;
    outcome.averaging = c.result_ready.averaging.load(std::memory_order_relaxed);
  }
  c.applied.value.store(ticket, std::memory_order_release);
  RingBell(c.trainer_bell.value);
  return true;
}

Status LinkClient::Impl::Adopt(std::span<float> params, bool with_opaque, StepOutcome& outcome) {
  LinkControl& c = control();
  const uint64_t request = c.adopt.request.load(std::memory_order_acquire);
  if (request / 2 <= c.adopted.value.load(std::memory_order_relaxed)) return absl::OkStatus();
  if (with_opaque && c.adopt.has_opaque.load(std::memory_order_relaxed) != 0 && opaque_sink) {
    ASSIGN_OR_RETURN(HttpReply reply, http->Do("GET", "/v1/opaque", "", kAnswer, kOpaqueMost));
    RETURN_IF_ERROR(StatusOf(reply));
    if (Sha256(AsBytes(reply.body)).hex() != reply.headers["x-sha256"]) {
      return absl::DataLossError("the adopted trainer state does not match its hash");
    }
    RETURN_IF_ERROR(opaque_sink(AsBytes(reply.body)));
  }
  const auto inbox = mapping->inbox(static_cast<int>(request % 2));
  std::copy(inbox.begin(), inbox.end(), params.begin());
  outcome.adopted = true;
  outcome.averaging = c.adopt.averaging.load(std::memory_order_relaxed);
  // A result of the old parameters' snapshot must not be added to these.
  voided = c.published.ticket.load(std::memory_order_relaxed);
  c.adopted.value.store(request / 2, std::memory_order_release);
  RingBell(c.trainer_bell.value);
  return absl::OkStatus();
}

bool LinkClient::Impl::GiveOpaque() {
  LinkControl& c = control();
  const uint64_t wanted = c.opaque_wanted.value.load(std::memory_order_acquire);
  if (wanted == c.opaque_given.value.load(std::memory_order_relaxed)) return false;
  c.opaque_given.value.store(wanted, std::memory_order_release);  // once, also when it fails
  if (!opaque_source) return true;
  const Bytes state = opaque_source();
  const auto reply =
      http->Do("PUT", absl::StrCat("/v1/opaque?sequence=", wanted), AsString(state), kAnswer);
  if (!reply.ok()) lost = true;  // the next boundary connects again
  return true;
}

void LinkClient::Impl::WaitForResult(std::span<float> params, StepOutcome& outcome) {
  LinkControl& c = control();
  const uint64_t ticket = c.published.ticket.load(std::memory_order_relaxed);
  while (true) {
    const uint32_t rung = c.agent_bell.value.load(std::memory_order_acquire);
    // Released is read first: a result is stored before anything else releases its snapshot.
    const bool released = c.released.value.load(std::memory_order_acquire) >= ticket;
    if (Apply(params, outcome) || released) return;
    if (c.stop.value.load(std::memory_order_acquire) != 0) return;
    // A restarted agent has forgotten the snapshot, a frozen one must not freeze training. `c` may
    // be gone when this is false.
    const Time now = SteadyNow();
    if (!WatchAgent(now) || now - beat_moved >= options.agent_patience) return;
    WaitBell(c.agent_bell.value, rung, kSlice);
  }
}

void LinkClient::Impl::RingMarks() {
  LinkControl& c = control();
  const uint64_t at_steps = c.wake_at.steps.load(std::memory_order_acquire);
  const uint64_t at_samples = c.wake_at.samples.load(std::memory_order_relaxed);
  const bool steps_due = at_steps != 0 && steps >= at_steps && at_steps != rung_steps;
  const bool samples_due = at_samples != 0 && samples >= at_samples && at_samples != rung_samples;
  if (!steps_due && !samples_due) return;
  rung_steps = at_steps;
  rung_samples = at_samples;
  RingBell(c.trainer_bell.value);
}

void LinkClient::Impl::Count(uint64_t new_samples, double loss) {
  LinkControl& c = control();
  training = true;
  ++steps;
  samples += new_samples;
  c.samples.value.store(samples, std::memory_order_relaxed);
  c.steps.value.store(steps, std::memory_order_release);
  if (std::isfinite(loss)) {
    c.progress.loss.store(loss, std::memory_order_relaxed);
    c.progress.sequence.store(steps, std::memory_order_relaxed);
  }
}

void LinkClient::Impl::Finish(Time began, bool touched, StepOutcome& outcome) {
  LinkControl& c = control();
  outcome.stop = c.stop.value.load(std::memory_order_acquire) != 0;
  outcome.leaving = c.notice.flag.load(std::memory_order_acquire) != 0;
  outcome.agent_lost = lost;
  outcome.lr_scale = c.lr_scale.value.load(std::memory_order_relaxed);
  outcome.job_samples = c.job.samples.load(std::memory_order_relaxed);
  if (!touched) return;
  outcome.stall = SteadyNow() - began;
  c.stall_ns.value.fetch_add(static_cast<uint64_t>(outcome.stall.nanoseconds()),
                             std::memory_order_relaxed);
}

StatusOr<StepOutcome> LinkClient::Start(std::span<float> params, Duration patience) {
  Impl& self = *impl_;
  CHECK(self.mapping.has_value());
  CHECK_EQ(params.size(), self.mapping->geometry().elements);
  const Time began = SteadyNow();
  Time alive = began;
  StepOutcome outcome;
  while (true) {
    LinkControl& c = self.control();
    const uint32_t rung = c.agent_bell.value.load(std::memory_order_acquire);
    if (c.hold.value.load(std::memory_order_acquire) == 0 ||
        c.stop.value.load(std::memory_order_acquire) != 0) {
      RETURN_IF_ERROR(self.Adopt(params, true, outcome));
      break;
    }
    const Time now = SteadyNow();
    self.WatchAgent(now);
    if (!self.lost && now - self.beat_moved < self.options.agent_patience) alive = now;
    if (now - alive > patience) {
      return absl::UnavailableError(absl::StrCat("the agent at ", self.dir, " has gone"));
    }
    // Through the mapping of now: a restarted agent without the old file makes a new one.
    WaitBell(self.control().agent_bell.value, rung, self.lost ? kRetry : kSlice);
  }
  self.training = true;
  self.Finish(began, false, outcome);
  return outcome;
}

StepOutcome LinkClient::StepDone(uint64_t samples, double loss, std::span<float> params) {
  Impl& self = *impl_;
  CHECK(self.mapping.has_value());
  CHECK_EQ(params.size(), self.mapping->geometry().elements);
  const Time began = SteadyNow();
  self.Count(samples, loss);
  self.WatchAgent(began);
  LinkControl& c = self.control();
  StepOutcome outcome;
  // Wanted before result: a result that is out before the next request must be in before the next
  // snapshot overwrites the outbox it belongs to.
  const uint64_t wanted = c.publish_wanted.value.load(std::memory_order_acquire);
  bool touched = self.Apply(params, outcome);
  if (c.adopt.request.load(std::memory_order_relaxed) / 2 >
      c.adopted.value.load(std::memory_order_relaxed)) {
    const Status adopted = self.Adopt(params, true, outcome);
    // No connection: tried again at the next boundary. A bad opaque state: the parameters alone.
    self.lost = absl::IsUnavailable(adopted) || absl::IsDeadlineExceeded(adopted);
    if (!adopted.ok() && !self.lost) self.Adopt(params, false, outcome).IgnoreError();
    touched = true;
  }
  const uint64_t published = c.published.ticket.load(std::memory_order_relaxed);
  const uint32_t cadence = c.mode.cadence_steps.load(std::memory_order_relaxed);
  const bool due = wanted > published || (cadence != 0 && self.steps % cadence == 0);
  if (due && self.OutboxFree()) {
    self.Publish(std::max(wanted, published + 1), params);
    outcome.published = touched = true;
    if (c.mode.overlap.load(std::memory_order_relaxed) ==
        static_cast<uint32_t>(LinkOverlap::kBlocking)) {
      self.WaitForResult(params, outcome);
    }
  }
  touched |= self.GiveOpaque();  // not through `c`: the wait may have mapped another file
  self.RingMarks();
  self.Finish(began, touched, outcome);
  return outcome;
}

void LinkClient::SetMetric(size_t index, double value) {
  CHECK_LT(index, impl_->options.metrics.size());
  LinkControl& c = impl_->control();
  c.metrics[index].store(value, std::memory_order_relaxed);
  c.progress.sequence.fetch_add(1, std::memory_order_relaxed);
}

void LinkClient::AcknowledgeStop() {
  LinkControl& c = impl_->control();
  c.stop_acknowledged.value.store(1, std::memory_order_release);
  RingBell(c.trainer_bell.value);
}

Status LinkClient::Leave(std::string_view reason, Duration patience) {
  ASSIGN_OR_RETURN(HttpClient http, HttpClient::Connect(impl_->dir + "/agent.sock"));
  const Json body = {{"reason", std::string(reason)}};
  ASSIGN_OR_RETURN(const HttpReply reply,
                   http.Do("POST", "/v1/leave",
                           body.dump(-1, ' ', false, Json::error_handler_t::replace), patience));
  return StatusOf(reply);
}

}  // namespace crowdsurf::worker
