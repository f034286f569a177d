// Fields of the round's frames that several kinds of frame share: canonical little-endian bytes.
//
// The codec of frames (round_codec.h) is made of these. Get reads what Put wrote; on anything else,
// or beyond a limit, the reader has failed afterwards (ByteReader::ok) and the field is
// unspecified, having allocated no more than the input is long, times a constant. Manifests say
// which chunks are held, then runs of what is alike, then the 8-byte hashes. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker::round_fields {

template <class Tag, size_t kSize>
void Put(ByteWriter& out, const FixedId<Tag, kSize>& id) {
  out.Raw(id.view());
}
template <class Tag, size_t kSize>
void Get(ByteReader& in, FixedId<Tag, kSize>& id) {
  const auto read = FixedId<Tag, kSize>::From(in.Raw(kSize));
  if (read) id = *read;
}

void Put(ByteWriter& out, const RegisterAge& age);
void Get(ByteReader& in, RegisterAge& age);

void Put(ByteWriter& out, const std::vector<ChunkIndex>& chunks);  // at most kMaxChunks are read
void Get(ByteReader& in, std::vector<ChunkIndex>& chunks);

void Put(ByteWriter& out, const std::map<uint8_t, Stake>& stakes);  // by rank
void Get(ByteReader& in, std::map<uint8_t, Stake>& stakes);

void Put(ByteWriter& out, const std::vector<ChunkValue>& chunks);
void Get(ByteReader& in, std::vector<ChunkValue>& chunks);

void Put(ByteWriter& out, const std::vector<PlanChunk>& chunks);
void Get(ByteReader& in, std::vector<PlanChunk>& chunks);

void Put(ByteWriter& out, const HeldValue& held);
void Get(ByteReader& in, HeldValue& held);

}  // namespace crowdsurf::worker::round_fields
