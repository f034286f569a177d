#include "simulator/host/chunk_host.h"

#include <span>

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkIndex;
using worker::RoundHandle;

template <class Scalar>
Parcel PackSpan(const Buffer<Scalar>& region, const worker::ChunkSpan& span,
                worker::WireFormat format) {
  Parcel parcel;
  parcel.wire.resize(span.count * worker::WireWidth<Scalar>(format));
  worker::EncodeWire(format, std::span(region.values).subspan(span.begin, span.count), parcel.wire);
  // Origins travel beside the bits, element by element.
  const auto from = region.origins.begin() + static_cast<std::ptrdiff_t>(span.begin);
  parcel.origins.assign(from, from + static_cast<std::ptrdiff_t>(span.count));
  return parcel;
}

template Parcel PackSpan(const Buffer<float>&, const worker::ChunkSpan&, worker::WireFormat);
template Parcel PackSpan(const Buffer<double>&, const worker::ChunkSpan&, worker::WireFormat);

template <class Scalar>
void ChunkHost<Scalar>::Open(RoundHandle round, const Opened& opened) {
  reducer_.Open(round, {opened.instance, opened.self, opened.chunks, opened.wire,
                        opened.from->values, opened.to->values, opened.mask});
  opened_[round] = opened;
}

template <class Scalar>
void ChunkHost<Scalar>::Close(RoundHandle round) {
  reducer_.Close(round);
  opened_.erase(round);
}

template <class Scalar>
void ChunkHost<Scalar>::KeepInput(RoundHandle round, int rank, ChunkIndex chunk, Ballot assigned,
                                  const Parcel& parcel) {
  reducer_.KeepInput(round, rank, chunk, assigned, parcel.wire);
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Input(RoundHandle round, ChunkIndex chunk) const {
  return {reducer_.OwnInput(round, chunk), {}};
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Result(RoundHandle round, ChunkIndex chunk) {
  return {*reducer_.Result(round, chunk), {}};
}

template <class Scalar>
Parcel ChunkHost<Scalar>::Speak(const Buffer<Scalar>& region, const worker::SpeakChunk& speak) {
  return PackSpan(region, speak.span, speak.wire);
}

template <class Scalar>
uint64_t ChunkHost<Scalar>::Fold(RoundHandle round, const worker::FoldChunk& fold) {
  return reducer_.Fold(round, fold);
}

template <class Scalar>
void ChunkHost<Scalar>::Store(RoundHandle round, ChunkIndex chunk, const Parcel& parcel) {
  reducer_.StoreResult(round, chunk, parcel.wire);
}

template <class Scalar>
void ChunkHost<Scalar>::Drop(RoundHandle round, ChunkIndex chunk, Ballot assigned) {
  reducer_.DropInputs(round, chunk, assigned);
}

template class ChunkHost<float>;
template class ChunkHost<double>;

}  // namespace crowdsurf::simulator
