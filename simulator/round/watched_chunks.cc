#include "simulator/round/watched_chunks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "worker/core/subnet/subnet_round.h"

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkIndex;
using worker::ChunkSpan;
using worker::FoldChunk;
using worker::RoundHandle;

namespace {

std::vector<OriginId> OriginsIn(const RegionBuffer& region, const std::vector<uint64_t>& elements) {
  std::vector<OriginId> origins;
  origins.reserve(elements.size());
  for (const uint64_t element : elements) origins.push_back(region.origins[element]);
  return origins;
}

// What is counted in it travels as the origin of one value.
bool CountsOnly(const ChunkHost<float>::Opened& opened) {
  return opened.chunks.size() == 1 && opened.chunks.front().count == 0;
}

}  // namespace

// Of the node's own input. The base's values are no snapshot's.
std::vector<OriginId> WatchedChunks::OwnOrigins(const Opened& opened, ChunkIndex chunk) const {
  if (CountsOnly(opened)) return {CountedIn(*opened.from)};
  const auto self = static_cast<size_t>(opened.self);
  const bool base = opened.subnet != nullptr && !opened.subnet->Covers(self, chunk.value());
  if (base) return std::vector<OriginId>(opened.chunks[chunk.value()].count);
  return OriginsIn(*opened.from, opened.ElementsOf(chunk));
}

void WatchedChunks::PutOrigins(const std::vector<OriginId>& origins, const Opened& opened,
                               ChunkIndex chunk) {
  if (CountsOnly(opened)) return SetCounted(*opened.to, origins.empty() ? 0 : origins.front());
  const std::vector<uint64_t> elements = opened.ElementsOf(chunk);
  for (size_t i = 0; i < elements.size() && i < origins.size(); ++i)
    opened.to->origins[elements[i]] = origins[i];
}

void WatchedChunks::Open(RoundHandle round, const Opened& opened) {
  ChunkHost::Open(round, opened);
  // What no chunk has keeps the base's values.
  if (opened.subnet != nullptr)
    std::fill(opened.to->origins.begin(), opened.to->origins.end(), OriginId{0});
  rounds_[round] = {{}, std::vector<bool>(opened.chunks.size())};
  std::vector<Parcel> inputs;
  for (ChunkIndex chunk; chunk.value() < opened.chunks.size(); ++chunk)
    inputs.push_back(Input(round, chunk));
  checkers_.OnOpen(node_, opened.instance,
                   {opened.self, opened.weight, opened.wire, std::move(inputs)});
}

void WatchedChunks::Close(RoundHandle round) {
  ChunkHost::Close(round);
  rounds_.erase(round);
}

Parcel WatchedChunks::Input(RoundHandle round, ChunkIndex chunk) const {
  Parcel parcel = ChunkHost::Input(round, chunk);
  parcel.origins = OwnOrigins(Of(round), chunk);
  return parcel;
}

Parcel WatchedChunks::Result(RoundHandle round, ChunkIndex chunk) {
  Parcel parcel = ChunkHost::Result(round, chunk);
  parcel.origins = CountsOnly(Of(round)) ? std::vector<OriginId>{CountedIn(*Of(round).to)}
                                         : OriginsIn(*Of(round).to, Of(round).ElementsOf(chunk));
  return parcel;
}

Parcel WatchedChunks::Speak(const RegionBuffer& region, const worker::SpeakChunk& speak) {
  Parcel parcel = ChunkHost::Speak(region, speak);
  if (speak.span.count == 0) parcel.origins = {CountedIn(region)};
  checkers_.OnSpoke(node_, speak.instance, speak.rank, speak.chunk, parcel);
  return parcel;
}

void WatchedChunks::KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned,
                              const Parcel& parcel) {
  ChunkHost::KeepInput(round, rank, chunk, assigned, parcel);
  // A copy, from which the checkers compute the fold again.
  rounds_.at(round).inputs.try_emplace({chunk, assigned, rank}, parcel);
}

