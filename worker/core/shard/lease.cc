#include "worker/core/shard/lease.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace crowdsurf::worker {
namespace {

constexpr size_t kClaimBytes = 32 + 8 + 8 + 4;
constexpr uint64_t kMaxAveraging = 1ULL << 48;  // kMaxNumber of view.h

bool ByPeer(const LeaseClaim& a, const LeaseClaim& b) { return a.peer < b.peer; }

bool Further(const LeaseClaim& a, const LeaseClaim& b) {
  const auto key = [](const LeaseClaim& claim) {
    return std::tuple(claim.trained.stream, claim.trained.position, claim.want);
  };
  return key(a) > key(b);
}

}  // namespace

bool IsValid(const DataSpec& spec) {
  if (spec.none()) return spec == DataSpec();
  return spec.samples <= kMaxDataSamples && spec.unit >= 1 && spec.unit <= kMaxUnit;
}

bool IsValid(const ClaimSet& claims) {
  if (!IsValid(claims.spec) || claims.claims.size() > kMaxClaims) return false;
  if (claims.none()) return claims == ClaimSet();
  if (claims.base.averaging.value() > kMaxAveraging) return false;
  for (size_t i = 0; i < claims.claims.size(); ++i) {
    const LeaseClaim& claim = claims.claims[i];
    if (i > 0 && !ByPeer(claims.claims[i - 1], claim)) return false;
    if (claim.want > kMaxWant || claim.trained.stream > kMaxAveraging ||
        claim.trained.position > kMaxStreamPosition)
      return false;
  }
  return true;
}

void Merge(const ClaimSet& claims, ClaimSet& sum) {
  if (claims.none()) return;
  // A member with a ledger knows the job's data set; without one the greater stands.
  const auto rank = [](const ClaimSet& set) {
    return std::pair(!set.base.averaging.is_zero(), set.spec);
  };
  const bool other = sum.spec != claims.spec;
  if (other && rank(sum) > rank(claims)) return;
  if (other) sum = {.spec = claims.spec, .base = {}, .claims = {}};
  sum.base = std::max(sum.base, claims.base);
  for (const LeaseClaim& claim : claims.claims) {
    const auto at = std::lower_bound(sum.claims.begin(), sum.claims.end(), claim, ByPeer);
    if (at != sum.claims.end() && at->peer == claim.peer) {
      if (Further(claim, *at)) *at = claim;
    } else if (sum.claims.size() < kMaxClaims) {
      sum.claims.insert(at, claim);
    }
  }
}

void Encode(const DataSpec& spec, ByteWriter& out) {
  out.U64(spec.samples);
  out.U32(spec.unit);
  out.U64(spec.seed);
}

DataSpec DecodeDataSpec(ByteReader& in) {
  DataSpec spec;
  spec.samples = in.U64();
  spec.unit = in.U32();
  spec.seed = in.U64();
  if (!IsValid(spec)) in.Fail();
  return spec;
}

void Encode(const LedgerMark& mark, ByteWriter& out) {
  out.U64(mark.averaging.value());
  out.U64(mark.hash);
}

LedgerMark DecodeLedgerMark(ByteReader& in) {
  LedgerMark mark;
  mark.averaging = AveragingId(in.U64());
  mark.hash = in.U64();
  if (mark.averaging.value() > kMaxAveraging) in.Fail();
  return mark;
}

void Encode(const ClaimSet& claims, ByteWriter& out) {
  Encode(claims.spec, out);
  Encode(claims.base, out);
  out.U32(static_cast<uint32_t>(claims.claims.size()));
  for (const LeaseClaim& claim : claims.claims) {
    out.Raw(claim.peer.view());
    out.U64(claim.trained.stream);
    out.U64(claim.trained.position);
    out.U32(claim.want);
  }
}

ClaimSet DecodeClaims(ByteReader& in) {
  ClaimSet claims;
  claims.spec = DecodeDataSpec(in);
  claims.base = DecodeLedgerMark(in);
  claims.claims.resize(in.Count(kMaxClaims, kClaimBytes));
  for (LeaseClaim& claim : claims.claims) {
    claim.peer = ReadId<PeerId>(in);
    claim.trained.stream = in.U64();
    claim.trained.position = in.U64();
    claim.want = in.U32();
  }
  // No claims have no encoding: there is one for each stake.
  if (claims.none() || !IsValid(claims)) in.Fail();
  return claims;
}

}  // namespace crowdsurf::worker
