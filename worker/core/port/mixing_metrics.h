// MixingMetrics: every metric of the strategies on graphs, declared once.
//
// Made by PeerMetrics from the peer's registry. Counters are shared and thread-safe; making them
// is single sequence. Labels are closed sets.
#pragma once

#include "base/metrics.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/strategy/pair_exchange.h"

namespace crowdsurf::worker {

struct MixingMetrics {
  explicit MixingMetrics(MetricRegistry& registry);

  // Adds what grew since the last call.
  void Count(const PairExchange::Counters& pairs, const EdgeMailbox::Counters& edges,
             uint64_t foreign);

  Counter* delivered;  // crowdsurf_mix_delivered_total
  Counter* snapshots_unused;

 private:
  Counter* committed_;
  Counter* aborted_;
  Counter* busy_;
  Counter* refused_;
  Counter* taken_;
  Counter* stale_;
  Counter* strange_;
  Counter* repeated_;
  Counter* not_finite_;
  Counter* foreign_;
  PairExchange::Counters pairs_;
  EdgeMailbox::Counters edges_;
  uint64_t foreign_seen_ = 0;
};

}  // namespace crowdsurf::worker
