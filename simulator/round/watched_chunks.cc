#include "simulator/round/watched_chunks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkSpan;
using worker::FoldChunk;
using worker::RoundHandle;

Parcel PackSpan(const RegionBuffer& region, const ChunkSpan& span, worker::WireFormat format) {
  Parcel parcel;
  parcel.wire.resize(span.count * worker::WireWidth<float>(format));
  worker::EncodeWire(format, std::span(region.values).subspan(span.begin, span.count), parcel.wire);
  const auto from = region.origins.begin() + static_cast<std::ptrdiff_t>(span.begin);
  parcel.origins.assign(from, from + static_cast<std::ptrdiff_t>(span.count));
  return parcel;
}

void WatchedChunks::Open(RoundHandle round, const Opened& opened) {
  reducer_.Open(round, {opened.instance, opened.self, opened.chunks, opened.wire,
                        opened.from->values, opened.to->values, opened.mask});
  rounds_[round] = {opened, {}, std::vector<bool>(opened.chunks.size())};
  std::vector<Parcel> inputs;
  for (uint32_t chunk = 0; chunk < opened.chunks.size(); ++chunk)
    inputs.push_back(Input(round, chunk));
  checkers_.OnOpen(node_, opened.instance, opened.self, opened.weight, opened.wire,
                   std::move(inputs));
}

void WatchedChunks::Close(RoundHandle round) {
  reducer_.Close(round);
  rounds_.erase(round);
}

Parcel WatchedChunks::Input(RoundHandle round, uint32_t chunk) const {
  const Opened& opened = rounds_.at(round).opened;
  Parcel parcel = PackSpan(*opened.from, opened.chunks[chunk], opened.wire);
  parcel.wire = reducer_.OwnInput(round, chunk);
  return parcel;
}

Parcel WatchedChunks::Result(RoundHandle round, uint32_t chunk) {
  const Opened& opened = rounds_.at(round).opened;
  Parcel parcel = PackSpan(*opened.to, opened.chunks[chunk], opened.wire);
  parcel.wire = *reducer_.Result(round, chunk);
  return parcel;
}

void WatchedChunks::KeepInput(RoundHandle round, int rank, uint32_t chunk, Ballot assigned,
                              const Parcel& parcel) {
  OpenRound& open = rounds_.at(round);
  reducer_.KeepInput(round, rank, chunk, assigned, parcel.wire);
  open.inputs.try_emplace({chunk, assigned, rank}, parcel);
}

std::vector<OriginId> WatchedChunks::FoldOrigins(const OpenRound& open, const FoldChunk& fold) {
  const ChunkSpan& span = open.opened.chunks[fold.chunk];
  std::vector<OriginId> united(span.count);
  bool twice = false;
  for (size_t element = 0; element < span.count; ++element) {
    std::vector<OriginId> parts;
    for (int rank = 0; rank < 64; ++rank) {
      if (!fold.mask.Contains(rank)) continue;
      if (rank == open.opened.self)
        parts.push_back(open.opened.from->origins[span.begin + element]);
      else if (const auto at = open.inputs.find({fold.chunk, fold.assigned, rank});
               at != open.inputs.end())
        parts.push_back(at->second.origins[element]);
    }
    united[element] = origins_.Unite(parts, &twice);
  }
  if (twice) checkers_.OnCountedTwice(node_, open.opened.instance, fold.chunk);
  return united;
}

uint64_t WatchedChunks::Fold(RoundHandle round, const FoldChunk& fold) {
  OpenRound& open = rounds_.at(round);
  std::map<int, Bytes> used;
  for (int rank = 0; rank < 64; ++rank) {
    if (!fold.mask.Contains(rank)) continue;
    if (rank == open.opened.self) {
      used[rank] = reducer_.OwnInput(round, fold.chunk);
    } else if (const auto at = open.inputs.find({fold.chunk, fold.assigned, rank});
               at != open.inputs.end()) {
      used[rank] = at->second.wire;
    }
  }
  const ChunkSpan& span = open.opened.chunks[fold.chunk];
  const std::vector<OriginId> origins = FoldOrigins(open, fold);
  const uint64_t hash = reducer_.Fold(round, fold);
  std::copy(origins.begin(), origins.end(),
            open.opened.to->origins.begin() + static_cast<std::ptrdiff_t>(span.begin));
  open.filled[fold.chunk] = true;
  std::erase_if(open.inputs, [&](const auto& input) {
    return std::get<0>(input.first) == fold.chunk && std::get<1>(input.first) == fold.assigned;
  });
  checkers_.OnFold(node_, open.opened.instance, fold, used, span,
                   std::span(open.opened.to->values).subspan(span.begin, span.count),
                   *reducer_.Result(round, fold.chunk));
  return hash;
}

void WatchedChunks::Store(RoundHandle round, uint32_t chunk, const Parcel& parcel) {
  OpenRound& open = rounds_.at(round);
  reducer_.StoreResult(round, chunk, parcel.wire);
  std::copy(parcel.origins.begin(), parcel.origins.end(),
            open.opened.to->origins.begin() +
                static_cast<std::ptrdiff_t>(open.opened.chunks[chunk].begin));
  open.filled[chunk] = true;
}

void WatchedChunks::Empty(RoundHandle round, uint32_t chunk) {
  rounds_.at(round).filled[chunk] = false;
}

void WatchedChunks::Drop(RoundHandle round, uint32_t chunk, Ballot assigned) {
  OpenRound& open = rounds_.at(round);
  reducer_.DropInputs(round, chunk, assigned);
  std::erase_if(open.inputs, [&](const auto& input) {
    return std::get<0>(input.first) == chunk && std::get<1>(input.first) == assigned;
  });
}

std::vector<Bytes> WatchedChunks::Slots(RoundHandle round) {
  const OpenRound& open = rounds_.at(round);
  std::vector<Bytes> slots(open.filled.size());
  for (uint32_t chunk = 0; chunk < slots.size(); ++chunk)
    if (open.filled[chunk]) slots[chunk] = *reducer_.Result(round, chunk);
  return slots;
}

}  // namespace crowdsurf::simulator
