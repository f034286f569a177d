// The endpoints of agent.sock (docs/trainer-link.md, section 3). They run on the listener's thread.
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/digest.h"
#include "worker/edge/link/link_server_impl.h"

namespace crowdsurf::worker {
namespace {

HttpReply JsonReply(int code, std::string body) {
  return {code, "application/json", std::move(body), {}, {}};
}
HttpReply Error(int code, std::string_view words) { return JsonReply(code, WriteError(words)); }
HttpReply Error(int code, const Status& status) {
  return Error(code, std::string(status.message()));
}

// The words of a trainer that has just started.
// The agent writes the trainer's words: the old trainer is gone, and the new one has no answer yet.
void ResetTrainerWords(LinkControl& c) {
  c.steps.value.store(0, std::memory_order_relaxed);
  c.samples.value.store(0, std::memory_order_relaxed);
  c.published.steps.store(0, std::memory_order_relaxed);
  c.published.samples.store(0, std::memory_order_relaxed);
  c.published.ticket.store(0, std::memory_order_release);
  c.filling.elements.store(0, std::memory_order_relaxed);
  c.filling.ticket.store(0, std::memory_order_release);
  c.applied.value.store(0, std::memory_order_release);
  c.stop_acknowledged.value.store(0, std::memory_order_relaxed);
  c.stall_ns.value.store(0, std::memory_order_relaxed);
  c.order.value.store(0, std::memory_order_relaxed);
  // It trains the whole model, and what was written for the old one is none of its.
  c.index_taken.value.store(c.index_version.value.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
  c.published.stream.store(0, std::memory_order_relaxed);
  c.published.position.store(0, std::memory_order_relaxed);
  c.leases.stream.store(0, std::memory_order_relaxed);
  c.leases.position.store(0, std::memory_order_relaxed);
  c.leases.seen.store(0, std::memory_order_relaxed);
  c.leases.waits.store(0, std::memory_order_release);
  c.published.gathered.store(0, std::memory_order_relaxed);
  c.gradient.gathered.store(0, std::memory_order_relaxed);
  c.gradient.shares.store(0, std::memory_order_relaxed);
  c.gradient.step.store(0, std::memory_order_release);
}

// NaN: nothing is known yet.
void ForgetProgress(LinkControl& c) {
  c.progress.loss.store(std::nan(""), std::memory_order_relaxed);
  for (auto& slot : c.metrics) slot.store(std::nan(""), std::memory_order_relaxed);
}

// The number behind `key` in the query, 0 where it is absent: of a sequence, a state that nobody
// asked for.
uint64_t NumberOf(const std::string& target, std::string_view key) {
  const size_t query = target.find('?');
  if (query == std::string::npos) return 0;
  for (size_t at = query; at != std::string::npos; at = target.find('&', at + 1)) {
    if (target.compare(at + 1, key.size(), key) != 0) continue;
    uint64_t n = 0;
    std::from_chars(target.data() + at + 1 + key.size(), target.data() + target.size(), n);
    return n;
  }
  return 0;
}

}  // namespace

std::optional<HttpReply> LinkServer::Impl::Handle(LinkListener::ConnectionId id,
                                                  HttpRequest&& request) {
  const std::string route =
      request.method + " " + request.target.substr(0, request.target.find('?'));
  if (route == "POST /v1/register") return Register(id, request.body);
  if (route == "GET /v1/state") return State();
  if (route == "PUT /v1/opaque") return TakeOpaque(request);
  if (route == "GET /v1/opaque") return GiveAdopted();
  if (route == "POST /v1/progress") {
    auto parsed = ParseProgress(request.body);
    if (!parsed.ok()) return Error(400, parsed.status());
    const std::lock_guard lock(mutex);
    told = *std::move(parsed);
    return JsonReply(200, "{}\n");
  }
  if (route == "GET /v1/notice") {
    const std::lock_guard lock(mutex);
    return JsonReply(200, WriteNotice(notice));
  }
  if (route == "POST /v1/busy") return DeclareBusy(request.body);
  if (route == "POST /v1/data") return DeclareData(request.body);
  if (route == "GET /v1/leases") {
    const std::lock_guard lock(mutex);
    return JsonReply(200, WriteLeases(leases));
  }
  if (route == "POST /v1/checkpoint") {
    const std::lock_guard lock(mutex);
    sink(link::CheckpointRequested{});
    return JsonReply(202, "{}\n");
  }
  if (route == "POST /v1/leave") {
    auto reason = ParseLeave(request.body);
    if (!reason.ok()) return Error(400, reason.status());
    const std::lock_guard lock(mutex);
    if (leave_connection) return Error(409, "a leave is under way");
    leave_connection = id;
    // The answer comes from LeaveDone, when the agent has left.
    sink(link::LeaveRequested{*std::move(reason)});
    return std::nullopt;
  }
  return Error(404, "no such endpoint: see docs/trainer-link.md");
}

HttpReply LinkServer::Impl::DeclareBusy(const std::string& body) {
  const auto seconds = ParseBusy(body);
  if (!seconds.ok()) return Error(400, seconds.status());
  const std::lock_guard lock(mutex);
  if (session == 0) return Error(409, "register first");
  sink(link::BusyDeclared{*seconds});
  return JsonReply(200, "{}\n");
}

HttpReply LinkServer::Impl::DeclareData(const std::string& body) {
  if (options.gradients)
    return Error(409,
                 "spec.averaging.what: Gradients deals no leases: let the trainer draw its own "
                 "samples (docs/gradients.md)");
  const auto spec = ParseData(body, options.seed);
  if (!spec.ok()) return Error(400, spec.status());
  const std::lock_guard lock(mutex);
  if (session == 0) return Error(409, "register first");
  sink(link::DataDeclared{*spec});
  return JsonReply(200, "{}\n");
}

void LinkServer::Impl::OnClosed(LinkListener::ConnectionId id) {
  const std::lock_guard lock(mutex);
  if (leave_connection == id) leave_connection.reset();
  if (session == 0 || session_connection != id) return;
  ScanWords();  // its last words: a trainer that acknowledges stop exits at once
  sink(link::TrainerGone{session});
  log.Info("trainer gone", {{"session", session}});
  session = 0;
}

HttpReply LinkServer::Impl::Register(LinkListener::ConnectionId id, const std::string& body) {
  auto request = ParseRegister(body);
  if (!request.ok()) {
    metrics.refused_invalid.Add();
    return Error(400, request.status());
  }
  auto geometry = LayOutLink(request->tensors, options.roles);
  if (!geometry.ok()) {
    metrics.refused_invalid.Add();
    return Error(400, geometry.status());
  }
  if (const Status units = CheckUnits(request->tensors); !units.ok()) {
    metrics.refused_invalid.Add();
    return Error(400, units);
  }
  if (options.gradients && !request->gradients) {
    metrics.refused_invalid.Add();
    return Error(400,
                 "spec.averaging.what: Gradients needs a trainer that hands over gradients, "
                 "and this one does not say \"gradients\": true (docs/gradients.md)");
  }
  const std::lock_guard lock(mutex);
  if (session != 0) {
    metrics.refused_busy.Add();
    return Error(409, "another trainer is connected: one trainer a worker");
  }
  if (const Status mapped_now = MapFor(*geometry); !mapped_now.ok()) {
    log.Error("trainer refused", {{"why", std::string(mapped_now.message())}});
    // 507, Insufficient Storage (RFC 4918): the folder has no room for the tensors.
    return Error(absl::IsFailedPrecondition(mapped_now)  ? 409
                 : absl::IsResourceExhausted(mapped_now) ? 507
                                                         : 500,
                 mapped_now);
  }
  session = ++sessions;
  session_connection = id;
  MakeStacks();
  BeginSession(*request);
  return JsonReply(
      200, WriteRegisterAnswer({session, options.job, options.worker, options.seed,
                                control().hold.value.load(std::memory_order_relaxed) != 0,
                                options.hang_after, options.gradients, &mapping->geometry()}));
}

Status LinkServer::Impl::CheckUnits(const std::vector<LinkTensor>& tensors) const {
  const bool any = std::any_of(tensors.begin(), tensors.end(),
                               [](const LinkTensor& tensor) { return !tensor.units.empty(); });
  if (any || !options.needs_units) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "spec.averaging.strategy: IST needs unit groups, and no tensor of this trainer has one: "
      "declare `units` (docs/trainer-link.md, section 8), or choose another strategy");
}

Status LinkServer::Impl::MapFor(const LinkGeometry& geometry) {
  if (mapping) {
    if (mapping->geometry().schema == geometry.schema) return absl::OkStatus();
    metrics.refused_schema.Add();
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker's link was made for other tensors (schema ",
        mapping->geometry().schema.brief(), ", ", mapping->geometry().elements, " elements; now ",
        geometry.schema.brief(), ", ", geometry.elements,
        "): all trainers of a job have one model, and a changed one needs a new worker"));
  }
  auto made = CreateMapping(geometry);
  if (!made.ok()) {
    if (absl::IsResourceExhausted(made.status())) metrics.refused_space.Add();
    return made.status();
  }
  mapping = *std::move(made);
  LinkControl& c = mapping->control();
  c.lr_scale.value.store(1.0, std::memory_order_relaxed);
  c.mode.overlap.store(static_cast<uint32_t>(overlap), std::memory_order_relaxed);
  c.share.value.store(share, std::memory_order_relaxed);
  c.stop.value.store(stop.load(std::memory_order_relaxed) ? 1 : 0, std::memory_order_relaxed);
  c.notice.deadline_ns.store(notice.deadline_unix_ns, std::memory_order_relaxed);
  c.notice.flag.store(notice.leaving ? 1 : 0, std::memory_order_relaxed);
  ForgetProgress(c);
  c.agent_epoch.value.store(1, std::memory_order_release);
  mapped.store(&*mapping, std::memory_order_release);
  changed.notify_all();
  return absl::OkStatus();
}

