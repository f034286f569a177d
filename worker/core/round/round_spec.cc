#include "worker/core/round/round_spec.h"

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {
namespace {

void PutPeers(ByteWriter& out, const std::set<PeerId>& peers) {
  out.U32(static_cast<uint32_t>(peers.size()));
  for (const PeerId& peer : peers) out.Raw(peer.view());
}

void PutAge(const ModelAge& age, ByteWriter& out) {
  out.F64(age.steps);
  out.U32(age.members);
  out.U64(age.agreed.averaging.value());
  out.F64(age.agreed.scale);
}

ModelAge GetAge(ByteReader& in) {
  ModelAge age;
  age.steps = in.F64();
  age.members = in.U32();
  age.agreed.averaging = AveragingId(in.U64());
  age.agreed.scale = in.F64();
  if (age.none() || age.agreed.averaging.value() > kMaxNumber) in.Fail();
  return age;
}

}  // namespace

bool IsValid(const Stake& stake) {
  for (const double number : {stake.weight, stake.samples, stake.before.samples})
    if (!std::isfinite(number) || number < 0) return false;
  return IsValid(stake.age) && IsValid(stake.claims);
}

// Averagings count to kMaxNumber at most. These bits of a count's: a base follows, an age, claims.
// Stakes without them are as they were before there were any.
constexpr uint64_t kBaseFollows = 1ULL << 63;
constexpr uint64_t kAgeFollows = 1ULL << 62;
constexpr uint64_t kClaimsFollow = 1ULL << 61;

void Encode(const Stake& stake, ByteWriter& out) {
  out.F64(stake.weight);
  out.F64(stake.samples);
  const uint64_t base = stake.base.none() ? 0 : kBaseFollows;
  const uint64_t age = stake.age.none() ? 0 : kAgeFollows;
  const uint64_t claims = stake.claims.none() ? 0 : kClaimsFollow;
  out.U64(stake.before.averaging.value() | base | age | claims);
  out.F64(stake.before.samples);
  out.Raw(stake.holds.view());
  if (base != 0) out.Raw(stake.base.view());
  if (age != 0) PutAge(stake.age, out);
  if (claims != 0) Encode(stake.claims, out);
}

Stake DecodeStake(ByteReader& in) {
  Stake stake;
  stake.weight = in.F64();
  stake.samples = in.F64();
  const uint64_t averaging = in.U64();
  stake.before.averaging = AveragingId(averaging & ~(kBaseFollows | kAgeFollows | kClaimsFollow));
  stake.before.samples = in.F64();
  if (const auto holds = Digest::From(in.Raw(Digest::kBytes))) stake.holds = *holds;
  if ((averaging & kBaseFollows) != 0) {
    if (const auto base = Digest::From(in.Raw(Digest::kBytes))) stake.base = *base;
    // A stake without a base has no bit: there is one encoding for each stake.
    if (stake.base.none()) in.Fail();
  }
  if ((averaging & kAgeFollows) != 0) stake.age = GetAge(in);
  if ((averaging & kClaimsFollow) != 0) stake.claims = DecodeClaims(in);
  return stake;
}

uint64_t ContentKey(const InstanceId& instance) { return ByteReader(instance.view()).U64(); }

InstanceId IdOf(const InstanceName& name) {
  ByteWriter out;
  out.String("crowdsurf round");
  out.String(name.job);
  out.Raw(name.view.view());
  out.U64(name.averaging.value());
  out.U32(name.round);
  out.U32(name.axis);
  out.U64(name.group);
  out.Raw(name.member_list.view());
  out.U32(name.attempt);
  const Digest digest = Sha256(out.bytes());
  return *InstanceId::From(digest.view().first(InstanceId::kBytes));
}

Digest MemberListHash(const std::vector<RoundCell>& cells) {
  ByteWriter out;
  for (const RoundCell& cell : cells) {
    out.Bool(cell.member.has_value());
    if (cell.member) out.Raw(cell.member->view());
    PutPeers(out, cell.speakers);
  }
  return Sha256(out.bytes());
}

Digest PartsHash(const std::vector<ChunkSpan>& chunks, const std::vector<RankSet>& coverers,
                 bool one_base) {
  ByteWriter out;
  for (const ChunkSpan& chunk : chunks) {
    out.U16(chunk.owner);
    out.U64(chunk.begin);
    out.U32(chunk.count);
  }
  for (const RankSet ranks : coverers) out.U64(ranks.bits());
  if (one_base) out.Bool(true);
  return Sha256(out.bytes());
}

}  // namespace crowdsurf::worker
