// NodeMetrics: every metric of the DHT core, declared once.
//
// Made from a MetricRegistry by the host and handed to the node; a simulator may share one among
// all its nodes. Thread-safe like the handles it holds.
#pragma once

#include <array>

#include "base/metrics.h"
#include "coordinator-free-dht/core/actions.h"
#include "coordinator-free-dht/core/store.h"

namespace crowdsurf::dht {

struct NodeMetrics {
  explicit NodeMetrics(MetricRegistry& registry);

  Counter& requests;         // sent
  Counter& requests_slow;    // no answer by the peer's own 95th percentile: somebody else asked too
  Counter& requests_failed;  // no answer at all
  Counter& requests_shed;    // not sent: too many open
  Counter& replies_unmatched;
  Counter& lookups;
  Counter& lookups_shed;  // not started: too many waiting
  Counter& pushes;        // of changes, sent to watchers
  Counter& pushes_unwanted;
  Counter& requests_limited;  // received from a sender beyond its rate, and dropped
  Counter& records_forged;    // wrong owner or signature
  Counter& messages_invalid;
  std::array<Counter*, 10> store_results;  // by StoreResult
  std::array<Counter*, kPutResults> puts;  // by PutResult
};

}  // namespace crowdsurf::dht
