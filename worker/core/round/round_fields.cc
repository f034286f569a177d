#include "worker/core/round/round_fields.h"

#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker::round_fields {
namespace {

// Eight bits a byte, the first of them in the lowest place.
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
  // Checked against the bytes that are there before anything is allocated.
  const size_t count = in.U32();
  if (count > kMaxChunks || (count + 7) / 8 > in.remaining()) {
    in.Fail();
    return;
  }
  bits.resize(count);
  for (size_t i = 0; i < count; i += 8) {
    const uint8_t byte = in.U8();
    for (size_t k = 0; k < 8 && i + k < count; ++k) bits[i + k] = (byte >> k & 1) != 0;
  }
}

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

}  // namespace

void Put(ByteWriter& out, const RegisterAge& age) {
  out.U64(age.epoch);
  out.U64(age.averaging.value());
  out.U32(age.round);
}
void Get(ByteReader& in, RegisterAge& age) {
  age.epoch = in.U64();
  age.averaging = AveragingId(in.U64());
  age.round = in.U32();
}

void Put(ByteWriter& out, const std::vector<ChunkIndex>& chunks) {
  out.U32(static_cast<uint32_t>(chunks.size()));
  for (const ChunkIndex chunk : chunks) out.U32(chunk.value());
}
void Get(ByteReader& in, std::vector<ChunkIndex>& chunks) {
  chunks.resize(in.Count(kMaxChunks, sizeof(uint32_t)));
  for (ChunkIndex& chunk : chunks) chunk = ChunkIndex(in.U32());
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
  if (count > kMaxRanks) in.Fail();
  for (size_t i = 0; i < count && in.ok(); ++i) {
    const uint8_t rank = in.U8();
    const Stake stake = DecodeStake(in);
    if (rank >= kMaxRanks || !stakes.emplace(rank, stake).second) in.Fail();
  }
}

// Which slots are held; then, by runs, what neighbours share; then the hash of each.
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
    to.U64(chunk.mask.bits());
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
    chunk.mask = RankSet::FromBits(in.U64());
    // Only held chunks are listed, and a held one has contributors.
    if (chunk.mask.empty()) in.Fail();
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
    to.U64(chunk.holders.bits());
    to.U16(chunk.value.assigned);
    to.U64(chunk.value.mask.bits());
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
  items.reserve(chunks.size());
  for (PlanChunk& chunk : chunks) items.push_back(&chunk);
  GetRuns(in, items, [&in](PlanChunk& chunk) {
    chunk.assigned = in.U16();
    chunk.owner = in.U8();
    chunk.holders = RankSet::FromBits(in.U64());
    chunk.value.assigned = in.U16();
    chunk.value.mask = RankSet::FromBits(in.U64());
  });
  for (size_t i = 0; i < chunks.size() && in.ok(); ++i) {
    // A held value has a mask, the others have none: the two must not contradict each other.
    if (chunks[i].value.held() != held[i]) in.Fail();
    if (held[i]) chunks[i].value.hash = in.U64();
  }
}

void Put(ByteWriter& out, const HeldValue& held) {
  out.U64(held.members.bits());
  out.Bool(held.value.abort);
  Put(out, held.value.chunks);
  out.U8(static_cast<uint8_t>(held.value.stakes.size()));
  for (const Stake& stake : held.value.stakes) Encode(stake, out);
}
void Get(ByteReader& in, HeldValue& held) {
  held.members = RankSet::FromBits(in.U64());
  held.value.abort = in.Bool();
  Get(in, held.value.chunks);
  const size_t ranks = in.U8();
  if (ranks > kMaxRanks) {
    in.Fail();
    return;
  }
  held.value.stakes.resize(ranks);
  for (Stake& stake : held.value.stakes) stake = DecodeStake(in);
}

}  // namespace crowdsurf::worker::round_fields
