#include "simulator/descent/descent_node.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/digest.h"
#include "simulator/engine/node_config.h"
#include "worker/core/strategy/mix_kernels.h"

namespace crowdsurf::simulator {

using worker::ChunkArrived;
using worker::Region;

namespace {

constexpr Duration kFoldTime = Microseconds(50);
constexpr double kSamplesPerStep = 4;

ByteView AsView(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

DescentNode::DescentNode(int index, worker::PeerConfig config, const DescentOptions& options,
                         DescentTrainer trainer, Duration step_time, Rng rng,
                         DescentOutside& outside)
    : index_(index),
      config_(std::move(config)),
      options_(options),
      outside_(outside),
      step_time_(step_time),
      rng_(rng),
      log_(index, options.log, outside.queue()),
      trainer_(std::move(trainer)) {
  outbox_.assign(options.dimensions, 0.0F);
  inboxes_[0] = inboxes_[1] = outbox_;
}

// ---- inputs ------------------------------------------------------------------------------------

template <class Input>
void DescentNode::Give(Input&& input) {
  if (!alive_ || peer_ == nullptr) return;
  worker::Actions actions;
  input(actions);
  for (const worker::Action& action : actions) {
    Execute(action);
    if (!alive_) return;
  }
  ArmTimer();
}

void DescentNode::Local(const worker::LocalEvent& event) {
  Give([&](worker::Actions& out) { peer_->OnLocal(outside_.queue().now(), event, out); });
}

void DescentNode::Start() {
  if (!alive_) return;
  peer_ =
      std::make_unique<worker::Peer>(config_, rng_.Fork("peer"), log_.LoggerFor("peer"), metrics_);
  log_.LoggerFor("host").Info("starts", {{"id", config_.id.brief()}});
  Give([&](worker::Actions& out) { peer_->Start(outside_.queue().now(), out); });
  outside_.queue().After(kRegisterDelay, [this] {
    Local(worker::TrainerRegistered{Sha256(AsBytes("schema")), options_.dimensions, true});
    TellProgress();
  });
}

void DescentNode::Kill() {
  if (!alive_) return;
  log_.LoggerFor("host").Info("dies");
  alive_ = false;
}

void DescentNode::OnBody(const PeerId& from, const Bytes& body) {
  Give([&](worker::Actions& out) { peer_->OnMessage(outside_.queue().now(), from, body, out); });
}

void DescentNode::OnRecords(const std::vector<worker::PeerRecord>& records) {
  Give([&](worker::Actions& out) { peer_->OnRecords(outside_.queue().now(), records, out); });
}

void DescentNode::OnDown(const PeerId& peer) {
  Give([&](worker::Actions& out) {
    peer_->OnPeerDown(outside_.queue().now(), peer, DownEvidence::kRefused, out);
  });
}

void DescentNode::OnChunk(ChunkArrived chunk, const Bytes& wire) {
  const auto round = reducer_.Find(chunk.instance);
  chunk.finite = !round || reducer_.IsSound(*round, chunk.kind, chunk.chunk, wire);
  if (round && chunk.kind == ChunkArrived::Kind::kResult &&
      (!chunk.finite || ContentHash(wire, worker::ContentKey(chunk.instance)) != chunk.hash))
    return;
  Give([&](worker::Actions& out) {
    // Kept before the actions run: a fold may be among them.
    if (peer_->OnChunk(outside_.queue().now(), chunk, out) && round)
      reducer_.KeepInput(*round, chunk.rank, chunk.chunk, chunk.assigned, wire);
    offered_ = &wire;
  });
  offered_ = nullptr;
}

void DescentNode::OnMix(const worker::MixArrived& chunk, const Bytes& wire) {
  if (!alive_ || peer_ == nullptr) return;
  const auto place = peer_->PlaceMix(chunk);
  worker::MixArrived arrived = chunk;
  arrived.stored = place && worker::WireIsSound<float>(place->wire, wire, place->count);
  if (arrived.stored)
    worker::DecodeWire(place->wire, wire, Part(place->region, {place->begin, place->count}));
  Give([&](worker::Actions& out) { peer_->OnMixChunk(outside_.queue().now(), arrived, out); });
}

void DescentNode::ArmTimer() {
  const Time deadline = peer_->NextDeadline();
  if (deadline.infinite() || deadline >= armed_) return;
  armed_ = deadline;
  outside_.queue().At(deadline, [this] {
    if (!alive_ || armed_ > outside_.queue().now()) return;
    armed_ = Time::Infinite();
    if (peer_->NextDeadline() > outside_.queue().now()) return ArmTimer();
    Give([&](worker::Actions& out) { peer_->OnTimer(outside_.queue().now(), out); });
  });
}

// ---- actions: messages and rounds --------------------------------------------------------------

void DescentNode::Execute(const worker::Action& action) {
  std::visit([this](const auto& what) { Do(what); }, action);
}

void DescentNode::Do(const worker::Send& action) {
  outside_.SendBody(index_, action.to, action.body);
}
void DescentNode::Do(const worker::PutRecord& action) { outside_.Put(index_, action); }
void DescentNode::Do(const worker::WatchKey& action) { outside_.Watch(index_, action.key, true); }
void DescentNode::Do(const worker::UnwatchKey& action) {
  outside_.Watch(index_, action.key, false);
}

void DescentNode::Do(const worker::OpenBuffers& action) {
  const bool writes = std::any_of(action.chunks.begin(), action.chunks.end(),
                                  [](const worker::ChunkSpan& span) { return span.count > 0; });
  if (writes) Overwritten(action.to);
  open_[action.round] = {action.instance, action.self};
  reducer_.Open(action.round, {action.instance, action.self, action.chunks, action.wire,
                               At(action.from), At(action.to), action.mask});
}

void DescentNode::Do(const worker::CloseBuffers& action) {
  reducer_.Close(action.round);
  open_.erase(action.round);
}

void DescentNode::Do(const worker::Chunk& action) {
  const auto at = open_.find(action.round);
  if (at == open_.end()) return;
  const worker::RoundHandle round = action.round;
  if (const auto* input = std::get_if<worker::SendInput>(&action.action)) {
    outside_.SendChunk(index_, input->to,
                       {.kind = ChunkArrived::Kind::kInput,
                        .instance = at->second.instance,
                        .from = id(),
                        .rank = at->second.self,
                        .chunk = input->chunk,
                        .assigned = input->assigned},
                       reducer_.OwnInput(round, input->chunk));
  } else if (const auto* result = std::get_if<worker::SendResult>(&action.action)) {
    outside_.SendChunk(index_, result->to,
                       {.kind = ChunkArrived::Kind::kResult,
                        .instance = at->second.instance,
                        .from = id(),
                        .chunk = result->chunk,
                        .assigned = result->assigned,
                        .mask = result->mask,
                        .hash = result->hash},
                       *reducer_.Result(round, result->chunk));
  } else if (const auto* fold = std::get_if<worker::FoldChunk>(&action.action)) {
    const uint64_t hash = reducer_.Fold(round, *fold);
    outside_.queue().After(kFoldTime, [this, round, f = *fold, hash] {
      Give([&](worker::Actions& out) {
        peer_->OnFolded(outside_.queue().now(), {round, f.chunk, f.assigned, hash}, out);
      });
    });
  } else if (const auto* store = std::get_if<worker::StoreResult>(&action.action)) {
    CHECK(offered_ != nullptr);
    reducer_.StoreResult(round, store->chunk, *offered_);
  } else if (const auto* drop = std::get_if<worker::DropInputs>(&action.action)) {
    reducer_.DropInputs(round, drop->chunk, drop->assigned);
  }
}

void DescentNode::Do(const worker::SpeakChunk& action) {
  Bytes wire(action.span.count * worker::WireWidth<float>(action.wire));
  const std::span<const float> values =
      std::span(At(action.region)).subspan(action.span.begin, action.span.count);
  worker::EncodeWire(action.wire, values, wire);
  outside_.SendChunk(index_, action.to,
                     {.kind = ChunkArrived::Kind::kInput,
                      .instance = action.instance,
                      .from = id(),
                      .rank = action.rank,
                      .chunk = action.chunk,
                      .assigned = action.assigned},
                     std::move(wire));
}

// ---- actions: state ----------------------------------------------------------------------------

void DescentNode::Overwritten(Region region) {
  if (donation_ && donation_->region == region) donation_.reset();
}

void DescentNode::Do(const worker::Deliver& action) {
  const Digest root = Sha256(AsView(At(action.region)));
  donation_ = Donation{action.averaging, root, action.region};
  outside_.queue().After(kHashTime, [this, number = action.averaging, root] {
    Local(worker::StateHashed{number, root});
  });
  GiveResult(action.averaging, action.region);
}

const std::vector<float>* DescentNode::Serves(uint64_t averaging, const Digest& root) const {
  if (!alive_ || !donation_) return nullptr;
  if (donation_->averaging != averaging || donation_->root != root) return nullptr;
  return &inboxes_[donation_->region == Region::kInboxA ? 0 : 1];
}

void DescentNode::Do(const worker::FetchState& action) {
  const uint64_t serial = ++fetch_serial_;
  outside_.queue().After(kFetchTime, [this, action, serial] {
    if (!alive_ || serial != fetch_serial_) return;
    const std::vector<float>* found = outside_.FindState(action);
    if (found != nullptr) {
      At(action.region) = *found;
      donation_ = Donation{action.averaging, action.root, action.region};
      if (action.adopt) {
        trainer_.Adopt(*found);
        StartTrainer();
      }
    }
    Local(worker::StateFetched{action.averaging, action.root, found != nullptr});
  });
}

// ---- actions: strategies on graphs -------------------------------------------------------------

std::vector<float>& DescentNode::At(Region region) {
  if (region == Region::kOutbox) return outbox_;
  if (!worker::IsExtra(region)) return inboxes_[region == Region::kInboxA ? 0 : 1];
  return extras_.at(worker::ExtraIndex(region));
}

std::span<float> DescentNode::Part(Region region, const worker::Extent& range) {
  const uint64_t begin =
      worker::IsExtra(region) ? extents_.at(worker::ExtraIndex(region)).begin : 0;
  CHECK_GE(range.begin, begin);
  return std::span(At(region)).subspan(range.begin - begin, range.count);
}

void DescentNode::Do(const worker::ReserveRegions& action) {
  extents_ = action.extents;
  extras_.assign(extents_.size(), {});
  for (size_t i = 0; i < extras_.size(); ++i)  // void: whoever reads it unwritten shows it
    extras_[i].assign(extents_[i].count, std::nanf(""));
}

void DescentNode::Do(const worker::RunKernel& action) {
  std::vector<std::span<float>> parts;
  for (const Region region : action.regions) {
    Overwritten(region);
    parts.push_back(Part(region, action.range));
  }
  worker::RunMixKernel<float>(action.kernel, parts, action.scalars);
}

void DescentNode::Do(const worker::MixSend& action) {
  for (uint32_t at = 0; at < action.chunks; ++at) {
    const auto chunk = peer_->DescribeMix(action.to, action.tag, action.sequence, at);
    if (!chunk) continue;
    std::vector<float> values(chunk->elements, 0.0F);
    for (const Region region : chunk->sum_of) {
      const auto part = Part(region, {chunk->begin, chunk->elements});
      for (size_t i = 0; i < values.size(); ++i) values[i] += part[i];
    }
    Bytes wire(values.size() * worker::WireWidth<float>(chunk->wire));
    worker::EncodeWire(chunk->wire, std::span<const float>(values), wire);
    outside_.SendMix(index_, action.to,
                     {.from = id(),
                      .instance = chunk->instance,
                      .tag = action.tag,
                      .sequence = chunk->sequence,
                      .count = chunk->count,
                      .chunk = at},
                     std::move(wire));
  }
  outside_.queue().After(Duration(), [this, action] {
    Local(worker::MixSent{action.to, action.tag, action.sequence});
  });
}

void DescentNode::Do(const worker::DeliverMix& action) { GiveResult(action.number, action.region); }

// ---- trainer -----------------------------------------------------------------------------------

void DescentNode::StartTrainer() {
  if (std::exchange(running_, true)) return;
  NextStep();
}

void DescentNode::NextStep() {
  outside_.queue().After(step_time_, [this] { StepDone(); });
}

void DescentNode::StepDone() {
  if (!alive_) return;
  const uint64_t results = trainer_.results();
  const auto ticket = trainer_.StepDone(outbox_);
  if (trainer_.results() != results) last_result_ = outside_.queue().now();
  if (!trainer_.waiting()) NextStep();  // else when the result is there
  if (ticket) {
    const auto samples = static_cast<double>(trainer_.steps()) * kSamplesPerStep;
    Local(worker::Published{*ticket, samples, trainer_.steps()});
  }
  RingMarks();
}

void DescentNode::GiveResult(uint64_t ticket, Region region) {
  if (!trainer_.Deliver(ticket, outbox_, At(region))) return;
  last_result_ = outside_.queue().now();
  NextStep();
}

void DescentNode::Do(const worker::ReleaseOutbox& action) {
  if (trainer_.Release(action.averaging)) NextStep();
}

void DescentNode::Do(const worker::WakeAt& action) {
  mark_.reset();
  if (action.steps > 0) mark_ = action.steps;
  if (action.samples > 0) {
    const auto steps = static_cast<uint64_t>(std::ceil(action.samples / kSamplesPerStep));
    mark_ = std::min(mark_.value_or(steps), steps);
  }
  outside_.queue().After(Duration(), [this] { RingMarks(); });
}

void DescentNode::RingMarks() {
  if (!mark_ || trainer_.steps() < *mark_) return;
  mark_.reset();
  const auto samples = static_cast<double>(trainer_.steps()) * kSamplesPerStep;
  Local(worker::Progress{trainer_.steps(), samples, {}, {}});
}

// At leisure, as the agent's link does it.
void DescentNode::TellProgress() {
  if (!alive_) return;
  const auto samples = static_cast<double>(trainer_.steps()) * kSamplesPerStep;
  Local(worker::Progress{trainer_.steps(), samples, {}, {}});
  outside_.queue().After(kProgressEvery, [this] { TellProgress(); });
}

}  // namespace crowdsurf::simulator
