#include "worker/core/strategy/edge_mailbox.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

uint32_t EdgeMailbox::ChunksOf(const Extent& extent) const {
  return static_cast<uint32_t>((extent.count + chunk_elements_ - 1) / chunk_elements_);
}

Extent EdgeMailbox::RangeOf(const Extent& extent, uint32_t chunk) const {
  const uint64_t from = uint64_t{chunk} * chunk_elements_;
  return {extent.begin + from, std::min<uint64_t>(chunk_elements_, extent.count - from)};
}

void EdgeMailbox::Reset(std::vector<EdgeLink> links, uint32_t models, uint32_t chunk_elements,
                        WireFormat wire, EdgeOrder order) {
  CHECK_GT(chunk_elements, 0u);
  links_ = std::move(links);
  models_ = models;
  chunk_elements_ = chunk_elements;
  wire_ = wire;
  order_ = order;
  slots_.assign(links_.size(), {});
  newest_.assign(links_.size(), 0);
  for (size_t i = 0; i < links_.size(); ++i) slots_[i].resize(ChunksOf(links_[i].extent));
  sum_of_.reserve(links_.size() + 1);
}

std::optional<size_t> EdgeMailbox::Find(const PeerId& peer, MixTag tag) const {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].tag == tag && links_[i].peer == peer) return i;
  }
  return std::nullopt;
}

std::optional<MixPlace> EdgeMailbox::Place(const MixArrived& chunk) const {
  const auto link = Find(chunk.from, chunk.tag);
  if (!link || chunk.chunk >= slots_[*link].size()) return std::nullopt;
  // A message counts at least its sender and never its receiver.
  if (chunk.count == 0 || chunk.count >= models_ || chunk.sequence == 0) return std::nullopt;
  if (chunk.sequence > kMaxSequence || chunk.lag > kMaxLag || chunk.lag < -kMaxLag)
    return std::nullopt;
  const Extent range = RangeOf(links_[*link].extent, chunk.chunk);
  return MixPlace{.region = links_[*link].region,
                  .begin = range.begin,
                  .count = static_cast<uint32_t>(range.count),
                  .wire = wire_};
}

bool EdgeMailbox::Wants(const MixArrived& chunk) const {
  if (!Place(chunk)) return false;
  const Slot& slot = slots_[*Find(chunk.from, chunk.tag)][chunk.chunk];
  return order_ == EdgeOrder::kFifo ? chunk.sequence == slot.sequence + 1
                                    : chunk.sequence > slot.sequence;
}

EdgeMailbox::Taken EdgeMailbox::OnChunk(const MixArrived& chunk) {
  if (!Place(chunk)) {
    ++counters_.strange;
    return Taken::kStrange;
  }
  if (!Wants(chunk)) {
    ++counters_.stale;
    return Taken::kStale;
  }
  if (!chunk.stored) {
    // The region and the slot keep the last sound chunk.
    ++counters_.not_finite;
    return Taken::kStrange;
  }
  const size_t link = *Find(chunk.from, chunk.tag);
  slots_[link][chunk.chunk] = {chunk.sequence, chunk.count, chunk.lag};
  ++counters_.taken;
  newest_[link] = std::max(newest_[link], chunk.sequence);
  return Taken::kTaken;
}

int64_t EdgeMailbox::LagAt(size_t link, uint32_t chunk, uint64_t sequence) const {
  const Slot& slot = slots_[link][chunk];
  const int64_t behind = static_cast<int64_t>(sequence) - static_cast<int64_t>(slot.sequence);
  return slot.lag + static_cast<int64_t>(slot.count) * behind;
}

MixChunk EdgeMailbox::Describe(size_t to, uint32_t chunk, Region own, EdgeSum sum,
                               uint64_t sequence) const {
  const EdgeLink& link = links_[to];
  const Extent range = RangeOf(link.extent, chunk);
  MixChunk out{.instance = {},
               .sequence = sequence,
               .count = 1,
               .lag = 0,
               .wire = wire_,
               .begin = range.begin,
               .elements = static_cast<uint32_t>(range.count),
               .sum_of = {}};
  sum_of_.assign(1, own);
  // What came from the receiver is left out of what it is sent (relay_sum.h).
  for (size_t i = 0; sum == EdgeSum::kWithOthers && i < links_.size(); ++i) {
    if (i == to || links_[i].tag != link.tag || slots_[i][chunk].count == 0) continue;
    out.count += slots_[i][chunk].count;
    out.lag += LagAt(i, chunk, sequence);
    sum_of_.push_back(links_[i].region);
  }
  // A neighbour's lie is no reason to refuse this message.
  out.lag = std::clamp(out.lag, -kMaxLag, kMaxLag);
  out.sum_of = sum_of_;
  return out;
}

}  // namespace crowdsurf::worker
