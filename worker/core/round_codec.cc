#include "worker/core/round_codec.h"

#include <array>
#include <string>
#include <type_traits>
#include <utility>

namespace crowdsurf::worker {
namespace {

constexpr size_t kMostLearners = kMostRanks;
constexpr size_t kMostValueBytes = 32 << 20;  // a manifest of kMostChunks is 8 B a chunk and runs
constexpr size_t kMostPlans = 4 * kMostBallots;

// ---- fields ---------------------------------------------------------------------------------
template <class Tag, size_t kSize>
void Put(ByteWriter& out, const FixedId<Tag, kSize>& id) {
  out.Raw(id.view());
}
template <class Tag, size_t kSize>
void Get(ByteReader& in, FixedId<Tag, kSize>& id) {
  const auto read = FixedId<Tag, kSize>::From(in.Raw(kSize));
  if (read) id = *read;
}

void Put(ByteWriter& out, const RegisterAge& age) {
  out.U64(age.epoch);
  out.U64(age.averaging);
  out.U32(age.round);
}
void Get(ByteReader& in, RegisterAge& age) {
  age.epoch = in.U64();
  age.averaging = in.U64();
  age.round = in.U32();
}

void Put(ByteWriter& out, const std::vector<uint32_t>& chunks) {
  out.U32(static_cast<uint32_t>(chunks.size()));
  for (const uint32_t chunk : chunks) out.U32(chunk);
}
void Get(ByteReader& in, std::vector<uint32_t>& chunks) {
  chunks.resize(in.Count(kMostChunks, sizeof(uint32_t)));
  for (uint32_t& chunk : chunks) chunk = in.U32();
}

void Put(ByteWriter& out, const std::map<uint8_t, Stake>& stakes) {
  out.U8(static_cast<uint8_t>(stakes.size()));
  for (const auto& [rank, stake] : stakes) {
    out.U8(rank);
    Encode(stake, out);
  }
}
void Get(ByteReader& in, std::map<uint8_t, Stake>& stakes) {
  const size_t count = in.U8();
  if (count > kMostRanks) in.Fail();
  for (size_t i = 0; i < count && in.ok(); ++i) {
    const uint8_t rank = in.U8();
    const Stake stake = DecodeStake(in);
    if (rank >= kMostRanks || !stakes.emplace(rank, stake).second) in.Fail();
  }
}

void Put(ByteWriter& out, const std::vector<bool>& bits) {
  out.U32(static_cast<uint32_t>(bits.size()));
  for (size_t i = 0; i < bits.size(); i += 8) {
    uint8_t byte = 0;
    for (size_t k = 0; k < 8 && i + k < bits.size(); ++k)
      byte = static_cast<uint8_t>(byte | (bits[i + k] ? 1 << k : 0));
    out.U8(byte);
  }
}
void Get(ByteReader& in, std::vector<bool>& bits) {
  const size_t count = in.U32();
  if (count > kMostChunks || (count + 7) / 8 > in.remaining()) {
    in.Fail();
    return;
  }
  bits.resize(count);
  for (size_t i = 0; i < count; i += 8) {
    const uint8_t byte = in.U8();
    for (size_t k = 0; k < 8 && i + k < count; ++k) bits[i + k] = (byte >> k & 1) != 0;
  }
}

// ---- manifests: which are held, runs of what is alike, and the hashes -------------------------
// Reads `items` of a list by runs: get(item) reads what a run shares, into its first item.
template <class Item, class GetShared>
void GetRuns(ByteReader& in, std::vector<Item*> items, GetShared get) {
  for (size_t i = 0; i < items.size() && in.ok();) {
    Item shared{};
    get(shared);
    const size_t count = in.U32();
    if (count == 0 || count > items.size() - i) {
      in.Fail();
      return;
    }
    for (size_t k = 0; k < count; ++k) *items[i++] = shared;
  }
}
template <class Item, class PutShared>
void PutRuns(ByteWriter& out, const std::vector<const Item*>& items, PutShared put) {
  const auto shared = [&put](const Item& item) {
    ByteWriter bytes;
    put(bytes, item);
    return bytes.Take();
  };
  for (size_t i = 0; i < items.size();) {
    const Bytes first = shared(*items[i]);
    size_t end = i + 1;
    while (end < items.size() && shared(*items[end]) == first) ++end;
    out.Raw(first);
    out.U32(static_cast<uint32_t>(end - i));
    i = end;
  }
}

void Put(ByteWriter& out, const std::vector<ChunkValue>& chunks) {
  std::vector<bool> held;
  std::vector<const ChunkValue*> items;
  for (const ChunkValue& chunk : chunks) {
    held.push_back(chunk.held());
    if (chunk.held()) items.push_back(&chunk);
  }
  Put(out, held);
  PutRuns(out, items, [](ByteWriter& to, const ChunkValue& chunk) {
    to.U16(chunk.assigned);
    to.U64(chunk.mask);
  });
  for (const ChunkValue* chunk : items) out.U64(chunk->hash);
}
void Get(ByteReader& in, std::vector<ChunkValue>& chunks) {
  std::vector<bool> held;
  Get(in, held);
  if (!in.ok()) return;
  chunks.resize(held.size());
  std::vector<ChunkValue*> items;
  for (size_t i = 0; i < held.size(); ++i)
    if (held[i]) items.push_back(&chunks[i]);
  GetRuns(in, items, [&in](ChunkValue& chunk) {
    chunk.assigned = in.U16();
    chunk.mask = in.U64();
    if (chunk.mask == 0) in.Fail();
  });
  for (ChunkValue* chunk : items) chunk->hash = in.U64();
}

void Put(ByteWriter& out, const std::vector<PlanChunk>& chunks) {
  std::vector<bool> held;
  std::vector<const PlanChunk*> items;
  for (const PlanChunk& chunk : chunks) {
    held.push_back(chunk.value.held());
    items.push_back(&chunk);
  }
  Put(out, held);
  PutRuns(out, items, [](ByteWriter& to, const PlanChunk& chunk) {
    to.U16(chunk.assigned);
    to.U8(chunk.owner);
    to.U64(chunk.holders);
    to.U16(chunk.value.assigned);
    to.U64(chunk.value.mask);
  });
  for (const PlanChunk* chunk : items)
    if (chunk->value.held()) out.U64(chunk->value.hash);
}
void Get(ByteReader& in, std::vector<PlanChunk>& chunks) {
  std::vector<bool> held;
  Get(in, held);
  if (!in.ok()) return;
  chunks.resize(held.size());
  std::vector<PlanChunk*> items;
  for (PlanChunk& chunk : chunks) items.push_back(&chunk);
  GetRuns(in, items, [&in](PlanChunk& chunk) {
    chunk.assigned = in.U16();
    chunk.owner = in.U8();
    chunk.holders = in.U64();
    chunk.value.assigned = in.U16();
    chunk.value.mask = in.U64();
  });
  for (size_t i = 0; i < chunks.size() && in.ok(); ++i) {
    if (chunks[i].value.held() != held[i]) in.Fail();
    if (held[i]) chunks[i].value.hash = in.U64();
  }
}

void Put(ByteWriter& out, const HeldValue& held) {
  out.U64(held.members);
  out.Bool(held.value.abort);
  Put(out, held.value.chunks);
  out.U8(static_cast<uint8_t>(held.value.stakes.size()));
  for (const Stake& stake : held.value.stakes) Encode(stake, out);
}
void Get(ByteReader& in, HeldValue& held) {
  held.members = in.U64();
  held.value.abort = in.Bool();
  Get(in, held.value.chunks);
  const size_t ranks = in.U8();
  if (ranks > kMostRanks) {
    in.Fail();
    return;
  }
  held.value.stakes.resize(ranks);
  for (Stake& stake : held.value.stakes) stake = DecodeStake(in);
}

// ---- bodies -----------------------------------------------------------------------------------
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
void Put(ByteWriter& out, const Open& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  out.U16(f.parent);
  Put(out, f.age);
}
void Get(ByteReader& in, Open& f) {
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
  const uint32_t plans = in.Count(kMostPlans, sizeof(Ballot) + Digest::kBytes);
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
  const ByteView value = in.Blob(kMostValueBytes);
  f.value.assign(value.begin(), value.end());
}
void Put(ByteWriter& out, const Plan& f) {
  out.U16(f.ballot);
  out.Bool(f.branch);
  out.Bool(f.abort);
  out.U64(f.members);
  out.U64(f.excluded);
  Put(out, f.stakes);
  Put(out, f.chunks);
}
void Get(ByteReader& in, Plan& f) {
  f.ballot = in.U16();
  f.branch = in.Bool();
  f.abort = in.Bool();
  f.members = in.U64();
  f.excluded = in.U64();
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
  const ByteView value = in.Blob(kMostValueBytes);
  f.value.assign(value.begin(), value.end());
  f.learners.resize(in.Count(kMostLearners, PeerId::kBytes));
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
void Put(ByteWriter&, const Beat&) {}
void Get(ByteReader&, Beat&) {}

constexpr size_t kKinds = std::variant_size_v<FrameBody>;
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
