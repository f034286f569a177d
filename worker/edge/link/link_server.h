// Link server: the agent's side of the trainer link (docs/trainer-link.md).
//
// Purpose: owns $CROWDSURF_DIR/{tensors,stacks,agent.sock} (link_folder.h), speaks the small HTTP
// API, watches the trainer's words without polling (futex), and turns what happens into LinkEvents.
// Owned by the agent's main loop, which calls every method from one thread; the sink is called from
// the link's own two threads and must not block or call back into the server. Spans are valid from
// the first TrainerRegistered (or from Start, when an earlier agent left a file) until destruction;
// the mapping never moves. Bounds: LinkServerOptions; 16 connections; refusals are counted by
// reason. Not portable: Linux.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/shard/lease.h"
#include "worker/core/view/averaging_config.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/link/link_event.h"

namespace crowdsurf::worker {

struct LinkServerOptions {
  std::string dir;                                       // $CROWDSURF_DIR; must exist
  std::string job, worker;                               // told to the trainer
  uint64_t seed = 0;                                     // job-wide: first parameters come from it
  std::vector<LinkRole> roles = {LinkRole::kParameter};  // spec.averaging.roles
  LinkOverlap overlap = LinkOverlap::kDelayed;
  // Of the trainer's opaque state. It lies in `dir`, whose room is the real bound: this one keeps
  // its list of parts small at a joiner (StateFetchOptions::max_opaque).
  uint64_t max_opaque_bytes = 64ULL << 30;
  bool gradients = false;    // only trainers that hand over gradients are taken
  bool needs_units = false;  // a trainer without unit groups is refused
  double hang_after = 0;  // told to the trainer: seconds without a step that are a hang; 0: never
  // The directory must be tmpfs or ramfs, or /dev/shm-like. Local mode without /dev/shm turns it
  // off.
  bool require_memory = true;
};

// What the link's mode word says for a job with that spec.
LinkOverlap LinkOverlapOf(const AveragingConfig& config);

class LinkServer {
 public:
  using Sink = std::function<void(LinkEvent)>;

  // Binds the socket (taking over a stale one), re-opens a `tensors` file that an earlier agent
  // left, starts the threads. Errors: NotFound (no dir), FailedPrecondition (not on memory; another
  // live agent owns the socket), DataLoss (a `tensors` that is no link: the file is set aside).
  static StatusOr<std::unique_ptr<LinkServer>> Start(LinkServerOptions options, Sink sink,
                                                     Logger log, MetricRegistry& metrics);
  ~LinkServer();  // closes the trainer's connection, joins the threads, removes the socket
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  // --- the averaging, in this order -------------------------------------------------------------
  // Asks for a snapshot for averaging `number` (any number; a registration withdraws what was asked
  // before it). Published or PublishRefused follows at the trainer's next step boundary, or at once
  // from one that is held and gives its first parameters; nothing at all while no trainer is there.
  // Pre: mapped, the outbox is released.
  void RequestPublish(uint64_t number);
  std::span<const float> outbox() const;  // stable between Published and ReleaseOutbox
  std::span<float> inbox(int which);      // 0 or 1; the caller decides which one is being made
  std::span<const float> inbox(int which) const;
  // One flip: the trainer adds inbox - outbox at its next boundary (Applied follows) and the outbox
  // counts as released once applied. Pre: `number` was published; inbox `which` is complete.
  void Deliver(uint64_t number, int which);
  // The averaging of `number` gave nothing (kept, aborted): the trainer goes on with its own
  // values.
  void ReleaseOutbox(uint64_t number);

  // --- joining -----------------------------------------------------------------------------------
  // Lets a held fresh trainer start from its own first parameters.
  void LetStart();
  // Has the trainer replace its parameters with inbox `which` (average `averaging`) and, when
  // given, its opaque state; lets it start. Returns the sequence that Adopted will carry.
  uint64_t OfferAdoption(int which, uint64_t averaging, const std::optional<HeldOpaque>& opaque);
  // Room for an opaque state to offer. ResourceExhausted, Internal.
  StatusOr<std::unique_ptr<HeldState>> MakeRoom(uint64_t bytes) const;
  // Asks the trainer for its opaque state (checkpoint, donor); OpaqueGiven follows.
  void RequestOpaque();
  // The last state given; nullopt: there is none.
  std::optional<HeldOpaque> opaque() const;

  // --- flags and numbers for the trainer. Before mapped() SetLrScale, SetJob and WakeAt do
  // nothing: set them on TrainerRegistered; stop, notice and the overlap are remembered.
  // --------------------------------------------------------
  void RaiseStop();
  void SetNotice(bool leaving, int64_t deadline_unix_ns, std::string_view reason);
  void SetMode(LinkOverlap overlap, bool inbox_is_change, uint32_t cadence_steps);
  void SetLrScale(double scale);
  // Gradients are averaged: samples that the trainer gathers of each step. Remembered, like the
  // overlap.
  void SetShare(uint64_t samples);
  void SetJob(double samples, uint64_t averaging, uint64_t epoch, uint64_t members);
  // Emits StepsReached once when the trainer passes either (0: never); replaces the earlier mark.
  void WakeAt(uint64_t steps, uint64_t samples);
  // Active index sets (IST): per unit group u32 group, u32 count, count u32 indices, ascending.
  // What an earlier call left behind them is cleared. False, and nothing is changed, when they do
  // not fit the region, or the trainer has not taken the earlier ones yet: call again later.
  bool SetIndexSets(ByteView encoded);
  // What GET /v1/leases answers from now on.
  void SetLeases(const LeasesGranted& granted);
  void LeaveDone();  // answers the waiting POST /v1/leave

  // Where the trainer was while it made no step, as it has written it: the end of its file
  // `stacks`, at most kMaxStacks bytes, valid UTF-8. Empty: its client writes none, or it steps.
  std::string Stacks() const;
  static constexpr size_t kMaxStacks = 8 << 10;

  bool mapped() const;
  const LinkGeometry& geometry() const;  // pre: mapped()
  LinkCounters counters() const;
  double job_samples() const;  // as told by SetJob, also by an agent before; pre: mapped()

 private:
  struct Impl;
  explicit LinkServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
