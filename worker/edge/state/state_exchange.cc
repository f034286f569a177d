#include "worker/edge/state/state_exchange.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kOpaqueWait = Milliseconds(400);  // a trainer answers at its next step boundary

StateManifest Named(StateManifest manifest, double job_samples) {
  manifest.committed = manifest.Root();  // of number, schema and values: equal at all members
  manifest.job_samples = job_samples;
  return manifest;
}

}  // namespace

StateExchange::StateExchange(StateExchangeHost host, AgentMetrics& metrics,
                             MetricRegistry& registry, Logger log)
    : host_(std::move(host)),
      metrics_(metrics),
      registry_(registry),
      log_(log.For("state")),
      donor_({}, registry) {
  // Declares the series of a fetch now: none may be added while the HTTP port renders them.
  const StateFetch declared(Time(), {}, registry_);
}

StateManifest StateExchange::Describe(const StateValues& values, AveragingId averaging,
                                      double job_samples, const Digest& schema) {
  return Named(MakeStateManifest(values, averaging, Digest(), schema), job_samples);
}

std::optional<StateManifest> StateExchange::Describe(const ResultHashes& hashes,
                                                     AveragingId averaging, double job_samples,
                                                     const Digest& schema) {
  std::optional<StateManifest> manifest = ManifestOf(hashes, averaging, schema);
  if (manifest) manifest = Named(*std::move(manifest), job_samples);
  return manifest;
}

Digest StateExchange::Offer(int inbox, StateManifest manifest) {
  const Digest content = manifest.committed;
  donor_.Offer(inbox, std::move(manifest));
  return content;
}

void StateExchange::Retire(int inbox) {
  ++writes_[static_cast<size_t>(inbox)];
  donor_.Retire(inbox);
}

void StateExchange::OnOpaque(Time now, HeldOpaque opaque) {
  if (donor_.SetOpaque(now, {.bytes = opaque.state->bytes().size(), .hash = opaque.hash},
                       AveragingId(opaque.step)))
    opaque_ = std::move(opaque);
  AnswerWaiting(now);
}

void StateExchange::Fetch(Time now, const FetchState& request, const Digest& schema,
                          uint64_t elements) {
  StateFetchOptions options;
  options.schema = schema;
  options.elements = elements;
  options.want_opaque = request.adopt;
  options.exact_opaque = request.adopt && exact_;
  options.mix = request.adopt && !exact_;
  // Before the first chunk is written: what this agent gives to others never mixes two averages.
  Retire(request.region == Region::kInboxA ? 0 : 1);
  fetch_.emplace(Running{request, StateFetch(now, options, registry_), {}, {}, {}, {}, 0});
  log_.Info("fetching state",
            {{"averaging", request.averaging.value()}, {"donors", request.donors.size()}});
  for (const PeerId& donor : request.donors) {
    // An action may have ended the fetch.
    if (!fetch_) return;
    FetchActions actions;
    fetch_->core.OnDonor(now, donor, actions);
    Execute(now, actions, {});
  }
}

void StateExchange::OnFrame(Time now, const PeerId& from, ByteView payload) {
  const std::optional<DecodedState> decoded = DecodeStateMessage(payload);
  if (!decoded) return metrics_.bad_inputs.Add();
  const bool reply = std::holds_alternative<ManifestReply>(decoded->message) ||
                     std::holds_alternative<ChunkReply>(decoded->message);
  if (reply) {
    if (!fetch_) return;
    FetchActions actions;
    // Hashed here: the core compares digests and never sees the bytes.
    fetch_->core.OnReply(now, from, decoded->message,
                         {decoded->payload.size(), fetch_->core.HashOf(decoded->payload)}, actions);
    return Execute(now, actions, decoded->payload);
  }
  if (std::holds_alternative<FetchOver>(decoded->message)) {
    ForgetWaiting(from);
    return donor_.OnOver(from);
  }
  // The manifest names the opaque state by its hash: the trainer gives a new one before it goes
  // out.
  const bool wants_opaque =
      std::holds_alternative<ManifestRequest>(decoded->message) && donor_.WantsOpaque(now);
  if (wants_opaque && waiting_.size() < kMaxWaiting && host_.request_opaque()) {
    if (waiting_.empty()) waiting_until_ = now + kOpaqueWait;
    waiting_.push_back({from, decoded->message});
    return;
  }
  Answer(now, from, decoded->message);
}

// A request of somebody who wants nothing any more: answered, it would take a place for nobody.
void StateExchange::ForgetWaiting(const PeerId& peer) {
  std::erase_if(waiting_, [&](const WaitingRequest& request) { return request.from == peer; });
}

void StateExchange::OnPeerDown(Time now, const PeerId& peer) {
  ForgetWaiting(peer);
  donor_.OnPeerDown(peer);
  if (!fetch_) return;
  FetchActions actions;
  fetch_->core.OnDonorFailed(now, peer, actions);
  Execute(now, actions, {});
}

void StateExchange::OnTimer(Time now) {
  if (now >= waiting_until_) {
    donor_.OnOpaqueMissed(now);
    AnswerWaiting(now);
  }
  if (!fetch_ || now < fetch_->core.NextDeadline()) return;
  FetchActions actions;
  fetch_->core.OnTimer(now, actions);
  Execute(now, actions, {});
}

Time StateExchange::NextDeadline() const {
  Time next = waiting_until_;
  if (fetch_) next = std::min(next, fetch_->core.NextDeadline());
  return next;
}

