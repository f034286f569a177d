#include "simulator/host/action_host.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "simulator/host/hosted_peer.h"

namespace crowdsurf::simulator {

using worker::Actions;
using worker::ChunkArrived;
using worker::Region;
using worker::RoundHandle;

template <class Scalar>
ActionHost<Scalar>::ActionHost(int node, Setup setup, Outside& outside)
    : Process({node, setup.config.id}, outside.queue(), setup.log),
      setup_(std::move(setup)),
      outside_(outside),
      regions_(setup_.elements) {}

template <class Scalar>
ActionHost<Scalar>::~ActionHost() = default;

template <class Scalar>
worker::PeerSummary ActionHost<Scalar>::Summarize() const {
  CHECK(peer_ != nullptr);
  return peer_->Summarize();
}

// ---- inputs ------------------------------------------------------------------------------------

template <class Scalar>
void ActionHost<Scalar>::Give(absl::FunctionRef<void(Actions&)> input) {
  Actions actions;
  input(actions);
  // In order; the process may die before any of them.
  for (const worker::Action& action : actions) {
    if (!Count()) return;
    Execute(action);
    if (!alive()) return;
  }
  // Its last record goes out first: an agent, too, ends after the input that says so.
  if (left_) return End("left");
  OnActed(actions);
  ArmTimer(core_->NextDeadline());
}

template <class Scalar>
void ActionHost<Scalar>::Start() {
  if (!alive()) return;
  core_ = setup_.core != nullptr ? std::move(setup_.core) : MakePeer();
  LogAs("host").Info("starts", {{"id", id().brief()}});
  Give([this](Actions& out) { core_->Start(now(), out); });
  // A trainer loads for a while before it registers.
  queue().After(setup_.times.registers, [this] { RegisterTrainer(); });
}

template <class Scalar>
std::unique_ptr<HostedCore> ActionHost<Scalar>::MakePeer() {
  auto hosted = std::make_unique<HostedPeer>(setup_.config, setup_.rng, LogAs("peer"), metrics_);
  peer_ = &hosted->peer();
  return hosted;
}

template <class Scalar>
void ActionHost<Scalar>::RegisterTrainer() {
  Local(worker::TrainerRegistered{.schema = Sha256(AsBytes("schema")),
                                  .elements = setup_.elements,
                                  .fresh = true,
                                  .tensors = setup_.tensors,
                                  .units = setup_.units,
                                  .marks = {},
                                  .gives_first = setup_.gives_first});
  TellProgress();
}

// At leisure, as the agent's link does it.
template <class Scalar>
void ActionHost<Scalar>::TellProgress() {
  if (!alive()) return;
  Local(Totals());
  queue().After(setup_.times.progress, [this] { TellProgress(); });
}

template <class Scalar>
void ActionHost<Scalar>::OnTimer() {
  // The deadline has moved since the timer was armed.
  if (const Time next = core_->NextDeadline(); next > now()) return ArmTimer(next);
  for (const auto& [to, chunks] : std::exchange(chunks_left_, {}))
    core_->OnChunksLeft(to, chunks, RoundTripTo(to));
  Give([this](Actions& out) { core_->OnTimer(now(), out); });
}

// What the kernel would say of the link. Windows follow it alone, so it need not be that of the
// world's network: a third say nothing, and the others say what keeps windows low, or widens them.
template <class Scalar>
std::optional<Duration> ActionHost<Scalar>::RoundTripTo(const PeerId& peer) const {
  Rng drawn = setup_.rng.Fork("round trip to " + peer.hex());
  switch (drawn.Uniform(3)) {
    case 0:
      return std::nullopt;
    case 1:
      return Microseconds(20 + static_cast<int64_t>(drawn.Uniform(200)));
    default:
      return Microseconds(500 + static_cast<int64_t>(drawn.Uniform(5000)));
  }
}

template <class Scalar>
void ActionHost<Scalar>::OnBody(const PeerId& from, const worker::SharedBytes& body) {
  Take([this, from, body](Actions& out) { core_->OnMessage(now(), from, *body, out); });
}

template <class Scalar>
void ActionHost<Scalar>::OnRecords(const std::vector<worker::PeerRecord>& records) {
  Take([this, records](Actions& out) { core_->OnRecords(now(), records, out); });
}

template <class Scalar>
void ActionHost<Scalar>::OnDown(const PeerId& peer, DownEvidence evidence) {
  Take([this, peer, evidence](Actions& out) {
    LogAs("host").Info("is told that a peer is down",
                       {{"peer", peer.brief()}, {"refused", evidence == DownEvidence::kRefused}});
    core_->OnPeerDown(now(), peer, evidence, out);
  });
}

template <class Scalar>
void ActionHost<Scalar>::Local(const worker::LocalEvent& event) {
  Take([this, event](Actions& out) { core_->OnLocal(now(), event, out); });
}

template <class Scalar>
void ActionHost<Scalar>::OnTensor(const TensorFrame& frame) {
  if (!started()) return;
  Do([this, frame] {
    std::visit([&](const auto& header) { TakeFrame(header, frame.parcel); }, frame.header);
  });
}

// As the agent does it (worker/edge/tensor/chunk_plane.h).
template <class Scalar>
void ActionHost<Scalar>::TakeFrame(ChunkArrived chunk, const Parcel& parcel) {
  const auto round = chunks().Find(chunk.instance);
  const bool result = chunk.kind == ChunkArrived::Kind::kResult;
  // Without an open round nobody can judge it, and the core refuses it.
  chunk.finite = !round || chunks().IsSound(*round, chunk.kind, chunk.chunk, parcel);
  // Garbled on the way: the data plane drops it, and no core sees it.
  if (result &&
      (!chunk.finite || ContentHash(parcel.wire, worker::ContentKey(chunk.instance)) != chunk.hash))
    return;
  if (!result && !chunks().HasRoom(parcel)) return;
  offered_ = &parcel;
  Give([&](Actions& out) {
    // Kept before the actions run: a fold may be among them.
    if (core_->OnChunk(now(), chunk, out) && round)
      chunks().KeepInput(*round, chunk.rank, chunk.chunk, chunk.assigned, parcel);
  });
  offered_ = nullptr;
}

template <class Scalar>
void ActionHost<Scalar>::TakeFrame(worker::MixArrived chunk, const Parcel& parcel) {
  const auto place = core_->PlaceMix(chunk);
  chunk.stored = place && regions_.Store(*place, parcel.wire);
  Give([&](Actions& out) { core_->OnMixChunk(now(), chunk, out); });
}

// ---- actions: rounds ---------------------------------------------------------------------------

template <class Scalar>
void ActionHost<Scalar>::Execute(const worker::Action& action) {
  std::visit([this](const auto& what) { this->Act(what); }, action);
}

template <class Scalar>
void ActionHost<Scalar>::Overwrite(Region region) {
  ++writes_[region];
  // What is written over can be fetched no more.
  if (donation_ && donation_->region == region) donation_.reset();
  OnOverwritten(region);
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::OpenBuffers& action) {
  const bool writes = std::any_of(action.chunks.begin(), action.chunks.end(),
                                  [](const worker::ChunkSpan& span) { return span.count > 0; });
  if (writes) Overwrite(action.to);  // else the round counts samples only
  chunks().Open(action.round,
                {action.instance, action.self, action.chunks, action.wire, &At(action.from),
                 &At(action.to), action.weight, action.mask, action.subnet, &At(Region::kInboxA),
                 action.from_base, action.with_rest ? &At(Region::kRest) : nullptr, action.dither});
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::SpeakChunk& action) {
  const ChunkArrived header{.kind = ChunkArrived::Kind::kInput,
                            .instance = action.instance,
                            .from = id(),
                            .rank = action.rank,
                            .chunk = action.chunk,
                            .assigned = action.assigned};
  outside_.SendTensor(index(), action.to, {header, chunks().Speak(At(action.region), action)});
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::Chunk& action) {
  // The round was closed meanwhile.
  if (!chunks().IsOpen(action.round)) return;
  std::visit([&](const auto& what) { ActOn(action.round, what); }, action.action);
}

template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::SendInput& action) {
  const ChunkArrived header{.kind = ChunkArrived::Kind::kInput,
                            .instance = chunks().Of(round).instance,
                            .from = id(),
                            .rank = chunks().Of(round).self,
                            .chunk = action.chunk,
                            .assigned = action.assigned};
  outside_.SendTensor(index(), action.to, {header, chunks().Input(round, action.chunk)});
  ++chunks_left_[action.to];
}

