#include "worker/edge/tensor/tensor_frame.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kFrameMagic = 0x31544643;  // the bytes "CFT1"

}  // namespace

// The order and widths of docs/data-plane.md.
TensorHeaderBytes EncodeTensorHeader(const TensorHeader& header) {
  ByteWriter out;
  out.U32(kFrameMagic);
  out.U8(static_cast<uint8_t>(header.kind));
  out.U8(header.rank);
  out.U16(header.assigned);
  out.U32(header.payload_bytes);
  out.U32(header.chunk);
  out.Raw(header.instance.view());
  out.U64(header.mask);
  out.U64(header.hash);
  TensorHeaderBytes bytes;
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

std::optional<TensorHeader> DecodeTensorHeader(ByteView bytes) {
  ByteReader in(bytes);
  TensorHeader header;
  if (in.U32() != kFrameMagic) return std::nullopt;
  const uint8_t kind = in.U8();
  header.kind = static_cast<TensorKind>(kind);
  header.rank = in.U8();
  header.assigned = in.U16();
  header.payload_bytes = in.U32();
  header.chunk = in.U32();
  const ByteView instance = in.Raw(InstanceId::kBytes);
  header.mask = in.U64();
  header.hash = in.U64();
  if (!in.Done()) return std::nullopt;
  header.instance = *InstanceId::From(instance);
  if (kind < static_cast<uint8_t>(TensorKind::kHello) ||
      kind > static_cast<uint8_t>(TensorKind::kMix)) {
    return std::nullopt;
  }
  // The receiver allocates what the header names, so each kind has its bound here.
  size_t most = kMaxTensorPayload;
  if (header.kind == TensorKind::kHello) most = kMaxTensorHello;
  if (header.kind == TensorKind::kGoodbye) most = 0;
  if (header.payload_bytes > most || header.rank >= kMaxRanks) return std::nullopt;
  return header;
}

uint64_t TensorPayloadHash(const InstanceId& instance, ByteView payload) {
  return ContentHash(payload, ContentKey(instance));
}

void SetTensorHash(TensorHeaderBytes& header, ByteView payload) {
  std::optional<TensorHeader> decoded = DecodeTensorHeader(header);
  CHECK(decoded.has_value());
  decoded->hash = TensorPayloadHash(decoded->instance, payload);
  header = EncodeTensorHeader(*decoded);
}

bool IsHashed(TensorKind kind, TensorWire wire) {
  return kind != TensorKind::kInput || wire != TensorWire::kTls;
}

Bytes EncodeTensorHello(const TensorHello& hello) {
  ByteWriter out;
  out.U32(hello.token ? TensorHello::kVersionWithToken : TensorHello::kVersion);
  out.String(hello.job);
  out.Raw(hello.id.view());
  out.U64(hello.boot);
  out.String(hello.listen);
  if (hello.token) out.Raw(hello.token->view());
  return out.Take();
}

std::optional<TensorHello> DecodeTensorHello(ByteView payload) {
  ByteReader in(payload);
  TensorHello hello;
  const uint32_t version = in.U32();
  if (version != TensorHello::kVersion && version != TensorHello::kVersionWithToken)
    return std::nullopt;
  hello.job = in.String(256);
  const auto id = PeerId::From(in.Raw(PeerId::kBytes));
  hello.boot = in.U64();
  // A DNS name has at most 253 characters; a port and brackets follow.
  hello.listen = in.String(300);
  if (version == TensorHello::kVersionWithToken) hello.token = ReadId<TensorToken>(in);
  if (!in.Done() || !id) return std::nullopt;
  hello.id = *id;
  return hello;
}

}  // namespace crowdsurf::worker
