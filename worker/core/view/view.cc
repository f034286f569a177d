#include "worker/core/view/view.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMaxAxes = 17;          // radix 2 reaches 2^17 cells
constexpr size_t kMaxRadix = 64;         // masks are 64 bits
constexpr uint8_t kViewFormat = 1;       // of the encoding; another one is another job's release
constexpr size_t kMemberBytes = 32 + 4;  // least size of an encoded member, bounds allocation

void Encode(const Member& member, ByteWriter& out) {
  out.Raw(member.id.view());
  out.U32(member.cell);
  out.I64(member.joined_unix_ms);
  out.Bool(member.on_demand);
  out.U32(member.bandwidth_class);
}

Member DecodeMember(ByteReader& in) {
  Member member;
  member.id = ReadId<PeerId>(in);
  member.cell = in.U32();
  member.joined_unix_ms = in.I64();
  member.on_demand = in.Bool();
  member.bandwidth_class = in.U32();
  return member;
}

bool GoodGrid(const Grid& grid) {
  if (grid.radices.empty() || grid.axes() > kMaxAxes) return false;
  size_t cells = 1;
  for (const uint16_t radix : grid.radices) {
    if (radix < 1 || radix > kMaxRadix) return false;
    cells *= radix;
    if (cells > kMaxCells) return false;
  }
  // As FitGrid makes them: a grid has one encoding.
  return std::is_sorted(grid.radices.begin(), grid.radices.end());
}

bool GoodTime(int64_t unix_ms) { return unix_ms >= -kMaxUnixMs && unix_ms <= kMaxUnixMs; }

bool GoodMember(const Member& member) {
  return member.cell < kMaxCells && GoodTime(member.joined_unix_ms) &&
         member.bandwidth_class <= kMaxBandwidthClass;
}

bool GoodNumbers(const View& view) {
  return view.epoch <= kMaxNumber && view.first_averaging.value() <= kMaxNumber &&
         view.barrier.value() <= kMaxNumber && std::isfinite(view.base_samples) &&
         view.base_samples >= 0 && view.base_samples <= kMaxSamples;
}

bool GoodConfig(const AveragingConfig& config) {
  if (config.generation > kMaxNumber || config.target.seconds.value_or(0) > kMaxSeconds)
    return false;
  return config.interval_unit != IntervalUnit::kSeconds || config.interval <= kMaxSeconds;
}

// As many members as the strategy takes, with cells for all of them. AllReduce has one group, or
// seats could fill its grid beyond what a group holds.
bool Fits(const View& view) {
  const size_t members = view.members.size();
  if (members == 0 || members > MaxMembersOf(view.config) || members > view.grid.cells())
    return false;
  // IST's chunks are given by cell, so its cells must be the ranks of one group.
  const bool one_group = view.config.strategy == StrategyKind::kAllReduce ||
                         view.config.strategy == StrategyKind::kIst;
  return !one_group || view.grid.axes() == 1;
}

// Members ascending by id, one a cell, inside the grid.
bool GoodMembers(const View& view) {
  std::set<CellIndex> cells;
  const size_t limit = view.grid.cells();
  for (size_t i = 0; i < view.members.size(); ++i) {
    if (i > 0 && !(view.members[i - 1].id < view.members[i].id)) return false;
    if (!GoodMember(view.members[i])) return false;
    if (view.members[i].cell >= limit || !cells.insert(view.members[i].cell).second) return false;
  }
  return true;
}

// Members, each once, as many as there are to be.
bool GoodWitnesses(const View& view) {
  if (view.witnesses.size() != std::min(view.members.size(), kMaxWitnesses)) return false;
  std::set<PeerId> seen;
  for (const PeerId& witness : view.witnesses)
    if (view.Find(witness) == nullptr || !seen.insert(witness).second) return false;
  return true;
}

}  // namespace

const Member* View::Find(const PeerId& id) const {
  const auto at = std::lower_bound(members.begin(), members.end(), id,
                                   [](const Member& m, const PeerId& key) { return m.id < key; });
  return at != members.end() && at->id == id ? &*at : nullptr;
}

Bytes Encode(const View& view) {
  ByteWriter out;
  out.U8(kViewFormat);
  out.U64(view.epoch);
  out.Raw(view.parent.view());
  out.Raw(view.origin.view());
  out.Bool(view.branch);
  out.U64(view.fork_members);
  out.U8(static_cast<uint8_t>(view.grid.axes()));
  for (const uint16_t radix : view.grid.radices) out.U16(radix);
  out.U32(static_cast<uint32_t>(view.members.size()));
  for (const Member& member : view.members) Encode(member, out);
  out.U8(static_cast<uint8_t>(view.witnesses.size()));
  for (const PeerId& witness : view.witnesses) out.Raw(witness.view());
  out.U64(view.seed);
  out.U64(view.first_averaging.value());
  out.U64(view.barrier.value());
  out.F64(view.base_samples);
  Encode(view.config, out);
  out.Bool(view.target_met);
  return out.Take();
}

