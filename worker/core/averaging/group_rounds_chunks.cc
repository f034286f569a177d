// Chunks of the open rounds: what arrives of them, and how many may be under way (group_rounds.h).
#include <algorithm>

#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

GroupRounds::Instances::iterator GroupRounds::FindHandle(RoundHandle handle) {
  return std::find_if(instances_.begin(), instances_.end(),
                      [&](const auto& entry) { return entry.second.handle == handle; });
}

void GroupRounds::OnChunksLeft(const PeerId& to, uint32_t chunks,
                               std::optional<Duration> round_trip) {
  times_.OnChunksLeft(to, chunks);
  windows_.OnRoundTrip(to, round_trip);
}

// Of a whole chunk, as it travels. A count moves no values.
uint64_t GroupRounds::ChunkBytes(const Opening& opening) const {
  return std::max<uint64_t>(WireBytes<float>(WireOf(opening), config_.chunk_elements), 1);
}

uint32_t GroupRounds::MaxWindow(size_t ranks, const Opening& opening) const {
  return MaxWindowChunks(ranks, ChunkBytes(opening), config_.window_chunks);
}

// What is learnt of the link to `owner`, to the round.
void GroupRounds::SetWindow(Instance& instance, const PeerId& owner, RoundActions& out) {
  const uint64_t chunk_bytes = ChunkBytes(instance.opening);
  const RoundSpec& spec = instance.round.spec();
  const uint64_t learnt = (windows_.BytesTo(owner) + chunk_bytes - 1) / chunk_bytes;
  const auto chunks = static_cast<uint32_t>(
      std::clamp<uint64_t>(learnt, spec.window_chunks, spec.max_window_chunks));
  if (chunks == instance.round.window(owner)) return;
  instance.round.OnWindow(owner, chunks, out);
  ShowWindow(instance);
}

void GroupRounds::ShowWindow(const Instance& instance) {
  const uint64_t bytes = instance.round.widest() * ChunkBytes(instance.opening);
  metrics_.send_window_bytes->Set(static_cast<double>(bytes));
}

void GroupRounds::SetWindows(Instance& instance, RoundActions& out) {
  if (instance.opening.counting) return;
  windows_.OnRoundOpened();
  for (const RoundCell& cell : instance.round.spec().cells)
    if (cell.member && *cell.member != config_.id) SetWindow(instance, *cell.member, out);
  ShowWindow(instance);
}

void GroupRounds::TakeResult(Time now, Instance& instance, const ChunkArrived& chunk,
                             RoundActions& out) {
  const bool awaited = instance.round.AwaitsResult(chunk.from, chunk.chunk);
  instance.round.OnResult(chunk.from, chunk.chunk, {chunk.assigned, chunk.mask, chunk.hash}, out);
  // Refused, or an answer to nothing that was sent: it says nothing of the link.
  if (!awaited || instance.round.AwaitsResult(chunk.from, chunk.chunk)) return;
  const uint32_t values = instance.round.spec().chunks[chunk.chunk.value()].count;
  if (values == 0) return;  // a count
  const uint64_t bytes = WireBytes<float>(WireOf(instance.opening), values);
  if (windows_.OnResult(now, chunk.from, chunk.chunk, bytes)) SetWindow(instance, chunk.from, out);
}

bool GroupRounds::OnChunk(Time now, const ChunkArrived& chunk, Actions& out) {
  const auto at = instances_.find(chunk.instance);
  if (at == instances_.end()) {
    metrics_.RefuseFrame(FrameRefusal::kChunkOfUnknownInstance);
    return false;
  }
  Instance& instance = at->second;
  RoundActions actions;
  bool keep = false;
  if (chunk.kind == ChunkArrived::Kind::kResult)
    TakeResult(now, instance, chunk, actions);
  else if (chunk.finite)
    keep = instance.round.OnInput(chunk.from, chunk.rank, chunk.chunk, chunk.assigned, actions);
  else
    instance.round.OnBadInput(chunk.from, chunk.rank, chunk.chunk, chunk.assigned, actions);
  instance.fed |= keep;
  instance.pacer.Observe(now, instance.round);
  Perform(now, instance, actions, out);
  return keep;
}

void GroupRounds::OnFolded(Time now, const FoldedChunk& chunk, Actions& out) {
  const auto at = FindHandle(chunk.round);
  if (at == instances_.end()) return;  // closed while the fold was under way
  RoundActions actions;
  at->second.round.OnFolded(chunk.chunk, chunk.assigned, chunk.hash, actions);
  at->second.pacer.Observe(now, at->second.round);
  Perform(now, at->second, actions, out);
}

}  // namespace crowdsurf::worker
