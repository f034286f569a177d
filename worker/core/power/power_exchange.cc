#include "worker/core/power/power_exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/power/power_frames.h"

namespace crowdsurf::worker {
namespace {

// A frame that has not left by then is given to the host again when it is asked for: the host may
// have dropped it for want of room.
constexpr Duration kStuck = Seconds(30);

}  // namespace

void PowerExchange::Reset(const UsePowerEdges& use, uint32_t chunk_elements) {
  CHECK_GT(chunk_elements, 0u);
  frames_ = use.frames;
  wire_ = use.wire;
  chunk_elements_ = chunk_elements;
  edges_.clear();
  for (const PowerEnd& end : use.ends) {
    Edge& edge = edges_.emplace_back();
    edge.end = end;
    // The other end may be one step ahead, so frames of two steps can arrive.
    Expect(edge, 1);
    Expect(edge, 2);
  }
  step_ = 0;
  open_ = false;
  // Room for the one region that Describe names: it allocates nothing.
  sum_of_.reserve(1);
}

void PowerExchange::Clear() {
  edges_.clear();
  frames_.reset();
  step_ = 0;
  open_ = false;
}

PowerExchange::Edge* PowerExchange::Find(const PeerId& peer) {
  const auto at = std::ranges::find(edges_, peer, [](const Edge& edge) { return edge.end.peer; });
  return at == edges_.end() ? nullptr : &*at;
}

const PowerExchange::Edge* PowerExchange::Find(const PeerId& peer) const {
  return const_cast<PowerExchange*>(this)->Find(peer);
}

uint32_t PowerExchange::ChunksOf(uint64_t step) const {
  return static_cast<uint32_t>((frames_->SizeOf(step) + chunk_elements_ - 1) / chunk_elements_);
}

void PowerExchange::Expect(Edge& edge, uint64_t step) const {
  Arriving& frame = edge.arriving[step % 2];
  frame.here.assign(ChunksOf(step), false);
  frame.arrived = 0;
}

Extent PowerExchange::ChunkOf(const Extent& frame, uint32_t chunk) const {
  const uint64_t from = uint64_t{chunk} * chunk_elements_;
  return {frame.begin + from, std::min<uint64_t>(chunk_elements_, frame.count - from)};
}

// ---- own frames --------------------------------------------------------------------------------

void PowerExchange::SendFrame(Time now, Edge& edge, uint64_t step, Out& out) {
  edge.leaving[step % 2] = true;
  edge.left_at[step % 2] = now;
  out.sends.push_back({edge.end.peer, step, ChunksOf(step)});
}

void PowerExchange::Begin(Time now, Out& out) {
  CHECK(!open_);
  ++step_;
  open_ = true;
  for (Edge& edge : edges_) {
    if (edge.down) continue;
    SendFrame(now, edge, step_, out);
    edge.heard = now;
    edge.ask_after = kFirstAsk;
    edge.ask_at = now + kFirstAsk;
  }
}

std::optional<MixChunk> PowerExchange::Describe(const PeerId& to, uint64_t step,
                                                uint32_t chunk) const {
  const Edge* edge = Find(to);
  // Own frames of two steps lie in their slots, for a neighbour that missed one.
  const bool kept = step > 0 && (step == step_ || step + 1 == step_);
  if (edge == nullptr || !kept || chunk >= ChunksOf(step)) return std::nullopt;
  const Extent range = ChunkOf(frames_->Own(step), chunk);
  sum_of_.assign(1, edge->end.region);
  return MixChunk{.instance = {},
                  .sequence = step,
                  .count = 1,
                  .wire = wire_,
                  .begin = range.begin,
                  .elements = static_cast<uint32_t>(range.count),
                  .sum_of = sum_of_};
}

void PowerExchange::OnSent(const PeerId& to, uint64_t step) {
  Edge* edge = Find(to);
  if (edge != nullptr && (step == step_ || step + 1 == step_)) edge->leaving[step % 2] = false;
}

void PowerExchange::Answer(Time now, Edge& edge, uint64_t step, Out& out) {
  // No frame leaves on an edge that is cut: the asker must not wait for one.
  if (edge.down) return out.says.push_back({edge.end.peer, {EdgeWord::Kind::kCut, step}});
  const bool kept = step > 0 && (step == step_ || step + 1 == step_);
  if (!kept && step != step_ + 1) return;  // long past
  const size_t parity = step % 2;
  // It is still in the host's queue, and will come without being sent twice.
  const bool leaves = kept && edge.leaving[parity] && now < edge.left_at[parity] + kStuck;
  if (!kept || leaves) return out.says.push_back({edge.end.peer, {EdgeWord::Kind::kNotYet, step}});
  ++counters_.resent;
  SendFrame(now, edge, step, out);
}

// ---- frames of others --------------------------------------------------------------------------

std::optional<MixPlace> PowerExchange::Place(const MixArrived& chunk) const {
  const Edge* edge = Find(chunk.from);
  if (edge == nullptr || edge->down || chunk.count != 1) return std::nullopt;
  // Never further than one step ahead: the other end cannot be, before it has our next frame.
  const uint64_t step = chunk.sequence;
  if (step <= edge->whole || step > step_ + 1) return std::nullopt;
  if (chunk.tag != PowerFrames::TagOf(step) || chunk.chunk >= ChunksOf(step)) return std::nullopt;
  if (edge->arriving[step % 2].here[chunk.chunk]) return std::nullopt;
  const Extent range = ChunkOf(frames_->Arriving(step), chunk.chunk);
  return MixPlace{.region = edge->end.region,
                  .begin = range.begin,
                  .count = static_cast<uint32_t>(range.count),
                  .wire = wire_};
}

void PowerExchange::OnChunk(Time now, const MixArrived& chunk) {
  Edge* edge = Find(chunk.from);
  if (!Place(chunk)) {
    const bool known = edge != nullptr && !edge->down && chunk.sequence > 0;
    const std::vector<bool>* here = known ? &edge->arriving[chunk.sequence % 2].here : nullptr;
    const bool again = known && chunk.sequence > edge->whole && chunk.sequence <= step_ + 1 &&
                       chunk.chunk < here->size() && (*here)[chunk.chunk];
    const bool old = known && chunk.sequence <= edge->whole;
    ++(again ? counters_.repeated : old ? counters_.stale : counters_.strange);
    return;
  }
  if (!chunk.stored) {  // asked for again
    ++counters_.not_finite;
    return;
  }
  ++counters_.taken;
  edge->heard = now;
  Arriving& frame = edge->arriving[chunk.sequence % 2];
  frame.here[chunk.chunk] = true;
  ++frame.arrived;
  const auto whole = [&](uint64_t step) {
    const Arriving& next = edge->arriving[step % 2];
    return next.arrived == next.here.size();
  };
  // Chunks of two steps come in any order; steps end in theirs.
  while (whole(edge->whole + 1)) {
    ++edge->whole;
    Expect(*edge, edge->whole + 2);
  }
}

std::optional<std::vector<PeerId>> PowerExchange::TakeDone() {
  if (!open_ || std::ranges::any_of(edges_, [&](const Edge& edge) { return Waits(edge); }))
    return std::nullopt;
  open_ = false;
  std::vector<PeerId> peers;
  for (const Edge& edge : edges_)
    if (!edge.down) peers.push_back(edge.end.peer);
  return peers;
}

// Each end ends the step on an edge if the other's frame is here. So both do, or neither: unless a
// frame is on its way right then.
std::optional<std::vector<PeerId>> PowerExchange::TakeLast() {
  if (!std::exchange(open_, false)) return std::nullopt;
  std::vector<PeerId> peers;
  for (const Edge& edge : edges_)
    if (!edge.down && edge.whole >= step_) peers.push_back(edge.end.peer);
  return peers;
}

// ---- words, deaths, time -----------------------------------------------------------------------

void PowerExchange::OnWord(Time now, const PeerId& from, const EdgeWord& word, Out& out) {
  Edge* edge = Find(from);
  if (edge == nullptr) return;
  edge->heard = now;
  switch (word.kind) {
    case EdgeWord::Kind::kMissing:
      return Answer(now, *edge, word.step, out);
    case EdgeWord::Kind::kNotYet:
      return;
    case EdgeWord::Kind::kCut:
      if (edge->down) return;
      ++counters_.cut;
      return PutDown(*edge);
  }
}

void PowerExchange::PutDown(Edge& edge) {
  // This end has ended that step, and the other has not said the same with its next frame.
  const uint64_t ended = open_ ? step_ - 1 : step_;
  if (ended > 0 && edge.whole == ended) ++counters_.one_sided;
  edge.down = true;
}

void PowerExchange::OnPeerDown(const PeerId& peer) {
  Edge* edge = Find(peer);
  if (edge != nullptr && !edge->down) PutDown(*edge);
}

void PowerExchange::OnTimer(Time now, Out& out) {
  for (Edge& edge : edges_) {
    if (!Waits(edge) || now < edge.ask_at) continue;
    if (now >= edge.heard + kSilence) {
      ++counters_.cut;
      PutDown(edge);
      out.says.push_back({edge.end.peer, {EdgeWord::Kind::kCut, step_}});
      continue;
    }
    out.says.push_back({edge.end.peer, {EdgeWord::Kind::kMissing, step_}});
    edge.ask_after = std::min(edge.ask_after * 2, kSlowestAsk);
    edge.ask_at = now + edge.ask_after;
  }
}

Time PowerExchange::NextDeadline() const {
  Time next = Time::Infinite();
  for (const Edge& edge : edges_)
    if (Waits(edge)) next = std::min(next, edge.ask_at);
  return next;
}

}  // namespace crowdsurf::worker
