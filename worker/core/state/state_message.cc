#include "worker/core/state/state_message.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

enum Kind : uint8_t {
  kManifestRequest = 1,
  kManifestReply,
  kChunkRequest,
  kChunkReply,
  kFetchOver
};

// What a manifest may claim; those made here have kStateChunkBytes.
constexpr uint32_t kMinChunkBytes = 4 * 1024, kMaxChunkBytes = 16 << 20;

Digest ReadDigest(ByteReader& in) {
  return Digest::From(in.Raw(Digest::kBytes)).value_or(Digest());
}

void WriteManifest(const StateManifest& m, ByteWriter& out) {
  out.U64(m.averaging.value());
  out.Raw(m.committed.view());
  out.Raw(m.schema.view());
  out.U64(m.elements);
  out.U32(m.chunk_bytes);
  out.F64(m.job_samples);
  out.U64(m.view_epoch);
  out.U64(m.hash_key);
  out.U32(static_cast<uint32_t>(m.parts.size()));
  for (const uint64_t part : m.parts) out.U64(part);
  out.U32(static_cast<uint32_t>(m.chunk_hashes.size()));
  for (const uint64_t h : m.chunk_hashes) out.U64(h);
}

uint64_t ChunksOf(uint64_t elements, uint32_t chunk_bytes) {
  return (elements * sizeof(float) + chunk_bytes - 1) / chunk_bytes;
}

// The parts and the count of chunks are what the sizes say. All in 64 bits: bounded by the limits.
bool IsSound(const StateManifest& m) {
  const uint64_t most = kMaxStateChunks * static_cast<uint64_t>(kMaxChunkBytes) / sizeof(float);
  if (m.chunk_bytes < kMinChunkBytes || m.chunk_bytes > kMaxChunkBytes ||
      m.chunk_bytes % sizeof(float) != 0 || m.elements == 0 || m.elements > most ||
      !(m.job_samples >= 0))
    return false;
  uint64_t elements = 0, chunks = 0;
  for (const uint64_t part : m.parts) {
    if (part == 0 || part > m.elements - elements) return false;
    elements += part;
    chunks += ChunksOf(part, m.chunk_bytes);
  }
  return elements == m.elements && chunks == m.chunk_hashes.size();
}

StateManifest ReadManifest(ByteReader& in) {
  StateManifest m;
  m.averaging = AveragingId(in.U64());
  m.committed = ReadDigest(in);
  m.schema = ReadDigest(in);
  m.elements = in.U64();
  m.chunk_bytes = in.U32();
  m.job_samples = in.F64();
  m.view_epoch = in.U64();
  m.hash_key = in.U64();
  m.parts.resize(in.Count(kMaxStateParts, 8));
  for (uint64_t& part : m.parts) part = in.U64();
  m.chunk_hashes.resize(in.Count(kMaxStateChunks, 8));
  for (uint64_t& h : m.chunk_hashes) h = in.U64();
  if (!IsSound(m)) in.Fail();
  return m;
}

StateRefusal ReadRefusal(ByteReader& in) {
  const uint8_t v = in.U8();
  if (v > static_cast<uint8_t>(StateRefusal::kGone)) in.Fail();
  return static_cast<StateRefusal>(v);
}

struct Encoder {
  ByteWriter& out;
  void operator()(const ManifestRequest& m) const {
    out.U8(kManifestRequest);
    out.U64(m.averaging.value());
  }
  void operator()(const ManifestReply& m) const {
    out.U8(kManifestReply);
    out.U8(static_cast<uint8_t>(m.refusal));
    if (m.refusal != StateRefusal::kNone) return;
    WriteManifest(m.manifest, out);
    out.U64(m.opaque.bytes);
    out.Raw(m.opaque.hash.view());
  }
  void operator()(const ChunkRequest& m) const {
    out.U8(kChunkRequest);
    out.Raw(m.root.view());
    out.Bool(m.opaque);
    out.U32(m.chunk);
  }
  void operator()(const ChunkReply& m) const {
    out.U8(kChunkReply);
    out.Raw(m.root.view());
    out.Bool(m.opaque);
    out.U32(m.chunk);
    out.U8(static_cast<uint8_t>(m.refusal));
  }
  void operator()(const FetchOver&) const { out.U8(kFetchOver); }
};

}  // namespace

