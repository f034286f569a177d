// ChunkHost: what an agent does with bytes when a round tells it to, in virtual time.
//
// The bits go through the core's own Reducer, as in the real agent. A world with checkers derives a
// host that watches (round/watched_chunks.h). Owner: one virtual node; single sequence. Pre of
// every call is the Reducer's (worker/core/reduce/reducer.h). Bounds: kMaxBytes of inputs, as an
// agent has.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "simulator/engine/origins.h"
#include "worker/core/port/actions.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/round/chunk_index.h"

namespace crowdsurf::simulator {

// Elements of `span` in a region as they travel.
template <class Scalar>
Parcel PackSpan(const Buffer<Scalar>& region, const worker::ChunkSpan& span,
                worker::WireFormat format);

// The same of the elements that a chunk has, wherever they lie.
template <class Scalar>
Parcel PackElements(const Buffer<Scalar>& region, const std::vector<uint64_t>& elements,
                    worker::WireFormat format);

template <class Scalar>
class ChunkHost {
 public:
  using Kind = worker::ChunkArrived::Kind;
  static constexpr size_t kMaxBytes = 1 << 20;

  struct Opened {
    worker::InstanceId instance;
    int self = 0;
    std::vector<worker::ChunkSpan> chunks;
    worker::WireFormat wire = worker::WireFormat::kFloat32;
    Buffer<Scalar>* from = nullptr;
    Buffer<Scalar>* to = nullptr;
    double weight = 0;
    worker::CoordinateMask mask = {};
    std::shared_ptr<const worker::SubnetRound> subnet = nullptr;  // IST
    Buffer<Scalar>* base = nullptr;                               // of it, or of changes
    bool from_base = false;                                       // Int8: of the own snapshot
    Buffer<Scalar>* rest = nullptr;                               // of earlier changes
    uint32_t dither = 0;                                          // of results
    // The elements of a region that a chunk has, in its order.
    std::vector<uint64_t> ElementsOf(worker::ChunkIndex chunk) const;
  };

  ChunkHost() = default;
  virtual ~ChunkHost() = default;
  ChunkHost(const ChunkHost&) = delete;
  ChunkHost& operator=(const ChunkHost&) = delete;

  virtual void Open(worker::RoundHandle round, const Opened& opened);
  virtual void Close(worker::RoundHandle round);
  bool IsOpen(worker::RoundHandle round) const { return opened_.contains(round); }
  const Opened& Of(worker::RoundHandle round) const { return opened_.at(round); }
  std::optional<worker::RoundHandle> Find(const worker::InstanceId& instance) const {
    return reducer_.Find(instance);
  }

  size_t held_bytes() const { return reducer_.held_bytes(); }  // of inputs
  bool HasRoom(const Parcel& parcel) const { return reducer_.HasRoom(parcel.wire.size()); }
  bool IsSound(worker::RoundHandle round, Kind kind, worker::ChunkIndex chunk,
               const Parcel& parcel) const {
    return reducer_.IsSound(round, kind, chunk, parcel.wire);
  }
  virtual void KeepInput(worker::RoundHandle round, int rank, worker::ChunkIndex chunk,
                         worker::Ballot assigned, const Parcel& parcel);

  virtual Parcel Input(worker::RoundHandle round, worker::ChunkIndex chunk) const;
  virtual Parcel Result(worker::RoundHandle round, worker::ChunkIndex chunk);
  // Own values as the input of somebody else's rank.
  virtual Parcel Speak(const Buffer<Scalar>& region, const worker::SpeakChunk& speak);

  virtual uint64_t Fold(worker::RoundHandle round, const worker::FoldChunk& fold);
  virtual void Store(worker::RoundHandle round, worker::ChunkIndex chunk, const Parcel& parcel);
  virtual void Empty(worker::RoundHandle, worker::ChunkIndex /*chunk*/) {}
  virtual void Drop(worker::RoundHandle round, worker::ChunkIndex chunk, worker::Ballot assigned);

 private:
  worker::Reducer<Scalar> reducer_{kMaxBytes};
  std::map<worker::RoundHandle, Opened> opened_;
};

extern template class ChunkHost<float>;
extern template class ChunkHost<double>;

}  // namespace crowdsurf::simulator
