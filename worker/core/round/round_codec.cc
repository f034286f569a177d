#include "worker/core/round/round_codec.h"

#include <array>
#include <utility>

#include "worker/core/round/round_fields.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMaxLearners = kMaxRanks;
constexpr size_t kMaxValueBytes = 32 << 20;  // a manifest of kMaxChunks is 8 B a chunk and runs
constexpr size_t kMaxPlans = kMaxBallots * kMaxRanks;

using round_fields::Get;
using round_fields::Put;

// Each Put has its Get below it. The wire has no tags: both name the same fields in one order.
void Put(ByteWriter& out, const Ready& f) {
  Encode(f.stake, out);
  Put(out, f.schema);
  Put(out, f.members);
  Put(out, f.parts);
  out.Bool(f.again);
}
void Get(ByteReader& in, Ready& f) {
  f.stake = DecodeStake(in);
  Get(in, f.schema);
  Get(in, f.members);
  Get(in, f.parts);
  f.again = in.Bool();
}
void Put(ByteWriter& out, const Speak& f) {
  out.U8(f.rank);
  Encode(f.stake, out);
  Put(out, f.root);
}
void Get(ByteReader& in, Speak& f) {
  f.rank = in.U8();
  f.stake = DecodeStake(in);
  Get(in, f.root);
}
void Put(ByteWriter& out, const Ask& f) {
  out.U8(f.rank);
  out.U16(f.assigned);
  Put(out, f.chunks);
}
void Get(ByteReader& in, Ask& f) {
  f.rank = in.U8();
  f.assigned = in.U16();
  Get(in, f.chunks);
}
void Put(ByteWriter& out, const Have& f) {
  out.U16(f.ballot);
  Put(out, f.root);
}
void Get(ByteReader& in, Have& f) {
  f.ballot = in.U16();
  Get(in, f.root);
}
void Put(ByteWriter& out, const BallotOpen& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  out.U16(f.parent);
  Put(out, f.age);
}
void Get(ByteReader& in, BallotOpen& f) {
  f.ballot = in.U16();
  f.branch = in.Bool();
  f.parent = in.U16();
  Get(in, f.age);
}
void Put(ByteWriter& out, const StatusFrame& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  out.Bool(f.complete.has_value());
  out.U16(f.complete.value_or(0));
  out.Bool(f.complete_abort);
  out.Bool(f.applied);
  Put(out, f.held);
  Put(out, f.served);
  out.U32(static_cast<uint32_t>(f.plans.size()));
  for (const auto& [ballot, digest] : f.plans) {
    out.U16(ballot);
    Put(out, digest);
  }
  Put(out, f.stakes);
}
void Get(ByteReader& in, StatusFrame& f) {
  f.ballot = in.U16();
  f.branch = in.Bool();
  const bool complete = in.Bool();
  const Ballot ballot = in.U16();
  if (complete) f.complete = ballot;
  f.complete_abort = in.Bool();
  f.applied = in.Bool();
  Get(in, f.held);
  Get(in, f.served);
  const uint32_t plans = in.Count(kMaxPlans, sizeof(Ballot) + Digest::kBytes);
  for (uint32_t i = 0; i < plans && in.ok(); ++i) {
    const Ballot seen = in.U16();
    Get(in, f.plans[seen]);
  }
  Get(in, f.stakes);
}
void Put(ByteWriter& out, const Promise& f) {
  out.U16(f.ballot);
  out.U16(f.accepted);
  out.Blob(f.value);
}
void Get(ByteReader& in, Promise& f) {
  f.ballot = in.U16();
  f.accepted = in.U16();
  const ByteView value = in.Blob(kMaxValueBytes);
  f.value.assign(value.begin(), value.end());
}
void Put(ByteWriter& out, const Plan& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  out.Bool(f.abort);
  out.U64(f.members.bits());
  out.U64(f.excluded.bits());
  Put(out, f.stakes);
  Put(out, f.chunks);
}
void Get(ByteReader& in, Plan& f) {
  f.ballot = in.U16();
  f.branch = in.Bool();
  f.abort = in.Bool();
  f.members = RankSet::FromBits(in.U64());
  f.excluded = RankSet::FromBits(in.U64());
  Get(in, f.stakes);
  Get(in, f.chunks);
}
void Put(ByteWriter& out, const Accept& f) {
  out.U16(f.ballot);
  Put(out, f.age);
  out.Blob(f.value);
  out.U32(static_cast<uint32_t>(f.learners.size()));
  for (const PeerId& peer : f.learners) Put(out, peer);
}
void Get(ByteReader& in, Accept& f) {
  f.ballot = in.U16();
  Get(in, f.age);
  const ByteView value = in.Blob(kMaxValueBytes);
  f.value.assign(value.begin(), value.end());
  f.learners.resize(in.Count(kMaxLearners, PeerId::kBytes));
  for (PeerId& peer : f.learners) Get(in, peer);
}
void Put(ByteWriter& out, const Accepted& f) {
  out.U16(f.ballot);
  Put(out, f.value);
}
void Get(ByteReader& in, Accepted& f) {
  f.ballot = in.U16();
  Get(in, f.value);
}
void Put(ByteWriter& out, const Decided& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  Put(out, f.held);
}
void Get(ByteReader& in, Decided& f) {
  f.ballot = in.U16();
  f.branch = in.Bool();
  Get(in, f.held);
}
void Put(ByteWriter& out, const Refused& f) { out.U16(f.promised); }
void Get(ByteReader& in, Refused& f) { f.promised = in.U16(); }
void Put(ByteWriter& out, const Forgotten& f) { out.U16(f.ballot); }
void Get(ByteReader& in, Forgotten& f) { f.ballot = in.U16(); }
void Put(ByteWriter& out, const Fetch& f) { Put(out, f.chunks); }
void Get(ByteReader& in, Fetch& f) { Get(in, f.chunks); }
void Put(ByteWriter& out, const Bye& f) { out.U8(static_cast<uint8_t>(f.reason)); }
void Get(ByteReader& in, Bye& f) {
  const uint8_t reason = in.U8();
  if (reason > static_cast<uint8_t>(ByeReason::kCannotSpeak)) in.Fail();
  f.reason = static_cast<ByeReason>(reason);
}
void Put(ByteWriter& out, const Beat& f) { out.U32(f.missing); }
void Get(ByteReader& in, Beat& f) { f.missing = in.U32(); }

