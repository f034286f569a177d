#include "worker/edge/metrics/averaging_clock.h"

namespace crowdsurf::worker {

void AveragingClock::OnDelivered(AveragingId averaging) {
  const std::lock_guard lock(mutex_);
  const auto times = parts_.OnDelivered(now_(), averaging);
  if (!times) return;
  ++totals_.number;
  totals_.whole += times->whole.seconds();
  metrics_.averaging_seconds.Add(times->whole.seconds());
  for (size_t part = 0; part < times->parts.size(); ++part) {
    const double seconds = times->parts[part].seconds();
    totals_.parts[part] += seconds;
    metrics_.averaging_parts[part]->Add(seconds);
  }
}

}  // namespace crowdsurf::worker
