#include "worker/edge/tensor/chunk_plane.h"

#include <absl/cleanup/cleanup.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

void ChunkPlane::Open(const OpenBuffers& open) {
  Overwritten(open.to);
  RoundBuffers<float> buffers{
      open.instance,          open.self, open.chunks, open.wire, memory_.read(open.from),
      memory_.write(open.to), open.mask, open.subnet};
  if (open.subnet != nullptr || open.from_base) buffers.base = memory_.read(Region::kInboxA);
  buffers.from_base = open.from_base;
  buffers.dither = open.dither;
  if (open.with_rest) buffers.rest = memory_.read(Region::kRest);
  const bool lands = OpenSlots(open);
  reducer_.Open(open.round, std::move(buffers));
  rounds_[open.round] = {open.instance,  open.self, open.from, open.to,
                         open.from_base, lands,     false};
}

// Results that travel as they lie are received where they will lie. A masked one has another size.
bool ChunkPlane::OpenSlots(const OpenBuffers& open) {
  if (open.wire != WireFormat::kFloat32 || open.subnet != nullptr) return false;
  if (reducer_.Find(open.instance)) return false;
  const std::span<float> to = memory_.write(open.to);
  std::vector<std::span<uint8_t>> slots;
  slots.reserve(open.chunks.size());
  for (const ChunkSpan& chunk : open.chunks) {
    const std::span<float> slot = to.subspan(chunk.begin, chunk.count);
    slots.emplace_back(reinterpret_cast<uint8_t*>(slot.data()), slot.size_bytes());
  }
  transport_.slots().Open(open.instance, slots);
  return true;
}

void ChunkPlane::CloseSlots(OpenedRound& round) {
  if (std::exchange(round.lands, false)) transport_.slots().Close(round.instance);
}

// Grows with each new content of what the round's own inputs are made of.
uint64_t ChunkPlane::GenerationOf(const OpenedRound& round) {
  return generations_[round.from] + (round.from_base ? generations_[Region::kInboxA] : 0);
}

void ChunkPlane::Close(const CloseBuffers& close) {
  if (const auto round = rounds_.find(close.round); round != rounds_.end()) {
    CloseSlots(round->second);
    if (!round->second.overwritten && reducer_.LiesAsDecided(close.round))
      decided_[round->second.to] = ContentKey(round->second.instance);
    rounds_.erase(round);
  }
  reducer_.Close(close.round);
  std::erase_if(lent_slots_, [&](const auto& slot) { return slot.first == close.round; });
  metrics_.held_bytes.Set(static_cast<double>(reducer_.held_bytes()));
}

std::optional<FoldedChunk> ChunkPlane::Execute(Time now, const Chunk& chunk) {
  const auto open = rounds_.find(chunk.round);
  if (open == rounds_.end()) return std::nullopt;
  const RoundHandle round = chunk.round;
  if (const auto* send = std::get_if<SendInput>(&chunk.action)) {
    const InputSend what{round, send->chunk, send->assigned, GenerationOf(open->second)};
    sends_.Push(now, send->to, *this, what);
  } else if (const auto* result = std::get_if<SendResult>(&chunk.action)) {
    const ResultSend what{round,        result->chunk, result->assigned,
                          result->mask, result->hash,  calls_};
    sends_.Push(now, result->to, *this, what);
    ++calls_;
  } else if (const auto* fold = std::get_if<FoldChunk>(&chunk.action)) {
    TakeSlot(open->second, round, fold->chunk);
    const AveragingWork work = Works(AveragingPart::kFold);
    return FoldedChunk{round, fold->chunk, fold->assigned, reducer_.Fold(round, *fold)};
  } else if (const auto* store = std::get_if<StoreResult>(&chunk.action)) {
    Store(open->second, round, store->chunk);
  } else if (const auto* empty = std::get_if<EmptySlot>(&chunk.action)) {
    KeepLent(round, empty->chunk);  // what lies there is void, and the next result may land
    if (open->second.lands) transport_.slots().Free(open->second.instance, empty->chunk.value());
  } else if (const auto* drop = std::get_if<DropInputs>(&chunk.action)) {
    reducer_.DropInputs(round, drop->chunk, drop->assigned);
  }
  return std::nullopt;
}

