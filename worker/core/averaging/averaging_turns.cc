// rounds: One: what a member's values weigh, and the end of an averaging that was one round
// (averaging.h). Source: docs/strategies/moshpit.md, One round.
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// Of a trainer that is in no mean yet, in a whole averaging. Its model may be an average of hours
// ago, so that it moves the mean of the others by a millionth of the way; and where all are new,
// their weights are as they would be.
constexpr double kFreshShare = 1.0 / (1 << 20);

}  // namespace

// Members' values differ, so this is the weight of the whole vector, not of a change from what all
// have: samples say how fast its trainer is. The count takes samples away meanwhile, so they are
// those since a mean. In a whole averaging since the mean before the last: right after a round
// nobody has trained, and values would weigh nothing or all by chance. A trainer that is in no mean
// yet takes that of the others, and weighs from then on.
double Averaging::WeightOfTurn() const {
  const bool one = IsOneRound(number_);
  if (leases_.discards() || (one && given_.fresh)) return 0;
  const bool equal = seating_.view().config.weighting == Weighting::kEqual;
  const double weight = equal ? 1 : snapshot_ - (one ? given_.last : given_.before);
  return given_.fresh ? kFreshShare * weight : weight;
}

// The mean of the own group. It is no average of the job: nobody else fetches it, and the count
// that comes next says which samples are trained.
void Averaging::FinishRound(Time now, const DeliverResult& result, Actions& out) {
  // Without its own values the mean lacks what it has trained, and brings it no nearer to all.
  if (!in_mean_) return FinishAbandon(now, result.averaging, out);
  given_ = {.last = snapshot_,
            .before = given_.last,
            .fresh = given_.fresh && stake_.weight == 0,  // of members that are all new
            .apart = true};
  out.push_back(DeliverMix{result.averaging, result.region});
  ++deliveries_;
  took_part_ = true;
  metrics_.averagings_delivered->Add();
  metrics_.averaging->Set(static_cast<double>(result.averaging.value()));
  log_.Info("round delivered",
            {{"averaging", result.averaging.value()}, {"weight", stake_.weight}});
  GoOn(now, result.averaging, out);
}

}  // namespace crowdsurf::worker
