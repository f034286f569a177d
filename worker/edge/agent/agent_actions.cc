// Agent: executes what the peer core decided.
#include <cmath>

#include "base/check.h"
#include "coordinator-free-dht/edge/dht_service.h"
#include "coordinator-free-dht/edge/relay.h"
#include "worker/core/peer/peer.h"
#include "worker/edge/agent/agent_impl.h"
#include "worker/edge/agent/table_marks.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kOpaqueForCheckpoint = Seconds(3);  // a trainer answers at its step boundary
constexpr Duration kStopPatience = Seconds(20);        // for the trainer, and the last checkpoint
// After the end of the job is known: others may still ask this agent for the view that says so.
constexpr Duration kLinger = Milliseconds(1500);

bool IsInbox(Region region) { return region == Region::kInboxA || region == Region::kInboxB; }

int InboxOf(Region region) {
  CHECK(IsInbox(region));
  return region == Region::kInboxA ? 0 : 1;
}

}  // namespace

void Agent::Impl::Execute(Time now, WallTime wall, const Actions& actions) {
  for (const Action& action : actions) {
    std::visit([&](const auto& one) { Do(now, wall, one); }, action);
  }
}

// ---- messages, DHT -----------------------------------------------------------------------------

void Agent::Impl::Do(Time, WallTime, const Send& action) {
  const std::string* endpoint = peer_endpoints_.Use(action.to);
  if (endpoint == nullptr) return;  // as if lost on the way
  // Refused: counted by why, and a message that is too long is a warning of the transport's.
  (void)grpc_->Send({action.to, *endpoint}, dht::ChannelKind::kWorker, action.body);
}

void Agent::Impl::Do(Time, WallTime, const Introduce& action) {
  // The plane has the same peers, and counts.
  (void)peer_endpoints_.Put(action.peer, action.peer_endpoint);
  sends_->Introduce(action.peer, action.tensor_endpoint);
  // A neighbour may ask for it on behalf of somebody who cannot dial it.
  grpc_->relay().Introduce(action.peer, action.peer_endpoint, dht::RelayPort::kPeer);
  grpc_->relay().Introduce(action.peer, action.tensor_endpoint, dht::RelayPort::kTensor);
}

void Agent::Impl::Do(Time now, WallTime wall, const PutRecord& action) {
  // The node counts a refusal by reason; the core puts again at its own rhythm.
  (void)dht_->Put(now, wall, dht::KeyOf(action.key), action.value, action.ttl);
}

void Agent::Impl::Do(Time now, WallTime wall, const WatchKey& action) {
  (void)dht_->Watch(
      now, wall, dht::KeyOf(action.key),
      [this, key = action.key](Time at, WallTime at_wall, const dht::WatchUpdate& update) {
        OnWatched(at, at_wall, key, update);
      });
}

void Agent::Impl::Do(Time now, WallTime wall, const UnwatchKey& action) {
  dht_->Unwatch(now, wall, dht::KeyOf(action.key));
}

// ---- chunks ------------------------------------------------------------------------------------

void Agent::Impl::Do(Time, WallTime, const OpenBuffers& action) {
  uint64_t values = 0;
  for (const ChunkSpan& chunk : action.chunks) values += chunk.count;
  if (values > 0 && IsInbox(action.to)) {  // a round that counts samples only writes nothing
    // What joiners were offered from this inbox goes with its first new value.
    state_->Retire(InboxOf(action.to));
    if (delivered_ && delivered_->region == action.to) delivered_.reset();
    if (mixed_ == action.to) mixed_.reset();
  }
  plane_->Open(action);
}

void Agent::Impl::Do(Time, WallTime, const CloseBuffers& action) { plane_->Close(action); }

void Agent::Impl::Do(Time now, WallTime, const Chunk& action) {
  const auto folded = plane_->Execute(now, action);
  if (!folded) return;
  // An input of its own, after the one in hand.
  inputs_.push_back(
      [this, done = *folded](Time at, Actions& out) { peer_->OnFolded(at, done, out); });
}

void Agent::Impl::Do(Time now, WallTime, const SpeakChunk& action) { plane_->Execute(now, action); }

// ---- trainer -----------------------------------------------------------------------------------

void Agent::Impl::Do(Time, WallTime, const RequestPublish& action) {
  if (!trainer_) return;
  // Inputs that wait to be sent from there are of the earlier snapshot.
  plane_->Overwritten(Region::kOutbox);
  clock_.OnAsked(action.averaging);
  link_->RequestPublish(action.averaging.value());
}

void Agent::Impl::Do(Time, WallTime, const TellShare& action) { link_->SetShare(action.samples); }