void ChunkPlane::Store(const OpenedRound& open, RoundHandle round, ChunkIndex chunk) {
  // The core stores a result only as its answer to the frame that OnFrame holds.
  CHECK(offered_ != nullptr);
  if (offered_->landing != nullptr && transport_.slots().Keep(*offered_->landing))
    return reducer_.StoredInPlace(round, chunk);
  TakeSlot(open, round, chunk);
  const AveragingWork work = Works(AveragingPart::kCopy);
  reducer_.StoreResult(round, chunk, offered_->bytes());
}

void ChunkPlane::Execute(Time now, const SpeakChunk& speak) {
  sends_.Push(now, speak.to, *this, SpeakSend{speak, generations_[speak.region]});
}

void ChunkPlane::OnFrame(const PeerId& from, const TensorHeader& header, TensorPayload payload,
                         const std::function<bool(const ChunkArrived&)>& ask,
                         const std::function<void()>& act) {
  const bool result = header.kind == TensorKind::kResult;
  const absl::Cleanup drop = [&] {  // unless it is kept (Store)
    if (payload.landing != nullptr) transport_.slots().Drop(*payload.landing);
  };
  const std::optional<RoundHandle> round = reducer_.Find(header.instance);
  ChunkArrived arrived{.kind = result ? ChunkArrived::Kind::kResult : ChunkArrived::Kind::kInput,
                       .instance = header.instance,
                       .from = from,
                       .rank = header.rank,
                       .chunk = ChunkIndex(header.chunk),
                       .assigned = header.assigned,
                       .mask = RankSet::FromBits(header.mask),
                       .hash = header.hash,
                       .finite = true};
  if (!round) {
    metrics_.strange_chunks.Add();
    (void)ask(arrived);  // whoever sends it is behind or ahead: the core may want to tell it
    return act();
  }
  // An input that is not sound is told to the core, which leaves its sender out of the chunk. A
  // result that is not sound, and an input without room, count as not arrived.
  const bool sound = IsSound(*round, arrived, payload);
  if (!sound || (!result && !reducer_.HasRoom(payload.own.size()))) {
    metrics_.bad_inputs.Add();
    if (result || sound) return;
    arrived.finite = false;
  }
  const bool wanted = ask(arrived);
  if (result) {
    // Lent to Execute, which `act` calls.
    offered_ = &payload;
  } else if (wanted) {
    reducer_.KeepInput(*round, header.rank, arrived.chunk, header.assigned, std::move(payload.own));
  }
  act();
  offered_ = nullptr;
  transport_.pool()->Give(std::move(payload.own));  // empty where the reducer has it
  metrics_.held_bytes.Set(static_cast<double>(reducer_.held_bytes()));
}

bool ChunkPlane::IsSound(RoundHandle round, const ChunkArrived& arrived,
                         const TensorPayload& payload) const {
  const AveragingWork work = Works(AveragingPart::kFold);
  return reducer_.IsSound(round, arrived.kind, arrived.chunk, payload.bytes(), payload.look);
}

void ChunkPlane::Overwritten(Region region) {
  ++generations_[region];
  for (auto& [handle, round] : rounds_) {
    if (round.to != region) continue;
    CloseSlots(round);
    round.overwritten = true;
  }
  decided_.erase(region);
  KeepLent();
}

bool ChunkPlane::LiesAsDecided(Region region, uint64_t key) const {
  if (const auto closed = decided_.find(region); closed != decided_.end() && closed->second == key)
    return true;
  // A round that is over goes on serving its results.
  return std::any_of(rounds_.begin(), rounds_.end(), [&](const auto& open) {
    const auto& [handle, round] = open;
    return round.to == region && !round.overwritten && ContentKey(round.instance) == key &&
           reducer_.LiesAsDecided(handle);
  });
}

void ChunkPlane::KeepLent() {
  if (!lends_) return;
  const AveragingWork work = Works(AveragingPart::kCopy);
  transport_.KeepLent();
  lends_ = false;
  lent_slots_.clear();
}

// A result is sent from its slot. Another one for the same chunk, of a later assignment, is rare.
void ChunkPlane::KeepLent(RoundHandle round, ChunkIndex chunk) {
  if (lent_slots_.contains({round, chunk})) KeepLent();
}

// The host is about to write there.
void ChunkPlane::TakeSlot(const OpenedRound& open, RoundHandle round, ChunkIndex chunk) {
  KeepLent(round, chunk);
  if (open.lands) transport_.slots().Take(open.instance, chunk.value());
}

bool ChunkPlane::SendStateFrame(Time now, const PeerId& to, SharedBytes payload) {
  if (!sends_.Knows(to)) return false;
  sends_.Push(now, to, *this, StateSend{std::move(payload)});
  return true;
}

