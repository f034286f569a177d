#include "worker/core/round/round_spec.h"

#include <algorithm>
#include <cmath>

#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

void PutPeers(ByteWriter& out, const std::set<PeerId>& peers) {
  out.U32(static_cast<uint32_t>(peers.size()));
  for (const PeerId& peer : peers) out.Raw(peer.view());
}

}  // namespace

bool IsValid(const Stake& stake) {
  for (const double number : {stake.weight, stake.samples, stake.before.samples})
    if (!std::isfinite(number) || number < 0) return false;
  return true;
}

// Averagings count to kMaxNumber at most. This bit of a count's: a base follows. Stakes without one
// are as they were before there were bases.
constexpr uint64_t kBaseFollows = 1ULL << 63;

void Encode(const Stake& stake, ByteWriter& out) {
  out.F64(stake.weight);
  out.F64(stake.samples);
  const uint64_t averaging = stake.before.averaging.value();
  out.U64(stake.base.none() ? averaging : averaging | kBaseFollows);
  out.F64(stake.before.samples);
  out.Raw(stake.holds.view());
  if (!stake.base.none()) out.Raw(stake.base.view());
}

Stake DecodeStake(ByteReader& in) {
  Stake stake;
  stake.weight = in.F64();
  stake.samples = in.F64();
  const uint64_t averaging = in.U64();
  stake.before.averaging = AveragingId(averaging & ~kBaseFollows);
  stake.before.samples = in.F64();
  if (const auto holds = Digest::From(in.Raw(Digest::kBytes))) stake.holds = *holds;
  if ((averaging & kBaseFollows) == 0) return stake;
  if (const auto base = Digest::From(in.Raw(Digest::kBytes))) stake.base = *base;
  // A stake without a base has no bit: there is one encoding for each stake.
  if (stake.base.none()) in.Fail();
  return stake;
}

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

Digest PartsHash(const std::vector<ChunkSpan>& chunks) {
  ByteWriter out;
  for (const ChunkSpan& chunk : chunks) {
    out.U16(chunk.owner);
    out.U64(chunk.begin);
    out.U32(chunk.count);
  }
  return Sha256(out.bytes());
}

}  // namespace crowdsurf::worker
