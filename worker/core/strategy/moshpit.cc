#include "worker/core/strategy/moshpit.h"

#include "worker/core/view/view.h"

namespace crowdsurf::worker {

void Moshpit::OnView(Time, const View& view, const PeerId&, StrategyActions& out) {
  if (trip_) out.push_back(AbandonAveraging{trip_->averaging});
  trip_.reset();
  axes_ = view.grid.axes();
  turns_ = Turns(view);
  const AveragingConfig& config = view.config;
  keeps_base_ = config.outer.kind != OuterKind::kNone || AveragesGradients(config) ||
                config.compression == WireFormat::kInt8;
}

Region Moshpit::Next() const {
  // Results alternate. Where kInboxA has the base, a third place takes turns.
  if (latest_ != Region::kInboxB) return Region::kInboxB;
  return keeps_base_ ? Region::kSpare : Region::kInboxA;
}

void Moshpit::OpenNext(StrategyActions& out) {
  const Region from = trip_->done == 0 ? Region::kOutbox : latest_;
  const size_t axis =
      trip_->turn == Turn::kOneRound ? turns_.AxisOf(trip_->averaging) : trip_->done;
  out.push_back(OpenRound{trip_->averaging, axis, from, Next(), trip_->weight});
}

void Moshpit::OnEvent(Time, const Event& event, StrategyActions& out) {
  if (const auto* published = std::get_if<PublishedEvent>(&event)) {
    trip_ = Trip{.averaging = published->averaging,
                 .turn = turns_.Of(published->averaging),
                 .done = 0,
                 .weight = published->weight};
    OpenNext(out);
    return;
  }
  const auto* decided = std::get_if<RoundDecided>(&event);
  if (decided == nullptr || !trip_ || decided->averaging != trip_->averaging) return;
  const Region written = Next();  // by the round, whatever came of it
  const bool one = trip_->turn == Turn::kOneRound;
  if (!one) latest_ = written;
  if (!decided->applied) {
    out.push_back(AbandonAveraging{trip_->averaging});
    trip_.reset();
    return;
  }
  trip_->weight = decided->weight;
  ++trip_->done;
  if (trip_->done < (one ? 1 : axes_)) return OpenNext(out);
  out.push_back(DeliverResult{trip_->averaging, written, trip_->weight});
  trip_.reset();
}

}  // namespace crowdsurf::worker
