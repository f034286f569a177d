#include "worker/edge/chunk_plane.h"

#include "base/check.h"

namespace crowdsurf::worker {

void ChunkPlane::Introduce(const PeerId& peer, const std::string& tensor_endpoint) {
  if (endpoints_.size() >= kMostPeers && !endpoints_.contains(peer)) return;
  endpoints_[peer] = tensor_endpoint;
}

std::optional<std::string> ChunkPlane::EndpointOf(const PeerId& peer) const {
  const auto it = endpoints_.find(peer);
  return it == endpoints_.end() ? std::nullopt : std::optional(it->second);
}

void ChunkPlane::Open(const OpenBuffers& open) {
  reducer_.Open(open.round, open.instance, open.self, open.chunks, open.wire,
                memory_.read(open.from), memory_.write(open.to), open.mask);
  rounds_[open.round] = {open.instance, open.self};
  Overwritten(open.to);
}

void ChunkPlane::Close(const CloseBuffers& close) {
  reducer_.Close(close.round);
  rounds_.erase(close.round);
  metrics_.held_bytes.Set(static_cast<double>(reducer_.held_bytes()));
}

std::optional<ChunkPlane::Folded> ChunkPlane::Execute(const Chunk& chunk) {
  if (!rounds_.contains(chunk.round)) return std::nullopt;
  const RoundHandle round = chunk.round;
  if (const auto* send = std::get_if<SendInput>(&chunk.action)) {
    SendOrWait(send->to, InputSend{round, send->chunk, send->assigned});
  } else if (const auto* result = std::get_if<SendResult>(&chunk.action)) {
    SendOrWait(result->to,
               ResultSend{round, result->chunk, result->assigned, result->mask, result->hash});
  } else if (const auto* fold = std::get_if<FoldChunk>(&chunk.action)) {
    return Folded{round, fold->chunk, fold->assigned, reducer_.Fold(round, *fold)};
  } else if (const auto* store = std::get_if<StoreResult>(&chunk.action)) {
    CHECK(offered_ != nullptr);
    reducer_.StoreResult(round, store->chunk, *offered_);
  } else if (const auto* drop = std::get_if<DropInputs>(&chunk.action)) {
    reducer_.DropInputs(round, drop->chunk, drop->assigned);
  }
  return std::nullopt;  // EmptySlot: what lies there is void until it is written again
}

void ChunkPlane::Execute(const SpeakChunk& speak) {
  SendOrWait(speak.to, SpeakSend{speak, generations_[speak.region]});
}

void ChunkPlane::OnFrame(const PeerId& from, const TensorHeader& header, Bytes payload,
                         const std::function<bool(const ChunkArrived&)>& ask,
                         const std::function<void()>& act) {
  const bool result = header.kind == TensorKind::kResult;
  const std::optional<RoundHandle> round = reducer_.Find(header.instance);
  ChunkArrived arrived{.kind = result ? ChunkArrived::Kind::kResult : ChunkArrived::Kind::kInput,
                       .instance = header.instance,
                       .from = from,
                       .rank = header.rank,
                       .chunk = header.chunk,
                       .assigned = header.assigned,
                       .mask = header.mask,
                       .hash = header.hash,
                       .finite = true};
  if (!round) {
    metrics_.strange_chunks.Add();
    (void)ask(arrived);  // whoever sends it is behind or ahead: the core may want to tell it
    return act();
  }
  const bool sound = reducer_.IsSound(*round, arrived.kind, header.chunk, payload);
  if (!sound || (!result && !reducer_.HasRoom(payload.size()))) {
    metrics_.bad_inputs.Add();
    if (result || sound) return;
    arrived.finite = false;
  }
  if (ask(arrived) && !result) {
    reducer_.KeepInput(*round, header.rank, header.chunk, header.assigned, std::move(payload));
  }
  offered_ = result ? &payload : nullptr;
  act();
  offered_ = nullptr;
  metrics_.held_bytes.Set(static_cast<double>(reducer_.held_bytes()));
}

void ChunkPlane::OnDrained(const PeerId& peer) {
  const auto it = waiting_.find(peer);
  if (it == waiting_.end()) return;
  std::deque<Waiting>& queue = it->second;
  while (!queue.empty() && TrySend(peer, queue.front(), true)) {
    queue.pop_front();
    metrics_.waiting_sends.Add(-1);
  }
  if (queue.empty()) waiting_.erase(it);
}

void ChunkPlane::OnDown(const PeerId& peer) {
  const auto it = waiting_.find(peer);
  if (it == waiting_.end()) return;
  metrics_.waiting_sends.Add(-static_cast<double>(it->second.size()));
  waiting_.erase(it);
}

bool ChunkPlane::SendStateFrame(const PeerId& to, SharedBytes payload) {
  if (!endpoints_.contains(to)) return false;
  SendOrWait(to, std::move(payload));
  return true;
}

void ChunkPlane::SendOrWait(const PeerId& to, Waiting what) {
  const auto it = waiting_.find(to);
  if (it == waiting_.end() && TrySend(to, what, false)) return;
  std::deque<Waiting>& queue = waiting_[to];
  if (queue.size() >= kMostWaiting) return;
  queue.push_back(std::move(what));
  metrics_.waiting_sends.Add(1);
}

bool ChunkPlane::TrySpeak(const PeerId& to, const SpeakSend& what) {
  const SpeakChunk& speak = what.speak;
  if (generations_[speak.region] != what.generation) return true;
  const auto values = memory_.read(speak.region).subspan(speak.span.begin, speak.span.count);
  auto wire = std::make_shared<Bytes>(values.size() * WireWidth<float>(speak.wire));
  EncodeWire(speak.wire, values, *wire);
  TensorHeader header;
  header.kind = TensorKind::kInput;
  header.instance = speak.instance;
  header.rank = static_cast<uint8_t>(speak.rank);
  header.chunk = speak.chunk;
  header.assigned = speak.assigned;
  return Transmit(to, header, std::move(wire));
}

bool ChunkPlane::TrySend(const PeerId& to, const Waiting& what, bool waited) {
  if (const auto* speak = std::get_if<SpeakSend>(&what)) return TrySpeak(to, *speak);
  TensorHeader header;
  if (const auto* state = std::get_if<SharedBytes>(&what)) {
    header.kind = TensorKind::kState;
    return Transmit(to, header, *state);
  }
  if (const auto* input = std::get_if<InputSend>(&what)) {
    const auto open = rounds_.find(input->round);
    if (open == rounds_.end()) return true;
    header.kind = TensorKind::kInput;
    header.instance = open->second.instance;
    header.rank = static_cast<uint8_t>(open->second.self);
    header.chunk = input->chunk;
    header.assigned = input->assigned;
    return Transmit(to, header,
                    std::make_shared<Bytes>(reducer_.OwnInput(input->round, input->chunk)));
  }
  const ResultSend& result = std::get<ResultSend>(what);
  const auto open = rounds_.find(result.round);
  if (open == rounds_.end()) return true;
  header.kind = TensorKind::kResult;
  header.instance = open->second.instance;
  header.rank = static_cast<uint8_t>(open->second.self);
  header.chunk = result.chunk;
  header.assigned = result.assigned;
  header.mask = result.mask;
  header.hash = result.hash;
  SharedBytes wire = reducer_.Result(result.round, result.chunk);
  if (waited && TensorPayloadHash(header.instance, *wire) != result.hash) return true;
  return Transmit(to, header, std::move(wire));
}

bool ChunkPlane::Transmit(const PeerId& to, const TensorHeader& header, SharedBytes payload) {
  const std::optional<std::string> endpoint = EndpointOf(to);
  if (!endpoint) return true;  // never introduced: nothing can be sent, as if it were lost
  return transport_.Send(to, *endpoint, header, std::move(payload)) != TensorTransport::Sent::kFull;
}

}  // namespace crowdsurf::worker