void Agent::Impl::Do(Time, WallTime, const WakeAt& action) {
  link_->WakeAt(action.steps, static_cast<uint64_t>(std::ceil(action.samples)));
}

void Agent::Impl::Do(Time, WallTime, const GrantLeases& action) {
  deals_leases_ |= action.granted.stream != 0;
  if (trainer_) link_->SetLeases(action.granted);
}

void Agent::Impl::Do(Time, WallTime, const LetStart&) { link_->LetStart(); }

void Agent::Impl::Do(Time now, WallTime wall, const Deliver& action) {
  metrics_.delivered.Add();
  clock_.OnDelivered(action.averaging);
  const int inbox = InboxOf(action.region);
  const bool steps = action.parts == StateParts::kTrainersStep;
  if (steps) Overwrite(Region::kInboxA);  // the trainer's parameters go there
  link_->Deliver(action.averaging.value(), inbox);
  const PeerSummary summary = peer_->Summarize();
  link_->SetJob(action.job_samples, action.averaging.value(),
                summary.view ? summary.view->epoch : 0, summary.view ? summary.view->members : 0);
  if (steps) {
    stepping_ = action;
    stepping_->region = Region::kInboxA;
    return;  // until the trainer has taken it (OnStepTaken)
  }
  delivered_ = action;
  mixed_.reset();
  mixes_ = false;
  // No outer optimizer made this average, so no velocity belongs to it.
  if (action.parts == StateParts::kAverage) outer_.SetVelocity(nullptr);
  CheckpointWhenDue(now, wall, summary);
  DescribeAverage(now, wall, *delivered_);
}

// For joiners, of what was delivered or offered; a region that is written again meanwhile has
// nothing to offer.
void Agent::Impl::DescribeAverage(Time now, WallTime wall, const Deliver& average) {
  const int inbox = InboxOf(average.region);
  if (average.hashes != nullptr && plane_->LiesAsDecided(average.region, average.hashes->key)) {
    const auto manifest = StateExchange::Describe(*average.hashes, average.averaging,
                                                  average.job_samples, trainer_->schema);
    if (manifest) {
      const Digest content = state_->Offer(inbox, *manifest);
      return FeedLocal(now, wall, StateHashed{.averaging = average.averaging, .root = content});
    }
  }
  const std::span<const float> values = std::as_const(*link_).inbox(inbox);
  // Shared with the thread that hashes it, which may outlive its use here.
  const HeldVelocity velocity =
      average.parts == StateParts::kAverageAndVelocity ? outer_.velocity() : nullptr;
  const bool taken = slow_->Run([this, inbox, values, velocity, writes = state_->writes(inbox),
                                 number = average.averaging, samples = average.job_samples,
                                 schema = trainer_->schema]() -> HostLoop::Closure {
    StateValues state{.average = values};
    if (velocity != nullptr) state.velocity = *velocity;
    const StateManifest manifest = StateExchange::Describe(state, number, samples, schema);
    return [this, inbox, writes, manifest](Time at, WallTime at_wall) {
      Digest content;
      // Equal counts: the inbox holds what was hashed.
      if (state_->writes(inbox) == writes) content = state_->Offer(inbox, manifest);
      FeedLocal(at, at_wall, StateHashed{.averaging = manifest.averaging, .root = content});
    };
  });
  if (!taken) FeedLocal(now, wall, StateHashed{.averaging = average.averaging, .root = {}});
}

// Not as an average that was delivered: a checkpoint, or the model, is never made of it.
void Agent::Impl::Do(Time now, WallTime wall, const OfferState& action) {
  if (!trainer_) return;
  link_->RequestOpaque();  // joiners get it with the parameters, before the first step
  DescribeAverage(now, wall,
                  {.averaging = action.averaging,
                   .region = Region::kInboxA,
                   .samples = 0,
                   .job_samples = 0,
                   .root = {}});
}

void Agent::Impl::Do(Time now, WallTime wall, const MoveTrainer& action) {
  if (!trainer_) return;
  link_->Deliver(action.averaging.value(), InboxOf(action.region));
  const PeerSummary summary = peer_->Summarize();
  link_->SetJob(action.job_samples, action.averaging.value(),
                summary.view ? summary.view->epoch : 0, summary.view ? summary.view->members : 0);
  delivered_ = Deliver{.averaging = action.averaging,
                       .region = Region::kInboxA,
                       .samples = 0,
                       .job_samples = action.job_samples,
                       .root = {},
                       .parts = action.parts};
  mixed_.reset();
  mixes_ = false;
  DescribeAverage(now, wall, *delivered_);
}