// Which snapshots are in each element of the fold; in two of its inputs one counts twice.
std::vector<OriginId> WatchedChunks::FoldOrigins(RoundHandle round, const FoldChunk& fold) {
  const Opened& opened = Of(round);
  const OpenRound& open = rounds_.at(round);
  const std::vector<OriginId> own = OwnOrigins(opened, fold.chunk);
  std::vector<OriginId> united(own.size());
  bool twice = false;
  for (size_t element = 0; element < own.size(); ++element) {
    std::vector<OriginId> parts;
    for (int rank = 0; rank < 64; ++rank) {
      if (!fold.mask.Contains(rank)) continue;
      if (rank == opened.self)
        parts.push_back(own[element]);
      else if (const auto at = open.inputs.find({fold.chunk, fold.assigned, rank});
               at != open.inputs.end())
        parts.push_back(at->second.origins[element]);
    }
    const Origins::Union all = origins_.Unite(parts);
    united[element] = all.id;
    twice = twice || all.twice;
  }
  if (twice) checkers_.OnCountedTwice(node_, opened.instance, fold.chunk);
  return united;
}

uint64_t WatchedChunks::Fold(RoundHandle round, const FoldChunk& fold) {
  const Opened& opened = Of(round);
  OpenRound& open = rounds_.at(round);
  // What goes into the fold, for the checkers' own arithmetic.
  std::map<int, Bytes> used;
  for (int rank = 0; rank < 64; ++rank) {
    if (!fold.mask.Contains(rank)) continue;
    if (rank == opened.self) {
      used[rank] = ChunkHost::Input(round, fold.chunk).wire;
    } else if (const auto at = open.inputs.find({fold.chunk, fold.assigned, rank});
               at != open.inputs.end()) {
      used[rank] = at->second.wire;
    }
  }
  const ChunkSpan& span = opened.chunks[fold.chunk.value()];
  const std::vector<OriginId> origins = FoldOrigins(round, fold);
  const uint64_t hash = ChunkHost::Fold(round, fold);
  PutOrigins(origins, opened, fold.chunk);
  open.filled[fold.chunk.value()] = true;
  Forget(round, fold.chunk, fold.assigned);
  checkers_.OnFold(node_, opened.instance,
                   {.fold = fold,
                    .used = std::move(used),
                    .span = span,
                    .slot = opened.subnet != nullptr
                                ? std::span<const float>()
                                : std::span(opened.to->values).subspan(span.begin, span.count),
                    .subnet = opened.subnet != nullptr,
                    .result = ChunkHost::Result(round, fold.chunk).wire,
                    .form = {opened.wire, opened.dither}});
  return hash;
}

void WatchedChunks::Store(RoundHandle round, ChunkIndex chunk, const Parcel& parcel) {
  ChunkHost::Store(round, chunk, parcel);
  PutOrigins(parcel.origins, Of(round), chunk);
  rounds_.at(round).filled[chunk.value()] = true;
}

void WatchedChunks::Empty(RoundHandle round, ChunkIndex chunk) {
  rounds_.at(round).filled[chunk.value()] = false;
}

void WatchedChunks::Drop(RoundHandle round, ChunkIndex chunk, Ballot assigned) {
  ChunkHost::Drop(round, chunk, assigned);
  Forget(round, chunk, assigned);
}

void WatchedChunks::Forget(RoundHandle round, ChunkIndex chunk, Ballot assigned) {
  std::erase_if(rounds_.at(round).inputs, [&](const auto& input) {
    return std::get<0>(input.first) == chunk && std::get<1>(input.first) == assigned;
  });
}

std::vector<Bytes> WatchedChunks::Slots(RoundHandle round) {
  const OpenRound& open = rounds_.at(round);
  std::vector<Bytes> slots(open.filled.size());
  for (ChunkIndex chunk; chunk.value() < slots.size(); ++chunk)
    if (open.filled[chunk.value()]) slots[chunk.value()] = ChunkHost::Result(round, chunk).wire;
  return slots;
}

}  // namespace crowdsurf::simulator