template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::SendResult& action) {
  const ChunkArrived header{.kind = ChunkArrived::Kind::kResult,
                            .instance = chunks().Of(round).instance,
                            .from = id(),
                            .chunk = action.chunk,
                            .assigned = action.assigned,
                            .mask = action.mask,
                            .hash = action.hash};
  outside_.SendTensor(index(), action.to, {header, chunks().Result(round, action.chunk)});
  ++chunks_left_[action.to];
}

// Folding takes time on other threads; a plan can cancel it.
template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::FoldChunk& action) {
  const uint64_t serial = fold_serial_++;
  folding_[{round, action.chunk, action.assigned}] = serial;
  DoAfter(setup_.times.fold, [this, round, action, serial] { FinishFold(round, action, serial); });
}

template <class Scalar>
void ActionHost<Scalar>::FinishFold(RoundHandle round, const worker::FoldChunk& fold,
                                    uint64_t serial) {
  const auto pending = folding_.find({round, fold.chunk, fold.assigned});
  // Cancelled, or begun anew for a later plan.
  if (pending == folding_.end() || pending->second != serial) return;
  folding_.erase(pending);
  if (!chunks().IsOpen(round)) return;
  const uint64_t hash = chunks().Fold(round, fold);
  Give([&](Actions& out) {
    core_->OnFolded(now(), {round, fold.chunk, fold.assigned, hash}, out);
  });
}