std::optional<View> DecodeView(ByteView bytes, ViewFlaw* why) {
  ViewFlaw flaw;
  if (why == nullptr) why = &flaw;
  *why = ViewFlaw::kGarbled;
  ByteReader in(bytes);
  View view;
  if (in.U8() != kViewFormat) in.Fail();
  view.epoch = in.U64();
  view.parent = ReadId<ViewHash>(in);
  view.origin = ReadId<ViewHash>(in);
  view.branch = in.Bool();
  view.fork_members = in.U64();
  const size_t axes = in.U8();
  if (axes > kMaxAxes) in.Fail();
  for (size_t i = 0; i < axes && in.ok(); ++i) view.grid.radices.push_back(in.U16());
  const uint32_t members = in.Count(kMaxMembers, kMemberBytes);
  for (uint32_t i = 0; i < members && in.ok(); ++i) view.members.push_back(DecodeMember(in));
  const size_t witnesses = in.U8();
  if (witnesses > kMaxWitnesses || witnesses == 0) in.Fail();
  for (size_t i = 0; i < witnesses && in.ok(); ++i) view.witnesses.push_back(ReadId<PeerId>(in));
  view.seed = in.U64();
  view.first_averaging = AveragingId(in.U64());
  view.barrier = AveragingId(in.U64());
  view.base_samples = in.F64();
  const auto config = DecodeAveragingConfig(in);
  view.target_met = in.Bool();
  if (!config || !in.Done()) return std::nullopt;
  view.config = *config;
  *why = FlawOf(view);
  if (*why != ViewFlaw::kNone) return std::nullopt;
  return view;
}

ViewFlaw FlawOf(const View& view) {
  if (!IsBuilt(view.config.strategy)) return ViewFlaw::kStrategy;
  if (!GoodConfig(view.config)) return ViewFlaw::kConfig;
  if (!GoodNumbers(view)) return ViewFlaw::kNumber;
  if (!GoodGrid(view.grid)) return ViewFlaw::kGrid;
  if (!Fits(view)) return ViewFlaw::kSize;
  if (!GoodMembers(view)) return ViewFlaw::kMembers;
  if (!GoodWitnesses(view)) return ViewFlaw::kWitnesses;
  // Two lineages are compared by it: it is no bigger than the view that shows it.
  if (view.fork_members != view.members.size()) return ViewFlaw::kForkMembers;
  return ViewFlaw::kNone;
}

ViewHash HashOf(const View& view, const std::string& job) {
  // The job is in the hash, so no view of one job is taken for one of another.
  ByteWriter out;
  out.String(job);
  out.Raw(Encode(view));
  return ViewHash(Sha256(out.bytes()).bytes());
}

std::vector<PeerId> ChooseWitnesses(const std::vector<Member>& members) {
  std::vector<const Member*> order;
  order.reserve(members.size());
  for (const Member& member : members) order.push_back(&member);
  const auto key = [](const Member* m) { return std::tie(m->joined_unix_ms, m->id); };
  std::sort(order.begin(), order.end(), [&](const Member* a, const Member* b) {
    if (a->on_demand != b->on_demand) return a->on_demand;
    return key(a) < key(b);
  });
  if (order.size() > kMaxWitnesses) order.resize(kMaxWitnesses);
  std::vector<PeerId> witnesses;
  witnesses.reserve(order.size());
  for (const Member* member : order) witnesses.push_back(member->id);
  return witnesses;
}

bool IsQuorum(const std::vector<PeerId>& witnesses, const std::set<PeerId>& present) {
  if (witnesses.empty()) return false;
  const auto count = static_cast<size_t>(
      std::count_if(witnesses.begin(), witnesses.end(),
                    [&](const PeerId& witness) { return present.contains(witness); }));
  if (2 * count == witnesses.size()) return present.contains(witnesses.front());
  return 2 * count > witnesses.size();
}

bool IsSound(const Seat& seat) {
  return GoodMember(seat.member) && GoodTime(seat.steward_joined_ms) &&
         seat.sitting <= kMaxSittings && seat.first_averaging.value() <= kMaxNumber;
}

bool IsSound(const Vacancy& vacancy) {
  return vacancy.sitting <= kMaxSittings && vacancy.first_averaging.value() <= kMaxNumber;
}

void Encode(const Seat& seat, ByteWriter& out) {
  Encode(seat.member, out);
  out.Raw(seat.steward.view());
  out.I64(seat.steward_joined_ms);
  out.U32(seat.sitting);
  out.U64(seat.first_averaging.value());
}

void Encode(const Vacancy& vacancy, ByteWriter& out) {
  out.Raw(vacancy.peer.view());
  out.U32(vacancy.sitting);
  out.U64(vacancy.first_averaging.value());
}

std::optional<Seat> DecodeSeat(ByteReader& in) {
  Seat seat;
  seat.member = DecodeMember(in);
  seat.steward = ReadId<PeerId>(in);
  seat.steward_joined_ms = in.I64();
  seat.sitting = in.U32();
  seat.first_averaging = AveragingId(in.U64());
  if (in.ok() && !IsSound(seat)) in.Fail();
  if (!in.ok()) return std::nullopt;
  return seat;
}

std::optional<Vacancy> DecodeVacancy(ByteReader& in) {
  Vacancy vacancy;
  vacancy.peer = ReadId<PeerId>(in);
  vacancy.sitting = in.U32();
  vacancy.first_averaging = AveragingId(in.U64());
  if (in.ok() && !IsSound(vacancy)) in.Fail();
  if (!in.ok()) return std::nullopt;
  return vacancy;
}

}  // namespace crowdsurf::worker
