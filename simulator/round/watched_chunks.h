// WatchedChunks: what an agent does with bytes when a round tells it to, in virtual time.
//
// The bits go through the core's own Reducer, as in the real agent; beside them go the origins of
// every element, and every fold, store and apply is told to the checkers. Owner: one virtual node;
// single sequence. Pre of every call is the Reducer's (worker/core/round/reducer.h). Bounds:
// kMaxBytes of inputs, as an agent has.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "simulator/engine/origins.h"
#include "simulator/round/round_checkers.h"
#include "worker/core/round/reducer.h"

namespace crowdsurf::simulator {

class WatchedChunks {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  WatchedChunks(int node, Origins& origins, RoundCheckers& checkers)
      : node_(node), origins_(origins), checkers_(checkers), reducer_(kMaxBytes) {}

  struct Opened {
    worker::InstanceId instance;
    int self = 0;
    std::vector<worker::ChunkSpan> chunks;
    worker::WireFormat wire = worker::WireFormat::kFloat32;
    RegionBuffer* from = nullptr;
    RegionBuffer* to = nullptr;
    double weight = 0;
    worker::CoordinateMask mask = {};
  };
  void Open(worker::RoundHandle round, const Opened& opened);
  void Close(worker::RoundHandle round);
  bool IsOpen(worker::RoundHandle round) const { return rounds_.contains(round); }
  std::optional<worker::RoundHandle> Find(const worker::InstanceId& instance) const {
    return reducer_.Find(instance);
  }

  Parcel Input(worker::RoundHandle round, uint32_t chunk) const;
  Parcel Result(worker::RoundHandle round, uint32_t chunk);
  bool HasRoom(const Parcel& parcel) const { return reducer_.HasRoom(parcel.wire.size()); }
  bool IsSound(worker::RoundHandle round, bool result, uint32_t chunk, const Parcel& parcel) const {
    using Kind = worker::ChunkArrived::Kind;
    return reducer_.IsSound(round, result ? Kind::kResult : Kind::kInput, chunk, parcel.wire);
  }
  void KeepInput(worker::RoundHandle round, int rank, uint32_t chunk, worker::Ballot assigned,
                 const Parcel& parcel);
  uint64_t Fold(worker::RoundHandle round, const worker::FoldChunk& fold);
  void Store(worker::RoundHandle round, uint32_t chunk, const Parcel& parcel);
  void Empty(worker::RoundHandle round, uint32_t chunk);
  void Drop(worker::RoundHandle round, uint32_t chunk, worker::Ballot assigned);

  // What the output slots hold now; an empty slot has no bytes.
  std::vector<Bytes> Slots(worker::RoundHandle round);
  const Opened& Of(worker::RoundHandle round) const { return rounds_.at(round).opened; }
  size_t held_bytes() const { return reducer_.held_bytes(); }

 private:
  using InputKey = std::tuple<uint32_t, worker::Ballot, int>;  // chunk, assigned, rank
  struct OpenRound {
    Opened opened;
    std::map<InputKey, Parcel> inputs;  // the checkers' copy
    std::vector<bool> filled;           // by chunk
  };
  std::vector<OriginId> FoldOrigins(const OpenRound& open, const worker::FoldChunk& fold);

  const int node_;
  Origins& origins_;
  RoundCheckers& checkers_;
  worker::Reducer<float> reducer_;
  std::map<worker::RoundHandle, OpenRound> rounds_;
};

// Elements of `span` in a region as they travel.
Parcel PackSpan(const RegionBuffer& region, const worker::ChunkSpan& span,
                worker::WireFormat format);

}  // namespace crowdsurf::simulator
