// The ledger as bytes: for members that missed an averaging, and in checkpoints (lease_ledger.h).
#include "worker/core/shard/lease_ledger.h"

namespace crowdsurf::worker {
namespace {

constexpr uint8_t kFormat = 1;
constexpr size_t kLeaseBytes = 24;
constexpr size_t kHolderBytes = 32 + 8 + 8 + 4;

void Put(const Lease& lease, ByteWriter& out) {
  out.U64(lease.epoch);
  out.U64(lease.begin);
  out.U64(lease.count);
}

Lease GetLease(ByteReader& in) {
  Lease lease;
  lease.epoch = in.U64();
  lease.begin = in.U64();
  lease.count = in.U64();
  return lease;
}

bool Fits(const Lease& lease, const DataSpec& spec, const Lease& next) {
  return lease.count > 0 && lease.epoch <= next.epoch && lease.begin < spec.samples &&
         lease.count <= spec.samples - lease.begin;
}

}  // namespace

Bytes LeaseLedger::Encode() const {
  ByteWriter out;
  out.U8(kFormat);
  crowdsurf::worker::Encode(spec_, out);
  crowdsurf::worker::Encode(mark_, out);
  Put(next_, out);
  out.U64(totals_.committed);
  out.U64(totals_.returned);
  out.U64(totals_.void_claims);
  out.U32(static_cast<uint32_t>(returned_.size()));
  for (const Lease& lease : returned_) Put(lease, out);
  out.U32(static_cast<uint32_t>(holders_.size()));
  for (const auto& [peer, holder] : holders_) {
    out.Raw(peer.view());
    out.U64(holder.stream);
    out.U64(holder.position);
    out.U32(static_cast<uint32_t>(holder.open.size()));
    for (const Lease& lease : holder.open) Put(lease, out);
  }
  return out.Take();
}

std::optional<LeaseLedger> LeaseLedger::Decode(ByteView bytes) {
  ByteReader in(bytes);
  LeaseLedger ledger;
  if (in.U8() != kFormat) return std::nullopt;
  ledger.spec_ = DecodeDataSpec(in);
  ledger.mark_ = DecodeLedgerMark(in);
  ledger.next_ = GetLease(in);
  ledger.totals_.committed = in.U64();
  ledger.totals_.returned = in.U64();
  ledger.totals_.void_claims = in.U64();
  const uint32_t returned = in.Count(2 * kMaxOpen, kLeaseBytes);
  for (uint32_t i = 0; i < returned && in.ok(); ++i) ledger.returned_.insert(GetLease(in));
  const uint32_t holders = in.Count(kMaxClaims, kHolderBytes);
  for (uint32_t i = 0; i < holders && in.ok(); ++i) {
    const auto peer = ReadId<PeerId>(in);
    Holder& holder = ledger.holders_[peer];
    holder.stream = in.U64();
    holder.position = in.U64();
    if (holder.position > kMaxStreamPosition || holder.stream > kMaxEpoch) in.Fail();
    const uint32_t open = in.Count(2 * kMaxOpen, kLeaseBytes);
    for (uint32_t l = 0; l < open && in.ok(); ++l) holder.open.push_back(GetLease(in));
  }
  if (!in.Done() || ledger.returned_.size() != returned || ledger.holders_.size() != holders ||
      !ledger.Whole())
    return std::nullopt;
  if (!ledger.empty() && ledger.mark_.hash != ledger.HashOfContents()) return std::nullopt;
  return ledger;
}

// A state that Commit makes: every lease lies in the data set, and no sample is in two places.
bool LeaseLedger::Whole() const {
  if (spec_.none()) return *this == LeaseLedger();
  if (next_.epoch > kMaxEpoch || next_.begin >= spec_.samples || next_.count != 0) return false;
  std::set<Lease> all = returned_;
  size_t leases = returned_.size();
  for (const auto& [peer, holder] : holders_) {
    all.insert(holder.open.begin(), holder.open.end());
    leases += holder.open.size();
  }
  if (all.size() != leases) return false;
  const Lease* before = nullptr;
  for (const Lease& lease : all) {
    if (!Fits(lease, spec_, next_)) return false;
    if (lease.epoch == next_.epoch && lease.begin + lease.count > next_.begin) return false;
    if (before != nullptr && before->epoch == lease.epoch &&
        before->begin + before->count > lease.begin)
      return false;
    before = &lease;
  }
  return true;
}

}  // namespace crowdsurf::worker
