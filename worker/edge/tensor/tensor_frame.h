// Tensor frame: what travels on a tensor connection: a fixed header of 48 bytes, then the payload.
//
// Little-endian: u32 magic, u8 kind, u8 rank, u16 assigned, u32 payload bytes, u32 chunk, 16 bytes
// instance, u64 mask, u64 hash (ContentHash of the payload, keyed by the instance; IsHashed). What
// comes from a peer is checked here; a violation names a reason of a closed set and ends the
// connection. Values; any thread. Bound: kMaxTensorPayload.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/link/tensor_tokens.h"
#include "worker/core/round/round_frames.h"

namespace crowdsurf::worker {

enum class TensorKind : uint8_t {
  kHello = 1,    // first frame each way: who I am
  kInput = 2,    // values of `rank` for (chunk, assigned), own or as a stand-in
  kResult = 3,   // the owner's mean of (chunk, assigned), contributors in `mask`
  kState = 4,    // request or reply of a state transfer; the payload says which
  kMix = 6,      // a chunk of a strategy on a graph: rank is its tag, assigned the models in it,
                 // mask its sequence; the payload begins with the models' lag, i64
  kGoodbye = 5,  // this connection is closed in good order: no sign of death
};

inline bool IsChunk(TensorKind kind) {  // of a round
  return kind == TensorKind::kInput || kind == TensorKind::kResult;
}

inline constexpr size_t kTensorHeaderBytes = 48;
// Values of a chunk, 127 KiB of float32: they are reduced while they lie in the L2 cache. With its
// header, and with the heads and tags of nine TLS records, a frame fills two of the largest packets
// that the kernel makes for an MTU of 1,500: 45 segments of 1,448 bytes each. With 128 KiB it took
// a third, small one.
inline constexpr size_t kChunkElements = 32'512;
static_assert(kTensorHeaderBytes + 4 * kChunkElements + size_t{9} * 22 <= size_t{2} * 45 * 1448);
// A state piece of 1 MiB and its envelope; chunks of a round are smaller.
inline constexpr size_t kMaxTensorPayload = (1 << 20) + 4096;
inline constexpr size_t kMaxTensorHello = 1024;
inline constexpr size_t kMixLagBytes = 8;

struct TensorHeader {
  TensorKind kind = TensorKind::kInput;
  uint8_t rank = 0;
  Ballot assigned = 0;
  uint32_t payload_bytes = 0;
  uint32_t chunk = 0;
  InstanceId instance{};
  uint64_t mask = 0;  // kResult: RankSet::bits of the contributors; kMix: a sequence number
  uint64_t hash = 0;
  bool operator==(const TensorHeader&) const = default;
};

using TensorHeaderBytes = std::array<uint8_t, kTensorHeaderBytes>;
TensorHeaderBytes EncodeTensorHeader(const TensorHeader& header);
// nullopt: not ours, an unknown kind, a rank above 63, or a payload over the bound of its kind.
std::optional<TensorHeader> DecodeTensorHeader(ByteView bytes);  // pre: kTensorHeaderBytes long

// ContentHash of a frame's payload, keyed by its instance: what `hash` must be.
uint64_t TensorPayloadHash(const InstanceId& instance, ByteView payload);
// Writes it into a header that has none. Pre: EncodeTensorHeader made the header.
void SetTensorHash(TensorHeaderBytes& header, ByteView payload);

enum class TensorWire : uint8_t { kPlain, kTls };
// False: `hash` is 0, and nobody looks at it. That is an input in TLS: each record has a tag, and
// an input's hash is of no further use. A result's is what members agree on.
bool IsHashed(TensorKind kind, TensorWire wire);

struct TensorHello {
  static constexpr uint32_t kVersion = 1, kVersionWithToken = 2;
  std::string job;
  PeerId id;           // what the sender says; with TLS it is computed and must agree
  uint64_t boot = 0;   // with the certificate's key it gives the id
  std::string listen;  // host:port of the sender's own tensor listener
  std::optional<TensorToken> token = {};  // in the clear: the half that the sender shows
};
Bytes EncodeTensorHello(const TensorHello& hello);
std::optional<TensorHello> DecodeTensorHello(
    ByteView payload);  // nullopt: garbled or other version

}  // namespace crowdsurf::worker
