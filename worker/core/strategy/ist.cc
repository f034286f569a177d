#include "worker/core/strategy/ist.h"

#include "worker/core/view/view.h"

namespace crowdsurf::worker {

void Ist::SetUnits(const UnitSchema& units, uint32_t chunk_elements) {
  units_ = units;
  chunk_elements_ = chunk_elements;
  dealt_.reset();
}

void Ist::OnView(Time, const View& view, const PeerId& self, StrategyActions& out) {
  if (open_) out.push_back(AbandonAveraging{*open_});
  open_.reset();
  dealt_.reset();
  view_seed_ = view.seed;
  epoch_ = view.epoch;
  if (const Member* member = view.Find(self)) cell_ = member->cell;
}

// The units until the next averaging: of those that are in the value of `by`, by cell.
void Ist::Deal(AveragingId by, RankSet cells, StrategyActions& out) {
  std::vector<CellIndex> members;
  std::optional<size_t> own;
  for (CellIndex cell = 0; cell < kMaxRanks; ++cell) {
    if (!cells.Contains(cell)) continue;
    if (cell == cell_) own = members.size();
    members.push_back(cell);
  }
  const std::vector<uint32_t> equal(members.size(), 1);
  const UnitPartition partition({view_seed_, epoch_, by}, equal, units_.units());
  dealt_ = Dealt{.by = by,
                 .own_units = own.has_value(),
                 .round = MakeSubnetRound(units_, partition, members, chunk_elements_)};
  out.push_back(TellUnits{by, own ? partition.SetsOf(*own) : IndexSets()});
}

void Ist::Open(const PublishedEvent& published, StrategyActions& out) {
  open_ = published.averaging;
  // The base stays in kInboxA, and the round before serves what it wrote.
  to_ = to_ == Region::kInboxB ? Region::kSpare : Region::kInboxB;
  OpenRound open{.averaging = published.averaging,
                 .axis = 0,
                 .from = Region::kOutbox,
                 .to = to_,
                 .weight = published.weight};
  if (dealt_) {
    open.subnet = dealt_->round;
    if (dealt_->own_units && !units_.units().empty() && published.units != dealt_->by) {
      // It was trained on other units than all others think: as if it had not been trained.
      open.from = Region::kInboxA;
      open.weight = 0;
    }
  }
  out.push_back(std::move(open));
}

void Ist::OnEvent(Time, const Event& event, StrategyActions& out) {
  if (const auto* published = std::get_if<PublishedEvent>(&event)) return Open(*published, out);
  if (const auto* base = std::get_if<BaseTaken>(&event))
    return Deal(base->averaging, base->contributors, out);
  if (std::holds_alternative<BaseLost>(event)) dealt_.reset();
  const auto* decided = std::get_if<RoundDecided>(&event);
  if (decided == nullptr || decided->averaging != open_) return;
  open_.reset();
  if (!decided->applied) return out.push_back(AbandonAveraging{decided->averaging});
  // First the units: the trainer takes them right after it has taken the result.
  Deal(decided->averaging, decided->contributors, out);
  out.push_back(DeliverResult{decided->averaging, to_, decided->weight});
}

}  // namespace crowdsurf::worker
