#include "worker/core/vector/masked_chunk.h"

#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// LEB128: seven bits a byte, the lowest first; the high bit says that more follow.
void PutNumber(ByteWriter& out, uint32_t number) {
  for (; number >= 0x80; number >>= 7) out.U8(static_cast<uint8_t>(number | 0x80));
  out.U8(static_cast<uint8_t>(number));
}

// The shortest way to write it is the only one that is read.
uint32_t GetNumber(ByteReader& in) {
  uint64_t number = 0;
  // Five bytes hold any 32 bits; more are refused.
  for (int shift = 0; shift < 35; shift += 7) {
    const uint8_t byte = in.U8();
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) != 0) continue;
    if ((byte == 0 && shift > 0) || number > UINT32_MAX) in.Fail();
    return static_cast<uint32_t>(number);
  }
  in.Fail();
  return 0;
}

// The head of docs/data-plane.md. An odd length tells a masked chunk from a plain one.
Bytes HeadOf(MaskedForm form, const ChunkExtents& extents) {
  ByteWriter out;
  out.U8(static_cast<uint8_t>(form));
  PutNumber(out, static_cast<uint32_t>(extents.size()));
  uint32_t end = 0;
  for (const ChunkExtent& extent : extents) {
    PutNumber(out, extent.begin - end);
    PutNumber(out, extent.count);
    end = extent.begin + extent.count;
  }
  if (out.bytes().size() % 2 == 0) out.U8(0);
  return out.Take();
}

// What the extents leave of a chunk.
ChunkExtents RestOf(const ChunkExtents& extents, uint32_t count) {
  ChunkExtents rest;
  uint32_t end = 0;
  for (const ChunkExtent& extent : extents) {
    if (extent.begin > end) rest.push_back({end, extent.begin - end});
    end = extent.begin + extent.count;
  }
  if (count > end) rest.push_back({end, count - end});
  return rest;
}

// Appends the values of `extents`.
template <class Scalar>
void Pack(WireFormat wire, const ChunkExtents& extents, std::span<const Scalar> values,
          Bytes& out) {
  size_t at = out.size();
  out.resize(at + ElementsOf(extents) * WireWidth<Scalar>(wire));
  for (const ChunkExtent& extent : extents) {
    const size_t bytes = extent.count * WireWidth<Scalar>(wire);
    EncodeWire(wire, values.subspan(extent.begin, extent.count),
               std::span<uint8_t>(out).subspan(at, bytes));
    at += bytes;
  }
}

// Takes them from the front of `values`.
template <class Scalar>
void Unpack(WireFormat wire, const ChunkExtents& extents, ByteView& values, std::span<Scalar> out) {
  for (const ChunkExtent& extent : extents) {
    const size_t bytes = extent.count * WireWidth<Scalar>(wire);
    DecodeWire(wire, values.first(bytes), out.subspan(extent.begin, extent.count));
    values = values.subspan(bytes);
  }
}

}  // namespace

std::optional<MaskedChunk> ReadMasked(MaskedForm form, ByteView chunk, uint32_t count) {
  if (!IsMasked(chunk)) return std::nullopt;
  ByteReader in(chunk);
  if (in.U8() != static_cast<uint8_t>(form)) return std::nullopt;
  const uint32_t extents = GetNumber(in);
  // Each extent takes two bytes at least: bounds the reservation.
  if (!in.ok() || extents > in.remaining() / 2) return std::nullopt;
  MaskedChunk read;
  read.extents.reserve(extents);
  uint32_t end = 0;
  for (uint32_t i = 0; i < extents; ++i) {
    const uint32_t gap = GetNumber(in);
    const uint32_t length = GetNumber(in);
    // Extents that touch are one: there is a single way to write them.
    const bool touches = i > 0 && gap == 0;
    if (!in.ok() || touches || length == 0 || gap > count - end || length > count - end - gap)
      return std::nullopt;
    read.extents.push_back({end + gap, length});
    end += gap + length;
  }
  const size_t head = chunk.size() - in.remaining();
  if (head % 2 == 0 && in.U8() != 0) return std::nullopt;
  if (!in.ok()) return std::nullopt;
  read.values = chunk.subspan(head + (head % 2 == 0 ? 1 : 0));
  return read;
}

template <class Scalar>
bool MaskedIsSound(MaskedForm form, WireFormat wire, ByteView chunk, uint32_t count) {
  if (wire == WireFormat::kInt8) return false;  // changes are of all coordinates
  const auto read = ReadMasked(form, chunk, count);
  if (!read) return false;
  const uint64_t inside = ElementsOf(read->extents);
  // An input that covers everything travels as a plain chunk.
  if (form == MaskedForm::kInput)
    return inside < count && WireIsSound<Scalar>(wire, read->values, inside);
  const size_t others = (count - inside) * WireWidth<Scalar>(wire);
  // A result without an extent would be a plain one.
  return inside > 0 && read->values.size() >= others &&
         WireIsSound<Scalar>(wire, read->values.first(others), count - inside) &&
         WireIsSound<Scalar>(WireFormat::kFloat32, read->values.subspan(others), inside);
}

template <class Scalar>
Bytes EncodeMaskedInput(WireFormat wire, const ChunkExtents& covered,
                        std::span<const Scalar> values) {
  Bytes out = HeadOf(MaskedForm::kInput, covered);
  Pack(wire, covered, values, out);
  return out;
}

template <class Scalar>
Bytes EncodeMaskedResult(WireFormat wire, const ChunkExtents& kept,
                         std::span<const Scalar> values) {
  Bytes out = HeadOf(MaskedForm::kResult, kept);
  Pack(wire, RestOf(kept, static_cast<uint32_t>(values.size())), values, out);
  Pack(WireFormat::kFloat32, kept, values, out);  // as they are
  return out;
}

template <class Scalar>
ChunkExtents DecodeMaskedResult(WireFormat wire, ByteView chunk, std::span<Scalar> out) {
  auto read = ReadMasked(MaskedForm::kResult, chunk, static_cast<uint32_t>(out.size()));
  CHECK(read.has_value());
  Unpack(wire, RestOf(read->extents, static_cast<uint32_t>(out.size())), read->values, out);
  Unpack(WireFormat::kFloat32, read->extents, read->values, out);
  return std::move(read->extents);
}

template bool MaskedIsSound<float>(MaskedForm, WireFormat, ByteView, uint32_t);
template bool MaskedIsSound<double>(MaskedForm, WireFormat, ByteView, uint32_t);
template Bytes EncodeMaskedInput<float>(WireFormat, const ChunkExtents&, std::span<const float>);
template Bytes EncodeMaskedInput<double>(WireFormat, const ChunkExtents&, std::span<const double>);
template Bytes EncodeMaskedResult<float>(WireFormat, const ChunkExtents&, std::span<const float>);
template Bytes EncodeMaskedResult<double>(WireFormat, const ChunkExtents&, std::span<const double>);
template ChunkExtents DecodeMaskedResult<float>(WireFormat, ByteView, std::span<float>);
template ChunkExtents DecodeMaskedResult<double>(WireFormat, ByteView, std::span<double>);

}  // namespace crowdsurf::worker