Tried ChunkPlane::Try(const PeerId& to, WaitingSend& what) {
  if (const auto* speak = std::get_if<SpeakSend>(&what)) return TrySpeak(to, *speak);
  if (const auto* input = std::get_if<InputSend>(&what)) return TryInput(to, *input);
  if (const auto* result = std::get_if<ResultSend>(&what)) return TryResult(to, *result);
  TensorHeader header;
  header.kind = TensorKind::kState;
  return sends_.Transmit(to, header, std::get<StateSend>(what).payload);
}

Tried ChunkPlane::TrySpeak(const PeerId& to, const SpeakSend& what) {
  const SpeakChunk& speak = what.speak;
  // The region holds other values by now: the chunk is void, which counts as sent.
  if (generations_[speak.region] != what.generation) return Tried::kSent;
  const auto values = memory_.read(speak.region).subspan(speak.span.begin, speak.span.count);
  Bytes wire = transport_.pool()->Take(WireBytes<float>(speak.wire, values.size()));
  {
    const AveragingWork work = Works(AveragingPart::kCopy);
    EncodeWire(speak.wire, values, wire);
  }
  TensorHeader header;
  header.kind = TensorKind::kInput;
  header.instance = speak.instance;
  header.rank = static_cast<uint8_t>(speak.rank);
  header.chunk = speak.chunk.value();
  header.assigned = speak.assigned;
  return sends_.Transmit(to, header, transport_.pool()->Share(std::move(wire)));
}

Tried ChunkPlane::TryInput(const PeerId& to, const InputSend& what) {
  const auto open = rounds_.find(what.round);
  if (open == rounds_.end()) return Tried::kSent;
  // The next snapshot is being written there: half of each would pass for an input.
  if (GenerationOf(open->second) != what.generation) return Tried::kSent;
  TensorHeader header;
  header.kind = TensorKind::kInput;
  header.instance = open->second.instance;
  header.rank = static_cast<uint8_t>(open->second.self);
  header.chunk = what.chunk.value();
  header.assigned = what.assigned;
  // A snapshot stays in the outbox until the agent asks for another or releases it (KeepLent).
  const auto lies = reducer_.OwnInPlace(what.round, what.chunk);
  if (lies && open->second.from == Region::kOutbox) return Lend(to, header, *lies);
  return sends_.Transmit(to, header, transport_.pool()->Share(OwnInput(what)));
}

Bytes ChunkPlane::OwnInput(const InputSend& what) const {
  const AveragingWork work = Works(AveragingPart::kCopy);
  return reducer_.OwnInput(what.round, what.chunk);
}

SharedBytes ChunkPlane::Result(const ResultSend& what) {
  const AveragingWork work = Works(AveragingPart::kCopy);
  return reducer_.Result(what.round, what.chunk);
}

Tried ChunkPlane::TryResult(const PeerId& to, const ResultSend& what) {
  const auto open = rounds_.find(what.round);
  if (open == rounds_.end()) return Tried::kSent;
  TensorHeader header;
  header.kind = TensorKind::kResult;
  header.instance = open->second.instance;
  header.rank = static_cast<uint8_t>(open->second.self);
  header.chunk = what.chunk.value();
  header.assigned = what.assigned;
  header.mask = what.mask.bits();
  header.hash = what.hash;
  // It stays in its slot until that is written again (TakeSlot, Overwritten).
  if (const auto lies = reducer_.ResultInPlace(what.round, what.chunk)) {
    if (IsOther(what, header.instance, *lies)) return Tried::kSent;
    const Tried tried = Lend(to, header, *lies);
    if (tried == Tried::kSent) lent_slots_.emplace(what.round, what.chunk);
    return tried;
  }
  SharedBytes wire = Result(what);
  if (IsOther(what, header.instance, *wire)) return Tried::kSent;
  return sends_.Transmit(to, header, std::move(wire));
}

// Another result may lie in the slot since the core asked for this one. Its hash tells them apart.
bool ChunkPlane::IsOther(const ResultSend& what, const InstanceId& instance, ByteView wire) const {
  return what.call != calls_ && TensorPayloadHash(instance, wire) != what.hash;
}

Tried ChunkPlane::Lend(const PeerId& to, const TensorHeader& header, ByteView bytes) {
  lends_ = true;
  return sends_.TransmitLent(to, header, bytes);
}

}  // namespace crowdsurf::worker
