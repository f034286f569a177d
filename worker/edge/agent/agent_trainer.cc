// Agent: what its trainer does, and what it starts from.
#include <absl/strings/str_cat.h>

#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/overloaded.h"
#include "worker/core/peer/peer.h"
#include "worker/edge/agent/agent_impl.h"
#include "worker/edge/agent/table_marks.h"
#include "worker/edge/agent/tensor_views.h"

namespace crowdsurf::worker {
namespace {

// A trainer whose snapshots are refused so often in a row gives its seat back: as the steward it
// would have no average to write. After the pause it comes as a newcomer, with the job's state.
constexpr int kMaxBadSnapshots = 3;
constexpr Duration kBadSnapshotPause = Seconds(10);

}  // namespace

void Agent::Impl::OnLinkEvent(Time now, WallTime wall, const LinkEvent& event) {
  std::visit(
      Overloaded{[&](const link::TrainerRegistered& e) { OnRegistered(now, wall, e); },
                 [&](const link::TrainerGone&) {
                   plane_->KeepLent();  // the next one writes its snapshot unasked
                   clock_.OnGivenUp();
                   trainer_.reset();
                   data_.reset();
                   stepping_.reset();
                   write_after_step_.reset();
                   seat_again_ = Time::Infinite();
                   pulse_.OnGone();
                   // One that still waits is not known to the core.
                   const bool waited = std::exchange(waits_for_restore_, std::nullopt).has_value();
                   if (!waited) FeedLocal(now, wall, TrainerGone{});
                   EndWhenJobIsOver(now);
                 },
                 [&](const link::Published& e) {
                   bad_snapshot_.clear();
                   bad_snapshots_ = 0;
                   gave_seat_back_ = false;
                   clock_.OnPublished(AveragingId(e.number));
                   FeedLocal(now, wall, ForCore(e));
                   TellUnits();
                 },
                 [&](const link::Filled& e) {
                   FeedLocal(now, wall, Filled{ForCore(e.snapshot), e.elements});
                 },
                 [&](const link::PublishRefused& e) { OnPublishRefused(now, wall, e); },
                 [&](const link::Applied&) {
                   TellUnits();
                   OnStepTaken(now, wall);
                 },
                 [&](const link::Adopted& e) {
                   log_.Info("state adopted", {{"sequence", e.sequence}});
                   OnStepTaken(now, wall);
                 },
                 [&](const link::ShareGathered&) { FeedLocal(now, wall, ReadProgress()); },
                 [&](const link::StepsReached&) { FeedLocal(now, wall, ReadProgress()); },
                 [&](const link::DataDeclared& e) {
                   log_.Info("the trainer draws leases",
                             {{"samples", e.spec.samples}, {"unit", e.spec.unit}});
                   data_ = e.spec;
                   if (!waits_for_restore_) FeedLocal(now, wall, DataDeclared{e.spec});
                 },
                 [&](const link::BusyDeclared& e) {
                   log_.Info("the trainer may be busy", {{"seconds", e.seconds}});
                   pulse_.OnBusy(now + Seconds(e.seconds));
                 },
                 [&](const link::LeasesWaited&) { FeedLocal(now, wall, ReadProgress()); },
                 [&](const link::OpaqueGiven& e) {
                   state_->OnOpaque(now, e.opaque);
                   // Of another step than the average that was copied: the next one goes with it.
                   const bool other = checkpoint_ && AveragesGradients(config_.averaging) &&
                                      AveragingId(e.opaque.step) != checkpoint_->info.averaging;
                   if (!other || checkpoint_->final_model) SubmitCheckpoint();
                 },
                 [&](const link::StopAcknowledged&) {
                   stop_acknowledged_ = true;
                   EndWhenJobIsOver(now);
                 },
                 [&](const link::CheckpointRequested&) { Do(now, wall, WriteCheckpoint{false}); },
                 [&](const link::LeaveRequested&) {
                   StartLeaving(now, wall, Seconds(options_.grace_period));
                 }},
      event);
}

void Agent::Impl::OnRegistered(Time now, WallTime wall, const link::TrainerRegistered& event) {
  log_.Info("trainer registered", {{"elements", event.elements}, {"fresh", event.fresh}});
  trainer_ = Trainer{event.schema, event.elements, event.tensors, event.gives_first};
  data_.reset();  // it declares its data after each registration
  // One that goes on beside a new agent may have units of the agent before.
  units_.reset();
  told_units_ = AveragingId();
  if (!event.fresh) units_ = TellTrainerUnits{};
  stop_acknowledged_ = false;
  bad_snapshot_.clear();
  bad_snapshots_ = 0;
  gave_seat_back_ = false;
  seat_again_ = Time::Infinite();
  counters_ = {};
  rate_ = {};
  progress_at_ = now;
  pulse_.OnRegistered(now);
  const bool first = !std::exchange(restore_tried_, true);
  if (first && event.fresh && StartRestore(event)) restoring_ = true;
  if (!restoring_) return FeedRegistered(now, wall, event);
  waits_for_restore_ = event;
}

void Agent::Impl::FeedRegistered(Time now, WallTime wall, const link::TrainerRegistered& event) {
  // Of a trainer that goes on: its last snapshot is in an average, or may be.
  const auto published = static_cast<double>(link_->counters().published_samples);
  TrainerRegistered trainer = ForCore();
  trainer.fresh = event.fresh;
  trainer.counted = event.fresh ? 0.0 : published;
  if (!event.fresh) NameStep(trainer);
  FeedTrainer(now, wall, std::move(trainer));
  if (!event.fresh) OnStepTaken(now, wall);
}

// The core forgets with a trainer what it draws its leases from.
void Agent::Impl::FeedTrainer(Time now, WallTime wall, TrainerRegistered trainer) {
  FeedLocal(now, wall, std::move(trainer));
  if (data_) FeedLocal(now, wall, DataDeclared{*data_});
}

// Gradients: the parameters of a trainer that goes on lie in inbox 0, and it says of which step.
void Agent::Impl::NameStep(TrainerRegistered& trainer) {
  if (!AveragesGradients(config_.averaging)) return;
  trainer.step = AveragingId(link_->counters().step);
  if (trainer.step.is_zero()) return;
  trainer.job_samples = link_->job_samples();
  stepping_ = Deliver{.averaging = trainer.step,
                      .region = Region::kInboxA,
                      .samples = 0,
                      .job_samples = trainer.job_samples,
                      .root = {},
                      .parts = StateParts::kTrainersStep};
}

// Gradients: the trainer has left its parameters in inbox 0.
void Agent::Impl::OnStepTaken(Time now, WallTime wall) {
  if (!stepping_ || !trainer_) return;
  delivered_ = std::exchange(stepping_, std::nullopt);
  mixed_.reset();
  mixes_ = false;
  // One that waits for its opaque state begins again, with this step.
  if (checkpoint_ && !checkpoint_->final_model) {
    checkpoint_.reset();
    const Time until = checkpoint_wait_until_;
    Do(now, wall, WriteCheckpoint{.final_model = false});
    checkpoint_wait_until_ = until;
  }
  CheckpointWhenDue(now, wall, peer_->Summarize());
  if (const auto write = std::exchange(write_after_step_, std::nullopt)) Do(now, wall, *write);
  DescribeAverage(now, wall, *delivered_);
}

Published Agent::Impl::ForCore(const link::Published& published) const {
  return {.averaging = AveragingId(published.number),
          .samples = static_cast<double>(published.samples),
          .step = published.steps,
          .units = published.units_taken ? told_units_ : AveragingId(),
          .leases = published.leases,
          .gathered = static_cast<double>(published.gathered)};
}

TrainerRegistered Agent::Impl::ForCore() const {
  return {.schema = trainer_->schema,
          .elements = trainer_->elements,
          .tensors = ViewsOf(trainer_->tensors),
          .units = UnitsOf(trainer_->tensors),
          .marks = MarksOf(trainer_->tensors),
          .gives_first = trainer_->gives_first};
}

// The trainer keeps its values; the others average without it.
void Agent::Impl::OnPublishRefused(Time now, WallTime wall, const link::PublishRefused& refused) {
  metrics_.refused_snapshots.Add();
  clock_.OnGivenUp();
  std::string tensor;
  if (trainer_) {
    for (const LinkTensor& t : trainer_->tensors) {
      const uint64_t first = t.offset / sizeof(float);
      if (t.shared() && refused.element >= first && refused.element - first < t.elements())
        tensor = t.name;
    }
  }
  log_.Warning("snapshot refused: not finite",
               {{"averaging", refused.number}, {"tensor", tensor}, {"element", refused.element}});
  bad_snapshot_ = absl::StrCat("has NaN or infinity in its parameters (tensor ", tensor,
                               "): they are refused, the others train on without it");
  FeedLocal(now, wall, PublishRefused{AveragingId(refused.number)});
  const PeerSummary summary = peer_->Summarize();
  const bool alone = !summary.view || summary.view->members < 2;  // nobody else would go on
  if (++bad_snapshots_ < kMaxBadSnapshots || alone || leaving_ || stop_raised_) return;
  bad_snapshots_ = 0;
  gave_seat_back_ = true;
  seat_again_ = now + kBadSnapshotPause;
  log_.Warning("no snapshot is finite: the seat is given back for a while",
               {{"seconds", kBadSnapshotPause.seconds()}});
  FeedLocal(now, wall, TrainerGone{});
}

void Agent::Impl::TakeSeatAgain(Time now, WallTime wall) {
  seat_again_ = Time::Infinite();
  if (!trainer_ || leaving_ || stop_raised_) return;
  TrainerRegistered trainer = ForCore();
  trainer.counted = static_cast<double>(link_->counters().samples);
  NameStep(trainer);
  FeedTrainer(now, wall, std::move(trainer));
  OnStepTaken(now, wall);
}

bool Agent::Impl::StartRestore(const link::TrainerRegistered& event) {
  if (!checkpoints_) return false;
  const std::span<float> inbox = link_->inbox(0);
  plane_->Overwritten(Region::kInboxA);
  return slow_->Run([this, event, inbox]() -> HostLoop::Closure {
    std::optional<Restored> restored;
    auto found = checkpoints_->Restore(
        {.job = options_.job, .schema = event.schema, .elements = event.elements}, inbox,
        [this](uint64_t bytes) { return link_->MakeRoom(bytes); });
    if (found.ok()) {
      const CheckpointInfo& info = found->info;
      StateValues state{.average = inbox};
      if (found->velocity != nullptr) state.velocity = *found->velocity;
      const StateManifest manifest =
          StateExchange::Describe(state, info.averaging, info.job_samples, info.schema);
      log_.Info("checkpoint restored",
                {{"averaging", info.averaging.value()}, {"path", found->path}});
      restored = Restored{info, manifest, std::move(found->opaque), std::move(found->velocity)};
    } else if (!absl::IsNotFound(found.status())) {
      log_.Warning("no checkpoint restored", {{"error", found.status().ToString()}});
    }
    return [this, restored = std::move(restored)](Time now, WallTime wall) {
      OnRestored(now, wall, restored);
    };
  });
}

// The core decides what it is worth.
void Agent::Impl::OnRestored(Time now, WallTime wall, std::optional<Restored> restored) {
  restoring_ = false;
  const auto event = std::exchange(waits_for_restore_, std::nullopt);
  if (!event) return;  // its trainer is gone
  if (restored && event->fresh) {
    const CheckpointInfo& info = restored->info;
    restored_opaque_ = std::move(restored->opaque);
    const Digest content = state_->Offer(0, std::move(restored->manifest));
    delivered_ = Deliver{.averaging = info.averaging,
                         .region = Region::kInboxA,
                         .samples = 0,
                         .job_samples = info.job_samples,
                         .root = info.committed,
                         .parts = restored->velocity == nullptr ? StateParts::kAverage
                                                                : StateParts::kAverageAndVelocity,
                         .ledger = info.ledger};
    outer_.SetVelocity(restored->velocity);
    FeedLocal(now, wall,
              RestoredCheckpoint{.averaging = info.averaging,
                                 .job_samples = info.job_samples,
                                 .root = content,
                                 .job_seconds = info.job_seconds,
                                 .ledger = info.ledger});
  }
  FeedRegistered(now, wall, *event);
}

bool Agent::Impl::HashOpaque(const std::shared_ptr<const HeldState>& state, uint64_t number) {
  return slow_->Run([this, state, number] {
    const Digest hash = Sha256(state->bytes());
    return [this, number, hash](Time now, WallTime wall) {
      state_->OnOpaqueHashed(now, number, hash);
      OnState(now, wall);
    };
  });
}

}  // namespace crowdsurf::worker
