// Agent: what reaches the peer core, and in which order.
#include <cmath>

#include "base/check.h"
#include "base/overloaded.h"
#include "coordinator-free-dht/edge/dht_service.h"
#include "worker/core/link/tensor_tokens.h"
#include "worker/core/peer/peer.h"
#include "worker/edge/agent/agent_impl.h"

namespace crowdsurf::worker {
namespace {

Time FromWall(Time now, WallTime wall, WallTime then) { return now + (then - wall); }

}  // namespace

// ---- one input at a time -----------------------------------------------------------------------

void Agent::Impl::Feed(Time now, WallTime wall, Input input) {
  inputs_.push_back(std::move(input));
  if (!feeding_ && peer_started_) RunInputs(now, wall);
}

void Agent::Impl::StartPeer(Time now, WallTime wall) {
  peer_started_ = true;
  inputs_.push_front([this](Time at, Actions& out) { peer_->Start(at, out); });
  RunInputs(now, wall);
}

void Agent::Impl::FeedLocal(Time now, WallTime wall, LocalEvent event) {
  Feed(now, wall,
       [this, event = std::move(event)](Time at, Actions& out) { peer_->OnLocal(at, event, out); });
}

void Agent::Impl::RunInputs(Time now, WallTime wall) {
  feeding_ = true;
  while (!inputs_.empty() && !killed_) {
    const Input input = std::move(inputs_.front());
    inputs_.pop_front();
    Actions actions;
    input(now, actions);
    Execute(now, wall, actions);
  }
  feeding_ = false;
}

Time Agent::Impl::NextDeadline() const {
  const Time peer = peer_started_ ? peer_->NextDeadline() : Time::Infinite();
  return std::min({peer, sends_->NextDeadline(), state_->NextDeadline(), progress_at_,
                   linger_until_, leave_by_, checkpoint_wait_until_, seat_again_});
}

void Agent::Impl::OnTimer(Time now, WallTime wall) {
  sends_->OnTimer(now);
  TellMixSent(now, wall);
  if (now >= state_->NextDeadline()) {
    state_->OnTimer(now);
    OnState(now, wall);
  }
  if (now >= progress_at_) SampleProgress(now, wall);
  if (now >= checkpoint_wait_until_) SubmitCheckpoint();
  if (now >= linger_until_) {
    EndWhenJobIsOver(now);
    linger_until_ = Time::Infinite();
  }
  if (now >= seat_again_) TakeSeatAgain(now, wall);
  if (now >= leave_by_) {
    leave_by_ = Time::Infinite();
    log_.Warning("leaving took too long");
    End("left without handing over", 0);
  }
  if (peer_started_ && now >= peer_->NextDeadline()) {
    for (const LeftForPeer& left : tensors_->TakeLeft())
      peer_->OnChunksLeft(left.peer, left.chunks, left.round_trip);
    Feed(now, wall, [this](Time at, Actions& out) { peer_->OnTimer(at, out); });
  }
}

// ---- peers -------------------------------------------------------------------------------------

void Agent::Impl::OnTensorFrame(Time now, WallTime wall, const PeerId& from,
                                const TensorHeader& header, TensorPayload payload) {
  if (header.kind == TensorKind::kState) {
    state_->OnFrame(now, from, payload.own);
    tensors_->pool()->Give(std::move(payload.own));
    return OnState(now, wall);
  }
  if (!peer_started_) return;  // nobody knows this agent yet
  CHECK(!feeding_);            // frames come from the mailbox, never from inside an input
  if (header.kind == TensorKind::kMix) {
    const MixArrived arrived = mix_->OnFrame(from, header, payload.own);
    tensors_->pool()->Give(std::move(payload.own));
    return Feed(now, wall,
                [this, arrived](Time at, Actions& out) { peer_->OnMixChunk(at, arrived, out); });
  }
  feeding_ = true;
  Actions actions;
  plane_->OnFrame(
      from, header, std::move(payload),
      [&](const ChunkArrived& arrived) { return peer_->OnChunk(now, arrived, actions); },
      [&] { Execute(now, wall, actions); });
  RunInputs(now, wall);
}

void Agent::Impl::OnDrained(Time now, WallTime wall, const PeerId& peer) {
  sends_->OnDrained(now, peer);
  TellMixSent(now, wall);
}

void Agent::Impl::AskForToken(const PeerId& peer, uint64_t number) {
  const std::string* endpoint = peer_endpoints_.Use(peer);
  // Without an address it goes over a stream that is there: a peer may have dialled this agent.
  const bool sent = grpc_->Send({peer, endpoint == nullptr ? std::string() : *endpoint},
                                dht::ChannelKind::kTensor, EncodeTokenWord({.number = number}));
  if (!sent) tensors_->LoseToken(peer);
}

// Mutual TLS has proved whom it is from.
void Agent::Impl::OnTokenWord(const dht::Contact& from, ByteView body) {
  const std::optional<TokenWord> word = DecodeTokenWord(body);
  if (!word) return tensors_->CountRefused(TokenRefusal::kGarbled);
  if (!word->asks) return tensors_->UseToken(from.id, word->number, word->halves);
  (void)grpc_->Send(
      from, dht::ChannelKind::kTensor,
      EncodeTokenWord(
          {.number = word->number, .asks = false, .halves = tensors_->GiveToken(from.id)}));
}

void Agent::Impl::OnTensorDown(Time now, WallTime wall, const PeerId& peer, DownEvidence evidence) {
  if (!IsDead(evidence)) sends_->OnFailed(now, peer);
  OnDown(now, wall, peer, evidence);
}

void Agent::Impl::OnDown(Time now, WallTime wall, const PeerId& peer, DownEvidence evidence) {
  if (IsDead(evidence)) {
    sends_->OnDead(peer);
    tensors_->Forget(peer);
    state_->OnPeerDown(now, peer);
  }
  if (evidence == DownEvidence::kReplaced) tensors_->Expel(peer);
  Feed(now, wall, [this, peer, evidence](Time at, Actions& out) {
    peer_->OnPeerDown(at, peer, evidence, out);
  });
  OnState(now, wall);
}

void Agent::Impl::OnWatched(Time now, WallTime wall, const std::string& key,
                            const dht::WatchUpdate& update) {
  std::vector<PeerRecord> records;
  for (const dht::RecordPtr& record : update.records) {
    // Our own lies here as soon as it is put, before any seed has answered: it is no answer, and
    // who took it for one would begin alone beside a job that it is about to find.
    if (record->subkey == id()) continue;
    const Duration left = dht_->LifeLeft(now, wall, *record);
    if (left <= Duration()) continue;
    records.push_back({.key = key,
                       .owner = record->subkey,
                       .value = record->value,
                       .ttl = left,
                       .key_of_owner = record->public_key,
                       .boot = record->boot});
  }
  if (records.empty() && !update.synced) return;
  const bool whole = update.synced;
  Feed(now, wall, [this, records = std::move(records), whole](Time at, Actions& out) {
    peer_->OnRecords(at, records, out, whole);
  });
}

void Agent::Impl::OnState(Time now, WallTime wall) {
  std::optional<StateExchange::Fetched> fetched = state_->TakeFetched();
  if (!fetched) return;
  const bool ok = fetched->ok && trainer_.has_value() &&
                  fetched->averaging >= fetched->request.averaging;  // newer is as good
  if (ok) {
    // What was offered goes with the velocity that was there.
    if (fetched->request.region != Region::kInboxA) state_->Retire(0);
    outer_.SetVelocity(std::move(fetched->velocity));
  }
  if (ok && fetched->request.adopt) {
    const int inbox = fetched->request.region == Region::kInboxA ? 0 : 1;
    if (AveragesGradients(config_.averaging) && trainer_) {
      Overwrite(Region::kInboxA);
      stepping_ = Deliver{.averaging = fetched->averaging,
                          .region = Region::kInboxA,
                          .samples = 0,
                          .job_samples = fetched->job_samples,
                          .root = {},
                          .parts = StateParts::kTrainersStep};
    }
    link_->OfferAdoption(inbox, fetched->averaging.value(), fetched->opaque);
  }
  if (!ok)
    return FeedLocal(now, wall, StateFetched{fetched->request.averaging, fetched->request.root});
  // What lies in the inbox, which may be newer than what was asked for.
  FeedLocal(now, wall,
            StateFetched{.averaging = fetched->averaging,
                         .root = fetched->content,
                         .ok = true,
                         .job_samples = fetched->job_samples,
                         .mixed = fetched->mixed});
}

// ---- the outside -------------------------------------------------------------------------------

void Agent::Impl::OnExternalEvent(Time now, WallTime wall, const ExternalEvent& event) {
  std::visit(
      Overloaded{[&](const SeedsChanged& e) { dht_->AddSeeds(now, wall, e.seeds); },
                 [&](const NoticeChanged& e) {
                   // Withdrawn is a deadline that never comes; unknown to a trainer is 0.
                   // The platform's clock is nearer to the peers' than to one that is off.
                   const WallTime by =
                       e.leaving ? dht_->ToLocal(now, wall, e.deadline) : WallTime::Infinite();
                   link_->SetNotice(e.leaving, by.infinite() ? 0 : by.nanoseconds(), e.reason);
                   log_.Info("notice", {{"leaving", e.leaving}, {"reason", e.reason}});
                   FeedLocal(now, wall, NoticeGiven{FromWall(now, wall, by)});
                 },
                 [&](const ConfigFileChanged& e) { OnConfigText(now, wall, e.text); },
                 [&](const TerminationAsked& e) {
                   StartLeaving(now, wall, std::max(Duration(), e.deadline - wall));
                 }},
      event);
}

void Agent::Impl::OnConfigText(Time now, WallTime wall, const std::string& text) {
  ParsedJobConfig parsed = ParseJobConfig(text);
  if (!parsed.violations.empty()) {
    metrics_.config_refused.Add();
    for (const std::string& violation : parsed.violations) {
      log_.Error("config refused", {{"violation", violation}});
    }
    return;
  }
  config_ = std::move(parsed.config);
  link_->SetMode(LinkOverlapOf(config_.averaging), false, 0);
  FeedLocal(now, wall, ConfigChanged{config_.averaging});
}

void Agent::Impl::StartLeaving(Time now, WallTime wall, Duration within) {
  // Half a second is kept for ending what ends in any case.
  const Time by = now + std::max(Milliseconds(100), within - Milliseconds(500));
  leave_by_ = std::min(leave_by_, by);
  if (stop_raised_) return;  // the job is over: this agent ends once the model is written
  if (std::exchange(leaving_, true)) return;
  log_.Info("leaving", {{"within_seconds", within.seconds()}});
  link_->SetNotice(true, (wall + within).nanoseconds(), "leaving");
  ready_ = false;  // at once, not at the next look
  metrics_.ready.Set(0);
  FeedLocal(now, wall, LeaveAsked{});
}

}  // namespace crowdsurf::worker