constexpr size_t kKinds = std::variant_size_v<FrameBody>;
// In the order of FrameBody's alternatives, whose index is the kind on the wire.
constexpr std::array<std::string_view, kKinds> kNames = {
    "ready",  "speak",    "ask",     "have",    "open",      "status", "promise", "plan",
    "accept", "accepted", "decided", "refused", "forgotten", "fetch",  "bye",     "beat"};

template <size_t... kIndex>
void GetBody(ByteReader& in, size_t kind, FrameBody& body, std::index_sequence<kIndex...>) {
  ((kind == kIndex ? Get(in, body.emplace<kIndex>()) : void()), ...);
}

}  // namespace

Bytes EncodeFrame(const Frame& frame) {
  ByteWriter out;
  Put(out, frame.instance);
  out.U8(static_cast<uint8_t>(frame.body.index()));
  std::visit([&out](const auto& body) { Put(out, body); }, frame.body);
  return out.Take();
}

std::optional<Frame> DecodeFrame(ByteView bytes) {
  ByteReader in(bytes);
  Frame frame;
  Get(in, frame.instance);
  const size_t kind = in.U8();
  if (kind >= kKinds) return std::nullopt;
  GetBody(in, kind, frame.body, std::make_index_sequence<kKinds>());
  if (!in.Done()) return std::nullopt;
  return frame;
}

std::optional<InstanceId> PeekInstance(ByteView bytes) {
  if (bytes.size() < InstanceId::kBytes) return std::nullopt;
  return InstanceId::From(bytes.first(InstanceId::kBytes));
}

bool IsBeat(ByteView bytes) {
  const size_t beat = FrameBody(Beat()).index();
  return bytes.size() > InstanceId::kBytes && bytes[InstanceId::kBytes] == beat;
}

std::string_view KindOf(const Frame& frame) { return kNames[frame.body.index()]; }

Bytes EncodeHeldValue(const HeldValue& value) {
  ByteWriter out;
  Put(out, value);
  return out.Take();
}

std::optional<HeldValue> DecodeHeldValue(ByteView bytes) {
  ByteReader in(bytes);
  HeldValue value;
  Get(in, value);
  if (!in.Done()) return std::nullopt;
  return value;
}

}  // namespace crowdsurf::worker
