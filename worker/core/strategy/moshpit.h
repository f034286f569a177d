// Moshpit: an averaging is one trip over the grid's axes, a group all-reduce on each.
//
// Source: Moshpit SGD (Ryabinin et al. 2021), Alg. 1. Differs from the paper: a fitted
// grid with sticky cells; the weight travels with the vector, so the weighted mean is exact after d
// rounds; `rounds: One` takes turns (turns.h). One object per agent and view; single sequence.
#pragma once

#include "worker/core/strategy/strategy.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/turns.h"

namespace crowdsurf::worker {

class Moshpit : public Strategy {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kMoshpit); }
  void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) override;
  void OnEvent(Time now, const Event& event, StrategyActions& out) override;

 private:
  void OpenNext(StrategyActions& out);
  Region Next() const;  // where the next round writes

  size_t axes_ = 1;
  Turns turns_;
  // Results alternate between the inboxes (docs/averaging.md), or, where kInboxA holds a base that
  // all measure from, between kInboxB and kSpare. This one holds the latest
  // of a whole averaging: single rounds leave it alone, because newcomers fetch it.
  Region latest_ = Region::kInboxA;
  bool keeps_base_ = false;
  struct Trip {
    AveragingId averaging = {};
    Turn turn = Turn::kWhole;
    size_t done = 0;  // rounds
    double weight = 0;
  };
  std::optional<Trip> trip_;
};

}  // namespace crowdsurf::worker
