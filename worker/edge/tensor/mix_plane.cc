#include "worker/edge/tensor/mix_plane.h"

#include <algorithm>

#include "base/check.h"
#include "worker/core/strategy/mix_kernels.h"

namespace crowdsurf::worker {

void MixPlane::Reserve(const ReserveRegions& reserve) {
  extents_ = reserve.extents;
  buffers_.resize(extents_.size());
  buffers_.shrink_to_fit();
  for (size_t i = 0; i < extents_.size(); ++i) {
    // Contents are void in any case, so a buffer of the right size is not cleared.
    if (buffers_[i].size() == extents_[i].count) continue;
    buffers_[i] = std::vector<float>(extents_[i].count);
  }
}

std::span<const float> MixPlane::Read(Region region, uint64_t begin, uint64_t count) const {
  if (!IsExtra(region)) return memory_.read(region).subspan(begin, count);
  const size_t i = ExtraIndex(region);
  CHECK_LT(i, buffers_.size());
  CHECK_GE(begin, extents_[i].begin);
  return std::span<const float>(buffers_[i]).subspan(begin - extents_[i].begin, count);
}

std::span<float> MixPlane::Write(Region region, uint64_t begin, uint64_t count) {
  if (!IsExtra(region)) return memory_.write(region).subspan(begin, count);
  const std::span<const float> part = Read(region, begin, count);
  return {const_cast<float*>(part.data()), part.size()};  // of a buffer of our own
}

void MixPlane::Run(const RunKernel& kernel) {
  std::array<std::span<float>, kMaxKernelRegions> parts;
  CHECK_LE(kernel.regions.size(), parts.size());
  for (size_t i = 0; i < kernel.regions.size(); ++i) {
    const auto [begin, count] = kernel.range;
    if (kernel.regions[i] == Region::kOutbox) {
      // Kernels never write to it: their first region is never the outbox.
      const auto outbox = Read(Region::kOutbox, begin, count);
      parts[i] = {const_cast<float*>(outbox.data()), outbox.size()};
    } else {
      parts[i] = Write(kernel.regions[i], begin, count);
    }
  }
  RunMixKernel<float>(kernel.kernel,
                      std::span<const std::span<float>>(parts).first(kernel.regions.size()),
                      kernel.scalars);
}

void MixPlane::Run(const PowerAction& action) {
  const uint64_t before = power_.reseeds();
  power_.Run(action, [this](Region region, const Extent& range) {
    return Write(region, range.begin, range.count);
  });
  if (power_.reseeds() > before)
    metrics_.power_reseeds.Add(static_cast<double>(power_.reseeds() - before));
}

Tried MixPlane::Try(const PeerId& to, WaitingSend& what) {
  auto& [send, turn] = std::get<MixMessage>(what);
  for (bool left = false; !left && !turn.done(); turn.Advance()) {
    const auto chunk = core_.describe(to, send.tag, send.sequence, turn.next());
    if (!chunk) continue;  // void by now
    TensorHeader header;
    header.kind = TensorKind::kMix;
    // The frame's fields of rounds, by what they carry here (docs/data-plane.md).
    header.rank = send.tag;
    header.assigned = static_cast<Ballot>(chunk->count);  // at most kMaxNodes
    header.chunk = turn.next();
    header.instance = chunk->instance;
    header.mask = chunk->sequence;
    const Tried tried = sends_.Transmit(to, header, Encode(*chunk));
    if (tried != Tried::kSent) return tried;
    left = true;
  }
  if (!turn.done()) return Tried::kPart;
  sent_.push_back({to, send.tag, send.sequence});
  return Tried::kSent;
}

// Only now, when it is the chunk's turn: a late one carries the latest values.
SharedBytes MixPlane::Encode(const MixChunk& chunk) {
  scratch_.assign(chunk.elements, 0.0F);
  bool first = true;
  for (const Region region : chunk.sum_of) {
    const auto part = Read(region, chunk.begin, chunk.elements);
    for (size_t i = 0; i < part.size(); ++i) scratch_[i] = first ? part[i] : scratch_[i] + part[i];
    first = false;
  }
  ByteWriter lag;
  lag.U64(static_cast<uint64_t>(chunk.lag));
  auto wire = std::make_shared<Bytes>(lag.Take());
  wire->resize(kMixLagBytes + scratch_.size() * WireWidth<float>(chunk.wire));
  EncodeWire(chunk.wire, std::span<const float>(scratch_), std::span(*wire).subspan(kMixLagBytes));
  return wire;
}

void MixPlane::Send(Time now, const MixSend& send) {
  const auto older = [&](const WaitingSend& what) {
    const auto* message = std::get_if<MixMessage>(&what);
    return message != nullptr && message->send.tag == send.tag;
  };
  // A newer message takes the older one's place in the queue, and goes on with the chunk that is
  // next.
  if (WaitingSend* waiting = sends_.Find(send.to, older)) {
    auto& message = std::get<MixMessage>(*waiting);
    message.send = send;
    message.turn.Renew(send.chunks);
  } else if (!sends_.Push(now, send.to, *this, MixMessage{send, ChunkTurn(send.chunks)})) {
    sent_.push_back({send.to, send.tag, send.sequence});  // void: as if it were lost on the way
  }
}

MixArrived MixPlane::OnFrame(const PeerId& from, const TensorHeader& header, const Bytes& payload) {
  MixArrived arrived{.from = from,
                     .instance = header.instance,
                     .tag = header.rank,
                     .sequence = header.mask,
                     .count = header.assigned,
                     .chunk = header.chunk};
  ByteReader lag(ByteView(payload).first(std::min(payload.size(), kMixLagBytes)));
  arrived.lag = static_cast<int64_t>(lag.U64());
  const auto place = core_.place(arrived);
  if (!place) return arrived;
  const ByteView values = ByteView(payload).subspan(std::min(payload.size(), kMixLagBytes));
  if (!WireIsSound<float>(place->wire, values, place->count)) {
    metrics_.bad_inputs.Add();
    return arrived;
  }
  DecodeWire(place->wire, values, Write(place->region, place->begin, place->count));
  arrived.stored = true;
  return arrived;
}

}  // namespace crowdsurf::worker
