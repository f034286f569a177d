#include "worker/edge/link/link_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "worker/edge/link/link_server_impl.h"

namespace crowdsurf::worker {
namespace {

constexpr long kTmpfs = 0x01021994, kRamfs = static_cast<long>(0x858458f6);  // statfs(2)

Status CheckDirectory(const LinkServerOptions& options, const LinkFolder& folder) {
  struct statfs fs {};
  if (::fstatfs(folder.fd(), &fs) != 0) {
    return absl::InternalError(
        absl::StrCat("CROWDSURF_DIR ", options.dir, ": ", std::strerror(errno)));
  }
  if (options.require_memory && fs.f_type != kTmpfs && fs.f_type != kRamfs) {
    return absl::FailedPreconditionError(
        absl::StrCat("CROWDSURF_DIR ", options.dir,
                     " is not in memory: it must be a tmpfs (emptyDir with medium: Memory)"));
  }
  return absl::OkStatus();
}

}  // namespace

LinkControl& LinkServer::Impl::control() const {
  const LinkMapping* m = map();
  CHECK(m != nullptr);
  return m->control();
}

StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(LinkServerOptions options, Sink sink,
                                                        Logger log, MetricRegistry& metrics) {
  ASSIGN_OR_RETURN(LinkFolder folder, LinkFolder::Open(options.dir));
  RETURN_IF_ERROR(CheckDirectory(options, folder));
  auto impl =
      std::make_unique<Impl>(std::move(options), std::move(folder), std::move(sink), log, metrics);
  Impl* raw = impl.get();
  LinkListenerOptions listen;
  listen.folder = &raw->folder;
  listen.upload_path = "/v1/opaque";
  listen.max_upload = raw->options.max_opaque_bytes;
  // The mutex is held until the old file is open: a trainer that reconnects at once waits for it.
  const std::lock_guard lock(raw->mutex);
  auto listener = LinkListener::Start(
      std::move(listen),
      [raw](LinkListener::ConnectionId id, HttpRequest&& r) {
        return raw->Handle(id, std::move(r));
      },
      [raw](LinkListener::ConnectionId id) { raw->OnClosed(id); }, metrics);
  RETURN_IF_ERROR(listener.status());
  raw->listener = *std::move(listener);
  const Status opened = raw->OpenExisting();
  raw->watcher = std::thread([raw] { raw->Watch(); });
  if (!opened.ok()) log.Warning("link file set aside", {{"why", std::string(opened.message())}});
  return std::unique_ptr<LinkServer>(new LinkServer(std::move(impl)));
}

LinkServer::LinkServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LinkServer::~LinkServer() {
  // First its thread, which calls into this. The watcher sleeps on `changed` or on the bell.
  impl_->listener.reset();
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  if (impl_->map() != nullptr) RingBell(impl_->control().trainer_bell.value);
  impl_->watcher.join();
}

// An earlier agent of this worker left its file: same inode, so a living trainer's mapping stays
// good.
Status LinkServer::Impl::OpenExisting() {
  auto file = folder.OpenOwn("tensors");
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  auto opened =
      file.ok() ? LinkMapping::Open(file->get(), folder.PathOf("tensors")) : file.status();
  if (!opened.ok()) {
    folder.Rename("tensors", "tensors.bad").IgnoreError();
    metrics.set_aside.Add();
    return opened.status();
  }
  mapping = *std::move(opened);
  LinkControl& c = mapping->control();
  const uint64_t published = c.published.ticket.load(std::memory_order_acquire);
  const uint64_t adopted = c.adopted.value.load(std::memory_order_acquire);
  const uint64_t offered = c.adopt.request.load(std::memory_order_acquire) / 2;
  const uint64_t wanted = c.publish_wanted.value.load(std::memory_order_acquire);
  // What the earlier agent had asked for died with it. What it had delivered stands until the
  // trainer registers.
  c.publish_wanted.value.store(published, std::memory_order_relaxed);
  c.released.value.store(published, std::memory_order_release);
  c.adopt.request.store(adopted * 2, std::memory_order_release);
  c.opaque_wanted.value.store(c.opaque_given.value.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  c.wake_at.steps.store(0, std::memory_order_relaxed);
  c.wake_at.samples.store(0, std::memory_order_relaxed);
  c.mode.overlap.store(static_cast<uint32_t>(overlap), std::memory_order_relaxed);
  c.share.value.store(share, std::memory_order_relaxed);
  c.agent_epoch.value.fetch_add(1, std::memory_order_release);
  // The trainer may be in the middle of what was offered, and say so later: the next offer has a
  // number of its own.
  adopt_sequence.store(std::max(adopted, offered), std::memory_order_relaxed);
  tickets = std::max(published, wanted);
  seen.published = published;
  seen.applied = c.applied.value.load(std::memory_order_acquire);
  seen.adopted = adopted;
  seen.shares = c.gradient.shares.load(std::memory_order_acquire);
  mapped.store(&*mapping, std::memory_order_release);
  RingBell(c.agent_bell.value);
  return absl::OkStatus();
}

void LinkServer::RequestPublish(uint64_t number) {
  LinkControl& c = impl_->control();
  // With a cadence the trainer counts tickets up by itself.
  const uint64_t published = c.published.ticket.load(std::memory_order_acquire);
  const uint64_t ticket = impl_->tickets = std::max(impl_->tickets, published) + 1;
  // Before the trainer can see the ticket, so the watcher knows it when it is published.
  impl_->asked_number.store(number, std::memory_order_relaxed);
  impl_->asked_ticket.store(ticket, std::memory_order_release);
  c.publish_wanted.value.store(ticket, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

std::span<const float> LinkServer::outbox() const { return impl_->map()->outbox(); }
std::span<float> LinkServer::inbox(int which) { return impl_->map()->inbox(which); }
std::span<const float> LinkServer::inbox(int which) const { return impl_->map()->inbox(which); }

uint64_t LinkServer::Impl::TicketOf(uint64_t number) const {
  if (asked_number.load(std::memory_order_relaxed) == number) {
    return asked_ticket.load(std::memory_order_acquire);
  }
  return control().mode.cadence_steps.load(std::memory_order_relaxed) != 0 ? number : 0;
}

void LinkServer::Deliver(uint64_t number, int which) {
  CHECK(which == 0 || which == 1);
  LinkControl& c = impl_->control();
  const uint64_t ticket = impl_->TicketOf(number);
  // The number first: who has seen the ticket below reads the number that belongs to it.
  c.result_ready.averaging.store(number, std::memory_order_relaxed);
  // One word is the flip: it names the ticket and the inbox.
  c.result_ready.ticket.store(ticket * 2 + static_cast<uint64_t>(which), std::memory_order_release);
  RingBell(c.agent_bell.value);
}

void LinkServer::ReleaseOutbox(uint64_t number) {
  LinkControl& c = impl_->control();
  RaiseTo(c.released.value, impl_->TicketOf(number));
  RingBell(c.agent_bell.value);
}

void LinkServer::LetStart() {
  LinkControl& c = impl_->control();
  c.hold.value.store(0, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

StatusOr<std::unique_ptr<HeldState>> LinkServer::MakeRoom(uint64_t bytes) const {
  return HeldState::Make(impl_->folder, bytes);
}

uint64_t LinkServer::OfferAdoption(int which, uint64_t averaging,
                                   const std::optional<HeldOpaque>& opaque) {
  CHECK(which == 0 || which == 1);
  LinkControl& c = impl_->control();
  if (opaque) {
    const std::lock_guard lock(impl_->mutex);
    impl_->adopt = opaque;
  }
  // The opaque state is in its place by now: a trainer that sees the offer asks for it at once.
  const uint64_t sequence = impl_->adopt_sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  c.adopt.averaging.store(averaging, std::memory_order_relaxed);
  c.adopt.has_opaque.store(opaque ? 1 : 0, std::memory_order_relaxed);
  c.adopt.request.store(sequence * 2 + static_cast<uint64_t>(which), std::memory_order_release);
  // After the offer: a trainer that is let go sees it.
  c.hold.value.store(0, std::memory_order_release);
  RingBell(c.agent_bell.value);
  return sequence;
}

void LinkServer::RequestOpaque() {
  LinkControl& c = impl_->control();
  // A count: the trainer answers once for all that was asked before it looked.
  c.opaque_wanted.value.fetch_add(1, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

std::optional<HeldOpaque> LinkServer::opaque() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->opaque;
}

std::string LinkServer::Stacks() const {
  const std::lock_guard lock(impl_->mutex);
  struct stat info {};
  if (!impl_->stacks.valid() || ::fstat(impl_->stacks.get(), &info) != 0) return {};
  // The trainer's file may be of any length, and may become shorter meanwhile.
  std::string text(std::min<size_t>(static_cast<size_t>(info.st_size), kMaxStacks), '\0');
  const ssize_t got = ::pread(impl_->stacks.get(), text.data(), text.size(),
                              info.st_size - static_cast<off_t>(text.size()));
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return TextTail(text, kMaxStacks);
}

void LinkServer::RaiseStop() {
  impl_->stop.store(true, std::memory_order_relaxed);
  if (impl_->map() == nullptr) return;
  LinkControl& c = impl_->control();
  c.stop.value.store(1, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

void LinkServer::SetNotice(bool leaving, int64_t deadline_unix_ns, std::string_view reason) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->notice = {leaving, deadline_unix_ns, std::string(reason)};
  }
  // Remembered for a trainer that registers later (MapFor).
  if (impl_->map() == nullptr) return;
  LinkControl& c = impl_->control();
  c.notice.deadline_ns.store(deadline_unix_ns, std::memory_order_relaxed);
  c.notice.flag.store(leaving ? 1 : 0, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

LinkOverlap LinkOverlapOf(const AveragingConfig& config) {
  return OverlapOf(config) == Overlap::kBlocking ? LinkOverlap::kBlocking : LinkOverlap::kDelayed;
}

void LinkServer::SetMode(LinkOverlap overlap, bool inbox_is_change, uint32_t cadence_steps) {
  const std::lock_guard lock(impl_->mutex);
  impl_->overlap = overlap;
  if (!impl_->mapping) return;
  LinkControl& c = impl_->control();
  c.mode.overlap.store(static_cast<uint32_t>(overlap), std::memory_order_relaxed);
  c.mode.inbox_is_change.store(inbox_is_change ? 1 : 0, std::memory_order_relaxed);
  c.mode.cadence_steps.store(cadence_steps, std::memory_order_relaxed);
}

void LinkServer::SetLrScale(double scale) {
  if (impl_->map() == nullptr) return;
  impl_->control().lr_scale.value.store(scale, std::memory_order_relaxed);
}

void LinkServer::SetShare(uint64_t samples) {
  const std::lock_guard lock(impl_->mutex);
  impl_->share = samples;
  if (!impl_->mapping) return;
  LinkControl& c = impl_->control();
  c.share.value.store(samples, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

void LinkServer::SetJob(double samples, uint64_t averaging, uint64_t epoch, uint64_t members) {
  if (impl_->map() == nullptr) return;
  LinkControl& c = impl_->control();
  c.job.samples.store(samples, std::memory_order_relaxed);
  c.job.averaging.store(averaging, std::memory_order_relaxed);
  c.job.epoch.store(epoch, std::memory_order_relaxed);
  c.job.members.store(members, std::memory_order_relaxed);
}

void LinkServer::WakeAt(uint64_t steps, uint64_t samples) {
  if (impl_->map() == nullptr) return;
  LinkControl& c = impl_->control();
  c.wake_at.samples.store(samples, std::memory_order_relaxed);
  c.wake_at.steps.store(steps, std::memory_order_release);
  RingBell(c.trainer_bell.value);  // the mark may be behind already: look again
}

bool LinkServer::SetIndexSets(ByteView encoded) {
  const std::span<uint8_t> region = impl_->map()->index_sets();
  LinkControl& c = impl_->control();
  const uint64_t version = c.index_version.value.load(std::memory_order_relaxed);
  if (encoded.size() > region.size()) return false;
  // The trainer may be copying the earlier ones just now.
  if (c.index_taken.value.load(std::memory_order_acquire) != version) return false;
  const auto rest = std::copy(encoded.begin(), encoded.end(), region.begin());
  std::fill(rest, region.end(), uint8_t{0});
  c.index_version.value.fetch_add(1, std::memory_order_release);
  RingBell(c.agent_bell.value);
  return true;
}

void LinkServer::SetLeases(const LeasesGranted& granted) {
  const std::lock_guard lock(impl_->mutex);
  impl_->leases = granted;
  impl_->seen.waited = false;  // a trainer that waits on says so again
  if (!impl_->mapping) return;
  LinkControl& c = impl_->control();
  c.leases_version.value.fetch_add(1, std::memory_order_release);
  RingBell(c.agent_bell.value);
}

void LinkServer::LeaveDone() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->leave_connection) return;
  impl_->listener->Reply(*impl_->leave_connection, {200, "application/json", "{}\n", {}, {}});
  impl_->leave_connection.reset();
}

bool LinkServer::mapped() const { return impl_->map() != nullptr; }
const LinkGeometry& LinkServer::geometry() const { return impl_->map()->geometry(); }
double LinkServer::job_samples() const {
  return impl_->control().job.samples.load(std::memory_order_relaxed);
}
LinkCounters LinkServer::counters() const { return impl_->ReadCounters(); }

void RaiseTo(std::atomic<uint64_t>& word, uint64_t value) {
  // The host's thread and the watcher both raise `released`: neither may lower it.
  uint64_t now = word.load(std::memory_order_relaxed);
  while (now < value && !word.compare_exchange_weak(now, value, std::memory_order_release)) {
  }
}

StreamProgress ReadLeases(const LinkControl& c) {
  StreamProgress progress;
  const bool waits = c.leases.waits.load(std::memory_order_acquire) != 0;
  // It may wait by leases that have been replaced meanwhile.
  progress.waits = waits && c.leases.seen.load(std::memory_order_relaxed) ==
                                c.leases_version.value.load(std::memory_order_relaxed);
  progress.at.stream = c.leases.stream.load(std::memory_order_acquire);
  progress.at.position = c.leases.position.load(std::memory_order_acquire);
  // The trainer went on to another stream in between: it says so again.
  if (c.leases.stream.load(std::memory_order_acquire) != progress.at.stream) return {};
  return progress;
}

LinkCounters LinkServer::Impl::ReadCounters() {
  LinkCounters out;
  out.loss = std::nan("");
  const std::lock_guard lock(mutex);
  out.connected = session != 0;
  if (map() == nullptr) return out;
  const LinkControl& c = control();
  out.steps = c.steps.value.load(std::memory_order_relaxed);
  out.samples = c.samples.value.load(std::memory_order_relaxed);
  out.published = c.published.ticket.load(std::memory_order_acquire);
  out.applied = c.applied.value.load(std::memory_order_acquire);
  out.published_samples = c.published.samples.load(std::memory_order_relaxed);
  out.leases = ReadLeases(c);
  out.step = c.gradient.step.load(std::memory_order_acquire);
  out.gathered = c.gradient.gathered.load(std::memory_order_acquire);
  // A step was taken in between: what it has gathered since, it says when its share is there.
  if (c.gradient.step.load(std::memory_order_acquire) != out.step) out.gathered = 0;
  const uint64_t wanted = c.share.value.load(std::memory_order_relaxed);
  const bool has_share = wanted > 0 && out.gathered >= wanted;
  const bool blocking = c.mode.overlap.load(std::memory_order_relaxed) ==
                        static_cast<uint32_t>(LinkOverlap::kBlocking);
  const bool answered = out.applied >= out.published ||
                        c.released.value.load(std::memory_order_acquire) >= out.published;
  out.waits_for_agent = c.hold.value.load(std::memory_order_acquire) != 0 ||
                        (blocking && !answered) || out.leases.waits || has_share;
  out.stall_seconds = static_cast<double>(c.stall_ns.value.load(std::memory_order_relaxed)) * 1e-9;
  out.order = c.order.value.load(std::memory_order_relaxed);
  out.loss = c.progress.loss.load(std::memory_order_relaxed);
  // A trainer that writes the slots overrides what was told by POST /v1/progress.
  out.metrics = told.metrics;
  if (std::isnan(out.loss) && told.loss) out.loss = *told.loss;
  for (size_t i = 0; i < metric_names.size(); ++i) {
    const double v = c.metrics[i].load(std::memory_order_relaxed);
    if (!std::isnan(v)) out.metrics[metric_names[i]] = v;
  }
  return out;
}

}  // namespace crowdsurf::worker