StatusOr<LinkMapping> LinkServer::Impl::CreateMapping(const LinkGeometry& geometry) {
  // The trainer sees it under its name when it is complete.
  constexpr char kTemporary[] = "tensors.new";
  ASSIGN_OR_RETURN(const OwnedFd file, folder.Create(kTemporary));
  auto made = LinkMapping::Create(file.get(), folder.PathOf("tensors"), geometry);
  const Status named = made.ok() ? folder.Rename(kTemporary, "tensors") : made.status();
  if (named.ok()) return made;
  folder.Remove(kTemporary);
  return named;
}

// A new one for each registration: what an earlier trainer holds open is not believed.
void LinkServer::Impl::MakeStacks() {
  auto made = folder.Create("stacks");
  // Trainers have users of their own. Without the file they say nothing, which harms nobody.
  const bool usable = made.ok() && ::fchmod(made->get(), 0666) == 0;
  stacks = usable ? *std::move(made) : OwnedFd();
}

void LinkServer::Impl::BeginSession(const RegisterRequest& request) {
  LinkControl& c = mapping->control();
  bells = request.bells;
  metric_names = request.metrics;
  // Those of the session before are not this one's: it is granted some once it has declared its
  // data.
  leases = {};
  c.leases_version.value.fetch_add(1, std::memory_order_release);
  if (request.fresh) {
    metrics.registered.Add();
    // A number asked of the dead trainer, a result made from its snapshot: neither is this one's.
    c.publish_wanted.value.store(0, std::memory_order_release);
    c.result_ready.ticket.store(0, std::memory_order_release);
    c.released.value.store(0, std::memory_order_release);
    c.wake_at.steps.store(0, std::memory_order_relaxed);
    c.wake_at.samples.store(0, std::memory_order_relaxed);
    // Numbers go on, so that an offer made to the dead one is never mistaken for a new one.
    const uint64_t sequence = adopt_sequence.load(std::memory_order_relaxed);
    c.adopt.request.store(sequence * 2, std::memory_order_release);
    c.adopted.value.store(sequence, std::memory_order_release);
    c.opaque_given.value.store(c.opaque_wanted.value.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
    ResetTrainerWords(c);
    ForgetProgress(c);
    told = {};
    seen = {};
    seen.adopted = sequence;
    c.hold.value.store(1, std::memory_order_release);
  } else {
    // It lost its connection or its agent, and kept its parameters: its words stand, nothing holds
    // it.
    metrics.continued.Add();
    c.hold.value.store(0, std::memory_order_release);
    // A result that it has not applied lies where this agent fetches the job's state next. Its
    // snapshot is done with; one without a result may be read yet.
    const uint64_t published = c.published.ticket.load(std::memory_order_acquire);
    const uint64_t ready = c.result_ready.ticket.exchange(0, std::memory_order_acq_rel);
    if (ready / 2 == published) RaiseTo(c.released.value, published);
  }
  const LinkGeometry& g = mapping->geometry();
  log.Info("trainer registered", {{"session", session},
                                  {"fresh", request.fresh},
                                  {"elements", g.elements},
                                  {"schema", g.schema.brief()}});
  sink(link::TrainerRegistered{session, g.schema, g.elements, request.fresh, g.tensors,
                               request.first});
}

HttpReply LinkServer::Impl::TakeOpaque(const HttpRequest& request) {
  // Without the mutex: the watcher must not wait while a gigabyte is hashed.
  const Digest hash = Sha256(request.upload->bytes());
  const std::lock_guard lock(mutex);
  // Also when it is given unasked.
  opaque = {request.upload, hash, NumberOf(request.target, "step=")};
  const uint64_t sequence = NumberOf(request.target, "sequence=");
  sink(link::OpaqueGiven{std::max<uint64_t>(1, sequence), *opaque});
  return JsonReply(200, "{\"sha256\":\"" + hash.hex() + "\"}\n");
}

HttpReply LinkServer::Impl::GiveAdopted() {
  const std::lock_guard lock(mutex);
  if (!adopt) return Error(404, "no trainer state was offered");
  HttpReply reply;
  reply.type = "application/octet-stream";
  reply.file = adopt->state;
  reply.headers["X-Sha256"] = adopt->hash.hex();
  return reply;
}

HttpReply LinkServer::Impl::State() {
  LinkStateAnswer answer;
  // It takes the mutex itself.
  answer.counters = ReadCounters();
  answer.job = options.job;
  answer.worker = options.worker;
  answer.roles = options.roles;
  const std::lock_guard lock(mutex);
  answer.notice = notice;
  if (const LinkMapping* m = map()) {
    const LinkControl& c = m->control();
    answer.geometry = &m->geometry();
    answer.hold = c.hold.value.load(std::memory_order_relaxed) != 0;
    answer.stop = c.stop.value.load(std::memory_order_relaxed) != 0;
    answer.averaging = c.job.averaging.load(std::memory_order_relaxed);
    answer.job_samples = c.job.samples.load(std::memory_order_relaxed);
  }
  return JsonReply(200, WriteState(answer));
}

}  // namespace crowdsurf::worker
