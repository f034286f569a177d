// rounds: One: the end of an averaging that was one round (averaging.h). Source:
// docs/strategies/moshpit.md, One round.
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

double Averaging::WeightOfTurn() const {
  if (leases_.discards()) return 0;
  const Weighting weighting = seating_.view().config.weighting;
  return IsOneRound(number_) ? turn_weight_.InRound(snapshot_, weighting)
                             : turn_weight_.InWhole(snapshot_, weighting);
}

// The mean of the own group. It is no average of the job: nobody else fetches it, and the count
// that comes next says which samples are trained.
void Averaging::FinishRound(Time now, const DeliverResult& result, Actions& out) {
  // Without its own values the mean lacks what it has trained, and brings it no nearer to all.
  if (!in_mean_) return FinishAbandon(now, result.averaging, out);
  turn_weight_.OnRound(snapshot_, stake_.weight);
  leases_.OnDelivered();
  out.push_back(DeliverMix{result.averaging, result.region});
  ++deliveries_;
  took_part_ = true;
  start_ = {};
  metrics_.averagings_delivered->Add();
  metrics_.averaging->Set(static_cast<double>(result.averaging.value()));
  log_.Info("round delivered",
            {{"averaging", result.averaging.value()}, {"weight", stake_.weight}});
  GoOn(now, result.averaging, out);
}

}  // namespace crowdsurf::worker