void StateExchange::Execute(Time now, const FetchActions& actions, ByteView payload) {
  for (const FetchAction& action : actions) {
    if (const auto* ask = std::get_if<AskDonor>(&action)) {
      auto body = std::make_shared<Bytes>(EncodeStateMessage(ask->message));
      if (!host_.send(ask->to, std::move(body))) {
        FetchActions more;
        fetch_->core.OnDonorFailed(now, ask->to, more);
        Execute(now, more, {});
        if (!fetch_) return;
      }
    } else if (const auto* keep = std::get_if<KeepChunk>(&action)) {
      Keep(*keep, payload);
    } else if (const auto* part = std::get_if<KeepOpaque>(&action)) {
      KeepOpaquePart(*part, payload);
    } else if (const auto* verify = std::get_if<VerifyOpaque>(&action)) {
      fetch_->wanted = verify->hash;
      fetch_->number = ++hashes_;
      // What cannot be hashed counts as corrupt: an empty digest matches nothing.
      if (fetch_->opaque == nullptr || !host_.hash(fetch_->opaque, fetch_->number)) {
        OnOpaqueHashed(now, fetch_->number, Digest());
        if (!fetch_) return;
      }
    } else if (const auto* done = std::get_if<FetchDone>(&action)) {
      if (!done->opaque) fetch_->verified.reset();
      return Finish(done);
    } else if (const auto* failed = std::get_if<FetchFailed>(&action)) {
      log_.Warning("fetching state failed", {{"why", failed->why}});
      return Finish(nullptr);
    }
  }
}

void StateExchange::Keep(const KeepChunk& chunk, ByteView payload) {
  const std::span<float> average = host_.inbox(fetch_->request.region == Region::kInboxA ? 0 : 1);
  HeldVelocity& velocity = fetch_->velocity;
  // The velocity follows the average in the manifest, so the first chunk beyond the average begins
  // it.
  if (velocity == nullptr && chunk.offset + payload.size() > average.size_bytes())
    velocity = std::make_shared<ZeroedFloats>(average.size());
  StatePlaces places{.average = average};
  if (velocity != nullptr) places.velocity = *velocity;
  places.Write(chunk.offset, payload);
}

void StateExchange::OnOpaqueHashed(Time now, uint64_t number, const Digest& hash) {
  if (!fetch_ || fetch_->number != number) return;  // of a fetch that is over
  FetchActions more;
  if (hash == fetch_->wanted) {
    fetch_->verified = {fetch_->opaque, hash};
    fetch_->core.OnOpaqueVerified(now, more);
  } else {
    fetch_->core.OnOpaqueCorrupt(now, more);
  }
  Execute(now, more, {});
}

void StateExchange::Finish(const FetchDone* done) {
  (done ? metrics_.state_fetches_ok : metrics_.state_fetches_failed).Add();
  Fetched out;
  out.request = fetch_->request;
  if (done != nullptr) {
    const StateManifest& manifest = done->manifest;
    const int inbox = fetch_->request.region == Region::kInboxA ? 0 : 1;
    out.ok = true;
    out.averaging = manifest.averaging;
    out.mixed = done->mixed;
    out.job_samples = manifest.job_samples;
    out.opaque = std::move(fetch_->verified);
    if (!done->mixed) {
      out.content = manifest.committed;
      // Others can fetch it here from now on, also when its first donors are gone.
      donor_.Offer(inbox, manifest);
    }
    // The manifest counts the values of both (Keep).
    if (manifest.elements > host_.inbox(inbox).size()) out.velocity = std::move(fetch_->velocity);
  }
  fetched_ = std::move(out);
  fetch_.reset();
}

void StateExchange::Answer(Time now, const PeerId& from, const StateMessage& message) {
  const std::optional<SendState> send = donor_.OnMessage(now, from, message);
  if (!send) return metrics_.bad_inputs.Add();
  Bytes body = EncodeStateMessage(send->message);
  if (send->bytes > 0) {
    if (!AppendPart(*send, body)) return donor_.OnSent(from);
  }
  (void)host_.send(from, std::make_shared<Bytes>(std::move(body)));
  donor_.OnSent(from);  // copied: the transport's queue bounds it from here on
}

// False: it is not there.
bool StateExchange::AppendPart(const SendState& send, Bytes& body) const {
  if (send.inbox >= 0) {
    const StateValues values{.average = host_.inbox(send.inbox), .velocity = host_.velocity()};
    if (send.offset + send.bytes > values.bytes()) return false;
    values.Append(send.offset, send.bytes, body);
    return true;
  }
  const ByteView opaque = opaque_ ? opaque_->state->bytes() : ByteView();
  if (send.offset + send.bytes > opaque.size()) return false;
  const ByteView bytes = opaque.subspan(send.offset, send.bytes);
  body.insert(body.end(), bytes.begin(), bytes.end());
  return true;
}

void StateExchange::AnswerWaiting(Time now) {
  waiting_until_ = Time::Infinite();
  for (const WaitingRequest& request : std::exchange(waiting_, {})) {
    Answer(now, request.from, request.message);
  }
}

// A part that finds no room is missing when the whole is verified.
void StateExchange::KeepOpaquePart(const KeepOpaque& part, ByteView payload) {
  std::shared_ptr<HeldState>& kept = fetch_->opaque;
  if (kept == nullptr || kept->bytes().size() != part.bytes) {
    StatusOr<std::unique_ptr<HeldState>> room = host_.make_room(part.bytes);
    if (!room.ok()) {
      log_.Warning("no room for a donor's opaque state", {{"error", room.status().ToString()}});
      kept = nullptr;
      return;
    }
    kept = *std::move(room);
  }
  // The core has checked the length of the part against the donor's word of the whole
  // (state_fetch.h).
  CHECK_LE(part.offset + payload.size(), kept->bytes().size());
  if (const Status status = kept->Write(part.offset, payload); !status.ok()) {
    log_.Warning("no room for a donor's opaque state", {{"error", status.ToString()}});
    kept = nullptr;
  }
}

}  // namespace crowdsurf::worker