template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::StoreResult& action) {
  CHECK(offered_ != nullptr);
  chunks().Store(round, action.chunk, *offered_);
}

template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::EmptySlot& action) {
  chunks().Empty(round, action.chunk);
}

template <class Scalar>
void ActionHost<Scalar>::ActOn(RoundHandle round, const worker::DropInputs& action) {
  folding_.erase({round, action.chunk, action.assigned});
  chunks().Drop(round, action.chunk, action.assigned);
}

// ---- actions: strategies on graphs -------------------------------------------------------------

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::RunKernel& action) {
  // What a kernel writes is not the committed average any more.
  for (size_t i = 0; i < action.regions.size(); ++i)
    if (!worker::OnlyReads(action.kernel, i)) Overwrite(action.regions[i]);
  regions_.Run(action);
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::PowerAction& action) {
  if (const auto* apply = std::get_if<worker::ApplyPower>(&action)) Overwrite(apply->to);
  power_.Run(action, [this](Region region, const worker::Extent& range) {
    return regions_.Part(region, range);
  });
}

template <class Scalar>
void ActionHost<Scalar>::SendMixChunk(const worker::MixSend& message, uint32_t at) {
  const auto chunk = core_->DescribeMix(message.to, message.tag, message.sequence, at);
  if (!chunk) return;
  const std::vector<Scalar> sum = regions_.Sum(*chunk);
  TensorFrame frame{worker::MixArrived{.from = id(),
                                       .instance = chunk->instance,
                                       .tag = message.tag,
                                       .sequence = chunk->sequence,
                                       .count = chunk->count,
                                       .lag = chunk->lag,
                                       .chunk = at},
                    {Bytes(sum.size() * worker::WireWidth<Scalar>(chunk->wire)), {}}};
  worker::EncodeWire(chunk->wire, std::span<const Scalar>(sum), frame.parcel.wire);
  outside_.SendTensor(index(), message.to, frame);
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::MixSend& action) {
  for (uint32_t at = 0; at < action.chunks; ++at) SendMixChunk(action, at);
  // Said later, so that nothing is said to the peer while it still acts.
  queue().After(Duration(), [this, action] {
    Local(worker::MixSent{action.to, action.tag, action.sequence});
  });
}

template class ActionHost<float>;
template class ActionHost<double>;

}  // namespace crowdsurf::simulator
