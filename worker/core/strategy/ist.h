// Ist: each member trains a sub-network with units of its own; at an averaging all meet in one
// round, and the units are dealt anew.
//
// Source: Independent Subnet Training (Yuan et al. 2022, arXiv 1910.02120), algorithm 1, and
// docs/strategies. The partition follows from the view's seed and epoch, the last averaging of this
// view and the cells that contributed to it, so nobody sends it. Until there is such an averaging
// members train whole models, and average these: so joiners and changes of strategy need no rule of
// their own. A snapshot of other units than the partition's leaves the base's values in its place.
// A member outside of the partition trains the whole model, takes part in what is shared, and is
// dealt units the next time. Differs from the paper: the round survives deaths; equal shares by
// largest remainder. Owner: Averaging, which keeps the base in kInboxA; single sequence. Memory:
// the chunks of one round.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker/core/strategy/strategy.h"
#include "worker/core/subnet/subnet_round.h"

namespace crowdsurf::worker {

class Ist : public Strategy {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kIst); }
  void SetUnits(const UnitSchema& units, uint32_t chunk_elements) override;
  void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) override;
  void OnEvent(Time now, const Event& event, StrategyActions& out) override;

 private:
  // What is dealt once an averaging of this view is the base.
  struct Dealt {
    AveragingId by;          // that averaging
    bool own_units = false;  // this member is in the partition
    std::shared_ptr<const SubnetRound> round;
  };
  void Deal(AveragingId by, RankSet cells, StrategyActions& out);
  void Open(const PublishedEvent& published, StrategyActions& out);

  UnitSchema units_;
  uint32_t chunk_elements_ = 1;
  uint64_t view_seed_ = 0, epoch_ = 0;
  CellIndex cell_ = 0;
  std::optional<Dealt> dealt_;
  std::optional<AveragingId> open_;
  Region to_ = Region::kInboxB;  // of the round that is open, or was last
};

}  // namespace crowdsurf::worker
