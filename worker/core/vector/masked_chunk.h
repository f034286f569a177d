// Masked chunk: a chunk's bytes on the wire when they are not simply all its values in a row.
//
// Two forms, told apart from a plain chunk by their length alone: values have two, four or eight
// bytes, so a plain chunk has an even number of them, and the head of a masked one is made odd. So
// the form is part of what the content hash covers, a peer that knows no masks finds a chunk of a
// wrong size (counted and left out, as any other), and a chunk that is covered whole travels as
// ever.
//   u8 form, then LEB128: how many extents; for each how far it begins after the last one's end,
//   and its length; one zero byte where the head would be even without it; the values.
// kInput: the extents are what the sender covers; their values follow, in the wire's format.
// kResult: the extents are what nobody covered. The other values follow, in the wire's format, then
// these as they are, not rounded: they keep the old value to the bit under any compression.
// Pure functions over spans; any thread; O(bytes). Everything of a peer is checked by
// MaskedIsSound; an extent costs two bytes at least, so nothing is allocated beyond four times
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {

enum class MaskedForm : uint8_t { kInput = 1, kResult = 2 };

inline bool IsMasked(ByteView chunk) { return chunk.size() % 2 == 1; }

struct MaskedChunk {
  ChunkExtents extents;
  ByteView values;  // into the bytes that were read
};
// nullopt: another form, or a head that is not the one way to write its extents within a chunk of
// `count` elements. The values' size is not looked at.
std::optional<MaskedChunk> ReadMasked(MaskedForm form, ByteView chunk, uint32_t count);

// Also the values: exactly those that the form wants, none NaN or infinite; and the extents of an
// input do not cover the chunk whole, those of a result cover something.
template <class Scalar>
bool MaskedIsSound(MaskedForm form, WireFormat wire, ByteView chunk, uint32_t count);

// `values`: of the whole chunk. Pre: the extents lie within them.
template <class Scalar>
Bytes EncodeMaskedInput(WireFormat wire, const ChunkExtents& covered,
                        std::span<const Scalar> values);
template <class Scalar>
Bytes EncodeMaskedResult(WireFormat wire, const ChunkExtents& kept, std::span<const Scalar> values);

// Writes the chunk's values and returns what nobody covered. Pre: MaskedIsSound, as a result of
// out.size() elements. Encoding what was decoded gives the same bytes.
template <class Scalar>
ChunkExtents DecodeMaskedResult(WireFormat wire, ByteView chunk, std::span<Scalar> out);

}  // namespace crowdsurf::worker