// Who governs the view writes the job's checkpoints; two stewards for a moment write twice.
void Agent::Impl::CheckpointWhenDue(Time now, WallTime wall, const PeerSummary& summary) {
  if (checkpoint_at_.unset()) checkpoint_at_ = now + Seconds(config_.checkpoint_seconds);
  if (!summary.steward || now < checkpoint_at_) return;
  checkpoint_at_ = now + Seconds(config_.checkpoint_seconds);
  Do(now, wall, WriteCheckpoint{.final_model = false});
}

void Agent::Impl::Do(Time, WallTime, const ReleaseOutbox& action) {
  plane_->KeepLent();  // the trainer may write there as soon as it is released
  link_->ReleaseOutbox(action.averaging.value());
}

void Agent::Impl::Do(Time now, WallTime wall, const FetchState& action) {
  if (!trainer_) return;
  if (action.donors.empty()) {
    // A checkpoint that this agent found lies there already, or the trainer's own average.
    link_->OfferAdoption(InboxOf(action.region), action.averaging.value(),
                         std::exchange(restored_opaque_, std::nullopt));
    inputs_.push_back([this, action](Time at, Actions& out) {
      peer_->OnLocal(
          at, StateFetched{.averaging = action.averaging, .root = action.root, .ok = true}, out);
    });
    return;
  }
  if (!action.adopt || AveragesGradients(config_.averaging))
    Overwrite(action.region);
  else
    plane_->Overwritten(action.region);
  state_->Fetch(now, action, trainer_->schema, trainer_->elements);
  OnState(now, wall);
}

// ---- checkpoint and end ------------------------------------------------------------------------

// The average is copied now, because the next averaging writes over it; then the trainer is asked
// for its opaque state, which it may give or not.
void Agent::Impl::Do(Time now, WallTime, const WriteCheckpoint& action) {
  if (!keeper_ || !trainer_) return;
  if (checkpoint_) SubmitCheckpoint();  // the earlier one goes without
  if (AveragesGradients(config_.averaging) && !delivered_) {
    // The trainer is making a step: its parameters are written then. Before the first there are
    // none, and what the outbox has is a gradient.
    if (stepping_) write_after_step_ = action;
    return;
  }
  const PeerSummary summary = peer_->Summarize();
  if (gave_seat_back_) {  // the others have the job's averages, also when they have ended
    log_.Warning("nothing is written: this worker " + bad_snapshot_);
    return;
  }
  // It trains alone, beside the job: what it has is not the job's.
  if (summary.seat_refused) {
    log_.Warning("nothing is written: this worker is not of the job",
                 {{"reason", InWords(*summary.seat_refused, trainer_->tensors)}});
    return;
  }
  CheckpointKeeper::Job job;
  job.info.job = options_.job;
  const bool full = delivered_ && !mixes_;
  if (full || mixes_) job.info.ledger = full ? delivered_->ledger : counted_ledger_;
  // A checkpoint without its leases would train epochs anew.
  if (deals_leases_ && !action.final_model && job.info.ledger.empty()) return;
  job.info.averaging = full ? delivered_->averaging : summary.averaging;
  job.info.job_samples = full ? delivered_->job_samples : summary.job_samples;
  job.info.job_seconds = summary.job_seconds;
  if (delivered_) job.info.committed = delivered_->root;
  if (summary.view) {
    job.info.view_epoch = summary.view->epoch;
    job.by.lineage = summary.view->lineage.brief();
  }
  job.by.interval = Seconds(config_.checkpoint_seconds);
  job.info.schema = trainer_->schema;
  job.info.tensors = trainer_->tensors;
  job.final_model = action.final_model;
  // A job that ends in the middle of an averaging has lost the last average to it: the trainer's
  // own snapshot, a few steps further, stands for it.
  if (!full && !mixed_ && !action.final_model) return;
  if (!full && !mixed_ && !bad_snapshot_.empty()) {
    write_error_ = "model.safetensors: there is no average, and this worker " + bad_snapshot_;
    log_.Error("no model written", {{"reason", write_error_}});
    return;
  }
  // Where members' values differ, this worker's last result stands for the job's; its snapshot,
  // at the end, where the round that should replace the result has failed.
  const std::optional<Region> region = mixed_ ? mixed_
                                       : full ? std::optional(delivered_->region)
                                              : std::nullopt;
  const std::span<const float> average =
      region ? std::as_const(*link_).inbox(InboxOf(*region)) : link_->outbox();
  job.average.assign(average.begin(), average.end());
  if (full && delivered_->parts == StateParts::kAverageAndVelocity) {
    const std::span<const float> velocity = outer_.velocity_values();
    job.velocity.assign(velocity.begin(), velocity.end());
  }
  checkpoint_ = std::move(job);
  checkpoint_wait_until_ = now + kOpaqueForCheckpoint;
  link_->RequestOpaque();
}

