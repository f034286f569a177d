// MaskedAllReduce: the least strategy that reduces under masks, for tests: one round of everybody
// an averaging, each member with the mask that a function of its cell names.
//
// What IST does with the transport, without its subnets. Differs from AllReduce by the mask alone.
// Single sequence.
#pragma once

#include <functional>
#include <utility>

#include "worker/core/strategy/strategy.h"
#include "worker/core/view/grid.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

class MaskedAllReduce : public Strategy {
 public:
  using MaskOf = std::function<CoordinateMask(CellIndex self, AveragingId averaging)>;
  explicit MaskedAllReduce(MaskOf mask) : mask_(std::move(mask)) {}

  Needs needs() const override { return {.strict_view = true}; }
  void OnView(Time, const View& view, const PeerId& self, StrategyActions& out) override {
    if (open_) out.push_back(AbandonAveraging{*open_});
    open_.reset();
    const Member* member = view.Find(self);
    if (member != nullptr) cell_ = member->cell;
  }
  void OnEvent(Time, const Event& event, StrategyActions& out) override {
    if (const auto* published = std::get_if<PublishedEvent>(&event)) {
      open_ = published->averaging;
      out.push_back(OpenRound{published->averaging, 0, Region::kOutbox, To(), published->weight,
                              mask_(cell_, published->averaging)});
      return;
    }
    const auto* decided = std::get_if<RoundDecided>(&event);
    if (decided == nullptr || decided->averaging != open_) return;
    open_.reset();
    if (decided->applied)
      out.push_back(DeliverResult{decided->averaging, To(), decided->weight});
    else
      out.push_back(AbandonAveraging{decided->averaging});
    other_ = !other_;
  }

 private:
  Region To() const { return other_ ? Region::kInboxA : Region::kInboxB; }

  MaskOf mask_;
  CellIndex cell_ = 0;
  std::optional<AveragingId> open_;
  bool other_ = false;
};

}  // namespace crowdsurf::worker
