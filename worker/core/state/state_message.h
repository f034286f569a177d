// State messages: what a joiner and its donors say to each other, with their codec.
//
// Purpose: manifests (what the last committed average consists of) and chunks of it, carried by the
// tensor connections. Values; decoding is bounded and gives nullopt for anything garbled, the
// caller counts it. The bytes of a chunk follow its header in the frame and are never copied into a
// message. Chunk hashes are base ContentHash: they find corruption and mismatches. Mutual TLS keeps
// forgers out; in the clear nothing does, as manifests travel beside their chunks. The root over
// the hashes and the opaque state's hash are SHA-256. Source: ours; docs/data-plane.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/state/state_values.h"
#include "worker/core/vector/result_hashes.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

inline constexpr uint32_t kStateChunkBytes = 256 * 1024;  // docs/data-plane.md
inline constexpr size_t kMaxStateChunks = 1 << 20;        // 256 GiB; bounds a manifest to 8 MiB
inline constexpr size_t kMaxStateParts = 64;              // members of a round
inline constexpr uint64_t kStateHashKey = 0x6a6f696e'6a6f696e;  // "joinjoin": the hashes' domain

// A committed state as content-addressed chunks of the float32 bytes of its values
// (state_values.h). The chunks of a part have chunk_bytes, but for its last one, and parts follow
// each other. What a round decided is described by the hashes of its results (ResultHashes), with
// its parts; all other states are one part, and their hashes have kStateHashKey.
struct StateManifest {
  AveragingId averaging = {};  // number of the committed average
  Digest committed;            // its root as decided by the round and announced in the roster
  Digest schema;               // of the trainer link
  uint64_t elements = 0;       // float32 values
  uint32_t chunk_bytes = kStateChunkBytes;
  double job_samples = 0;
  uint64_t view_epoch = 0;
  uint64_t hash_key = kStateHashKey;
  std::vector<uint64_t> parts;         // elements, none of them 0; together `elements`
  std::vector<uint64_t> chunk_hashes;  // ContentHash(bytes, hash_key)

  size_t chunks() const { return chunk_hashes.size(); }
  // The bytes [begin, end) of one chunk. O(parts). Pre: there is such a chunk.
  struct Bounds {
    uint64_t begin = 0, end = 0;
    uint64_t size() const { return end - begin; }
  };
  Bounds BoundsOf(size_t chunk) const;
  uint64_t Hash(ByteView bytes) const;  // what that of a chunk with these bytes is
  // SHA-256 over everything above: the name of this content.
  Digest Root() const;
  bool operator==(const StateManifest&) const = default;
};

// The manifest of `values`: hashes everything, about 0.1 s a gigabyte. Pre: there are some.
StateManifest MakeStateManifest(const StateValues& values, AveragingId averaging,
                                const Digest& committed, const Digest& schema);
// Of an average alone.
StateManifest MakeStateManifest(std::span<const float> average, AveragingId averaging,
                                const Digest& committed, const Digest& schema);
// The same of values that lie as a round has decided them: hashes none of them. nullopt: its chunks
// are too small or too large for a manifest.
std::optional<StateManifest> ManifestOf(const ResultHashes& hashes, AveragingId averaging,
                                        const Digest& schema);

// The trainer's own state of one donor; empty when bytes == 0. Not part of the root: every donor
// has its own.
struct OpaqueState {
  uint64_t bytes = 0;
  Digest hash;  // SHA-256
  bool operator==(const OpaqueState&) const = default;
};

struct ManifestRequest {
  AveragingId averaging = {};  // 0: the newest
  bool operator==(const ManifestRequest&) const = default;
};
enum class StateRefusal : uint8_t { kNone = 0, kNothing = 1, kBusy = 2, kGone = 3 };
struct ManifestReply {
  StateRefusal refusal = StateRefusal::kNone;
  StateManifest manifest;  // when not refused
  OpaqueState opaque;
  bool operator==(const ManifestReply&) const = default;
};
struct ChunkRequest {
  Digest root;
  bool opaque =
      false;  // of the opaque state with SHA-256 `root`, else of the average with Root() `root`
  uint32_t chunk = 0;
  bool operator==(const ChunkRequest&) const = default;
};
struct ChunkReply {  // the payload follows in the frame
  Digest root;
  bool opaque = false;
  uint32_t chunk = 0;
  StateRefusal refusal = StateRefusal::kNone;
  bool operator==(const ChunkReply&) const = default;
};
// A joiner's last word to each donor, whether it has everything or gave up: its place is free. Not
// answered; one that never says it loses its place by silence.
struct FetchOver {
  bool operator==(const FetchOver&) const = default;
};
using StateMessage =
    std::variant<ManifestRequest, ManifestReply, ChunkRequest, ChunkReply, FetchOver>;

// Of a ChunkReply: the header; append the chunk's bytes.
Bytes EncodeStateMessage(const StateMessage& message);

struct DecodedState {
  StateMessage message;
  ByteView payload;  // borrowed; only a ChunkReply has one
};
std::optional<DecodedState> DecodeStateMessage(ByteView bytes);

}  // namespace crowdsurf::worker
