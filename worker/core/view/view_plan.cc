#include "worker/core/view/view_plan.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

void Fill(View& view, std::vector<Member> members, const ViewFacts& facts) {
  // The order of the encoding, by which View::Find searches.
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  view.members = std::move(members);
  view.witnesses = ChooseWitnesses(view.members);
  view.fork_members = view.members.size();
  view.seed = facts.seed;
  view.first_averaging = facts.first_averaging;
  view.barrier = facts.barrier;
  view.base_samples = facts.base_samples;
  view.config = facts.config;
  view.target_met = facts.target_met;
}

// Cells of the least numbers for members without one, in the order given.
void SeatThem(std::vector<Member>& members, size_t staying, bool keep_cells) {
  std::set<CellIndex> taken;
  if (keep_cells)
    for (size_t i = 0; i < staying; ++i) taken.insert(members[i].cell);
  CellIndex cell = 0;
  for (size_t i = keep_cells ? staying : 0; i < members.size(); ++i) {
    while (taken.contains(cell)) ++cell;
    members[i].cell = cell++;
  }
}

}  // namespace

Grid GridFor(size_t members, const AveragingConfig& config) {
  const bool one_group =
      config.strategy == StrategyKind::kAllReduce || config.strategy == StrategyKind::kIst;
  if (!one_group) return FitGrid(members, config.group_size);
  CHECK_LE(members, MaxMembersOf(config));
  return Grid{{static_cast<uint16_t>(members)}};
}

size_t MaxMembersOf(const AveragingConfig& config) {
  const manifest::Needs& needs = NeedsOf(config);
  const auto most =
      static_cast<size_t>(manifest::WorkersOf(needs, NameOf(config.mixing.graph)).max);
  const bool one_group = NeedsOneGroup(config) && config.strategy == StrategyKind::kMoshpit;
  return one_group ? std::min<size_t>(most, config.group_size) : most;
}

View FirstView(const Member& self, const ViewFacts& facts) {
  View view;
  view.epoch = 1;
  view.branch = true;  // a branch of nothing
  view.grid = GridFor(1, facts.config);
  Member member = self;
  member.cell = 0;
  Fill(view, {member}, facts);
  return view;
}

View NextView(const Seating& seating, const std::set<PeerId>& gone,
              const std::vector<Member>& newcomers, const ViewFacts& facts) {
  const View& old = seating.view();
  std::vector<Member> members;  // by cell, so that neighbours stay together when the grid changes
  for (const auto& [cell, member] : seating.occupants())
    if (!gone.contains(member.id)) members.push_back(member);
  const size_t staying = members.size();
  const size_t most = MaxMembersOf(facts.config);
  // Newcomers beyond what the strategy takes wait for another view.
  for (const Member& newcomer : newcomers)
    if (members.size() < most && !seating.CellOf(newcomer.id) && !gone.contains(newcomer.id))
      members.push_back(newcomer);
  CHECK(!members.empty());
  View view;
  view.epoch = old.epoch + 1;
  view.parent = seating.hash();
  // A branch begins a lineage of its own (docs/views.md).
  view.origin = facts.branch ? ViewHash() : OriginOf(old, seating.hash());
  view.branch = facts.branch;
  view.grid = GridFor(members.size(), facts.config);
  SeatThem(members, staying, view.grid == old.grid);
  Fill(view, std::move(members), facts);
  return view;
}

// Three quarters: docs/views.md, Steward.
bool IsThin(const Seating& seating, const std::set<PeerId>& gone) {
  const View& view = seating.view();
  size_t taken = 0;
  for (const auto& [cell, member] : seating.occupants())
    if (!gone.contains(member.id)) ++taken;
  if (taken == 0) return false;
  const bool thin_grid =
      4 * taken < 3 * view.grid.cells() && GridFor(taken, view.config).cells() < view.grid.cells();
  const auto live = std::count_if(
      view.witnesses.begin(), view.witnesses.end(),
      [&](const PeerId& id) { return seating.CellOf(id).has_value() && !gone.contains(id); });
  const bool thin_witnesses = 4 * static_cast<size_t>(live) < 3 * view.witnesses.size();
  return thin_grid || thin_witnesses;
}

}  // namespace crowdsurf::worker