StateManifest::Bounds StateManifest::BoundsOf(size_t chunk) const {
  CHECK_LT(chunk, chunks());
  uint64_t begin = 0;  // of the part
  for (const uint64_t part : parts) {
    const uint64_t end = begin + part * sizeof(float);
    const uint64_t count = ChunksOf(part, chunk_bytes);
    if (chunk < count) {
      const uint64_t at = begin + chunk * static_cast<uint64_t>(chunk_bytes);
      return {at, std::min<uint64_t>(at + chunk_bytes, end)};
    }
    chunk -= count;
    begin = end;
  }
  CHECK(false);
  return {};
}

uint64_t StateManifest::Hash(ByteView bytes) const { return ContentHash(bytes, hash_key); }

Digest StateManifest::Root() const {
  // The root is a hash of the whole manifest, so it names every chunk.
  ByteWriter out;
  WriteManifest(*this, out);
  return Sha256(out.bytes());
}

StateManifest MakeStateManifest(const StateValues& values, AveragingId averaging,
                                const Digest& committed, const Digest& schema) {
  CHECK(!values.average.empty());
  StateManifest m;
  m.averaging = averaging;
  m.committed = committed;
  m.schema = schema;
  m.elements = values.elements();
  m.parts = {m.elements};
  Bytes both;  // one chunk may hold the average's end and the velocity's beginning
  for (uint64_t at = 0; at < values.bytes(); at += m.chunk_bytes) {
    const uint64_t size = std::min<uint64_t>(m.chunk_bytes, values.bytes() - at);
    m.chunk_hashes.push_back(m.Hash(values.At(at, size, both)));
  }
  CHECK_LE(m.chunk_hashes.size(), kMaxStateChunks);
  return m;
}

StateManifest MakeStateManifest(std::span<const float> average, AveragingId averaging,
                                const Digest& committed, const Digest& schema) {
  return MakeStateManifest(StateValues{.average = average}, averaging, committed, schema);
}

std::optional<StateManifest> ManifestOf(const ResultHashes& hashes, AveragingId averaging,
                                        const Digest& schema) {
  StateManifest m;
  m.averaging = averaging;
  m.schema = schema;
  m.elements = std::accumulate(hashes.parts.begin(), hashes.parts.end(), uint64_t{0});
  m.chunk_bytes = hashes.chunk_elements * static_cast<uint32_t>(sizeof(float));
  m.hash_key = hashes.key;
  m.parts = hashes.parts;
  m.chunk_hashes = hashes.of_chunk;
  return IsSound(m) ? std::optional(std::move(m)) : std::nullopt;
}

Bytes EncodeStateMessage(const StateMessage& message) {
  ByteWriter out;
  std::visit(Encoder{out}, message);
  return out.Take();
}

std::optional<DecodedState> DecodeStateMessage(ByteView bytes) {
  ByteReader in(bytes);
  DecodedState decoded;
  switch (in.U8()) {
    case kManifestRequest:
      decoded.message = ManifestRequest{AveragingId(in.U64())};
      break;
    case kManifestReply: {
      ManifestReply m;
      m.refusal = ReadRefusal(in);
      if (m.refusal == StateRefusal::kNone) {
        m.manifest = ReadManifest(in);
        m.opaque.bytes = in.U64();
        m.opaque.hash = ReadDigest(in);
      }
      decoded.message = std::move(m);
      break;
    }
    case kChunkRequest: {
      const Digest root = ReadDigest(in);
      const bool opaque = in.Bool();
      decoded.message = ChunkRequest{root, opaque, in.U32()};
      break;
    }
    case kChunkReply: {
      ChunkReply m;
      m.root = ReadDigest(in);
      m.opaque = in.Bool();
      m.chunk = in.U32();
      m.refusal = ReadRefusal(in);
      // The rest is the payload, and stays where it is.
      decoded.payload = in.Raw(in.remaining());
      decoded.message = m;
      break;
    }
    case kFetchOver:
      decoded.message = FetchOver{};
      break;
    default:
      return std::nullopt;
  }
  if (!in.Done()) return std::nullopt;
  return decoded;
}

}  // namespace crowdsurf::worker