void Agent::Impl::SubmitCheckpoint() {
  checkpoint_wait_until_ = Time::Infinite();
  if (!checkpoint_) return;
  const auto opaque = link_->opaque();
  const bool goes_with = !AveragesGradients(config_.averaging) ||
                         (opaque && AveragingId(opaque->step) == checkpoint_->info.averaging);
  if (opaque && goes_with) checkpoint_->opaque = opaque->state;
  if (keeper_->Submit(*std::move(checkpoint_))) ++checkpoints_open_;
  checkpoint_.reset();
}

void Agent::Impl::Do(Time now, WallTime, const RaiseStop&) {
  link_->RaiseStop();
  stop_raised_ = true;
  stop_raised_at_ = now;
  linger_until_ = now + kLinger;
  log_.Info("target met: the trainer is told to stop");
}

void Agent::Impl::EndWhenJobIsOver(Time now) {
  if (!stop_raised_ || ended_) return;
  // A trainer gives its opaque state before it says that it stops: nothing more will come.
  if (checkpoint_ && (stop_acknowledged_ || !trainer_)) SubmitCheckpoint();
  const char* waits_for = WaitsForAtTheEnd(now);
  if (waits_for == nullptr) return End(kTargetMet, 0);
  if (std::exchange(waits_for_, waits_for) == waits_for) return;
  log_.Info("the job is over", {{"waiting_for", waits_for}});
}

const char* Agent::Impl::WaitsForAtTheEnd(Time now) const {
  // A trainer that hangs does not keep a finished job's worker.
  if (now - stop_raised_at_ >= kStopPatience) return nullptr;
  if (trainer_ && !stop_acknowledged_) return "the trainer to stop";
  if (write_after_step_) return "the trainer's last step";
  if (checkpoint_) return "the trainer's state";
  if (checkpoints_open_ > 0) return "the checkpoint and the model to be written";
  return !linger_until_.infinite() && now < linger_until_ ? "peers that have not heard of it"
                                                          : nullptr;
}

// ---- strategies on graphs ----------------------------------------------------------------------

void Agent::Impl::Do(Time, WallTime, const ReserveRegions& action) { mix_->Reserve(action); }

void Agent::Impl::Overwrite(Region region) {
  if (!IsInbox(region)) return;
  state_->Retire(InboxOf(region));
  if (delivered_ && delivered_->region == region) delivered_.reset();
  plane_->Overwritten(region);
}

void Agent::Impl::Do(Time, WallTime, const RunKernel& action) {
  for (size_t i = 0; i < action.regions.size(); ++i)
    if (!OnlyReads(action.kernel, i)) Overwrite(action.regions[i]);
  const AveragingWork work(&clock_, AveragingPart::kFold);
  mix_->Run(action);
}

void Agent::Impl::Do(Time, WallTime, const PowerAction& action) {
  if (const auto* apply = std::get_if<ApplyPower>(&action)) Overwrite(apply->to);
  mix_->Run(action);
}

void Agent::Impl::TellMixSent(Time now, WallTime wall) {
  for (const MixSent& sent : mix_->TakeSent()) FeedLocal(now, wall, sent);
}

void Agent::Impl::Do(Time now, WallTime wall, const MixSend& action) {
  mix_->Send(now, action);
  TellMixSent(now, wall);
}

void Agent::Impl::Do(Time, WallTime, const DeliverMix& action) {
  if (!trainer_) return;
  metrics_.delivered.Add();
  mixed_ = action.region;
  mixes_ = true;
  link_->Deliver(action.number.value(), InboxOf(action.region));
}

void Agent::Impl::Do(Time, WallTime, const TellLrScale& action) { link_->SetLrScale(action.scale); }

void Agent::Impl::Do(Time now, WallTime wall, const JobCounted& action) {
  const PeerSummary summary = peer_->Summarize();
  link_->SetJob(action.job_samples, action.averaging.value(),
                summary.view ? summary.view->epoch : 0, summary.view ? summary.view->members : 0);
  counted_ledger_ = action.ledger;
  if (trainer_) CheckpointWhenDue(now, wall, summary);
}

void Agent::Impl::Do(Time, WallTime, const Leave& action) { End(action.reason, 0); }

}  // namespace crowdsurf::worker
