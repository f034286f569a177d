// MixingMetrics: every metric of the strategies on graphs, declared once.
//
// Made by PeerMetrics from the peer's registry. Counters are shared and thread-safe; making them
// is single sequence. Labels are closed sets.
#pragma once

#include "base/metrics.h"
#include "worker/core/power/power_exchange.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/strategy/pair_exchange.h"

namespace crowdsurf::worker {

struct MixingMetrics {
  explicit MixingMetrics(MetricRegistry& registry);

  // Adds what grew since the last call.
  void Count(const PairExchange::Counters& pairs, const EdgeMailbox::Counters& edges,
             uint64_t foreign);
  void Count(const PowerExchange::Counters& power);

  Counter* delivered;  // crowdsurf_mix_delivered_total
  Counter* snapshots_unused;
  Gauge* rate_share;

 private:
  Counter* committed_;
  Counter* aborted_;
  Counter* pair_one_sided_;
  Counter* skipped_;
  Counter* taken_;
  Counter* stale_;
  Counter* strange_;
  Counter* repeated_;
  Counter* not_finite_;
  Counter* foreign_;
  Counter* resent_;
  Counter* cut_;
  Counter* one_sided_;
  PairExchange::Counters pairs_;
  EdgeMailbox::Counters edges_;
  PowerExchange::Counters power_;
  uint64_t foreign_seen_ = 0;
};

}  // namespace crowdsurf::worker
