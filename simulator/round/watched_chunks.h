// WatchedChunks: a ChunkHost whose every fold, store and apply is told to the checkers.
//
// Beside the bits go the origins of every element. Owner: one virtual node; single sequence.
// Bounds: the ChunkHost's, and a copy of the inputs that it holds.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "simulator/engine/origins.h"
#include "simulator/host/chunk_host.h"
#include "simulator/round/round_checkers.h"
#include "worker/core/round/chunk_index.h"

namespace crowdsurf::simulator {

class WatchedChunks : public ChunkHost<float> {
 public:
  WatchedChunks(int node, Origins& origins, RoundCheckers& checkers)
      : node_(node), origins_(origins), checkers_(checkers) {}

  void Open(worker::RoundHandle round, const Opened& opened) override;
  void Close(worker::RoundHandle round) override;
  void KeepInput(worker::RoundHandle round, int rank, worker::ChunkIndex chunk,
                 worker::Ballot assigned, const Parcel& parcel) override;
  Parcel Input(worker::RoundHandle round, worker::ChunkIndex chunk) const override;
  Parcel Result(worker::RoundHandle round, worker::ChunkIndex chunk) override;
  Parcel Speak(const RegionBuffer& region, const worker::SpeakChunk& speak) override;
  uint64_t Fold(worker::RoundHandle round, const worker::FoldChunk& fold) override;
  void Store(worker::RoundHandle round, worker::ChunkIndex chunk, const Parcel& parcel) override;
  void Empty(worker::RoundHandle round, worker::ChunkIndex chunk) override;
  void Drop(worker::RoundHandle round, worker::ChunkIndex chunk, worker::Ballot assigned) override;

  // Rounds that carry weights alone (one chunk, of no values): what stands behind a region's
  // weight.
  void SetCounted(const RegionBuffer& region, OriginId behind) { counted_[&region] = behind; }
  OriginId CountedIn(const RegionBuffer& region) const {
    const auto at = counted_.find(&region);
    return at == counted_.end() ? 0 : at->second;
  }

  // What the output slots hold now; an empty slot has no bytes.
  std::vector<Bytes> Slots(worker::RoundHandle round);

 private:
  using InputKey = std::tuple<worker::ChunkIndex, worker::Ballot, int>;  // chunk, assigned, rank
  struct OpenRound {
    std::map<InputKey, Parcel> inputs;  // the checkers' copy
    std::vector<bool> filled;           // by chunk
  };
  std::vector<OriginId> OwnOrigins(const Opened& opened, worker::ChunkIndex chunk) const;
  void PutOrigins(const std::vector<OriginId>& origins, const Opened& opened,
                  worker::ChunkIndex chunk);
  std::vector<OriginId> FoldOrigins(worker::RoundHandle round, const worker::FoldChunk& fold);
  void Forget(worker::RoundHandle round, worker::ChunkIndex chunk, worker::Ballot assigned);

  const int node_;
  Origins& origins_;
  RoundCheckers& checkers_;
  std::map<worker::RoundHandle, OpenRound> rounds_;
  std::map<const RegionBuffer*, OriginId> counted_;
};

}  // namespace crowdsurf::simulator
