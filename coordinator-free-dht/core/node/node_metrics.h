// NodeMetrics: every metric of the DHT core, one row a metric.
//
// Made from a MetricRegistry by the host and handed to the node; a simulator may share one among
// all its nodes. Thread-safe like the handles it holds.
#pragma once

#include <array>

#include "base/metrics.h"
#include "coordinator-free-dht/core/clock/peer_clocks.h"
#include "coordinator-free-dht/core/port/actions.h"
#include "coordinator-free-dht/core/store/store.h"

namespace crowdsurf::dht {

struct NodeMetrics {
  explicit NodeMetrics(MetricRegistry& r) : registry(r) {
    for (size_t i = 0; i < store_results.size(); ++i) {
      store_results[i] =
          &registry.AddCounter("crowdsurf_dht_store_results_total",
                               "Records offered to this holder, by what became of them.",
                               {{"result", Name(static_cast<StoreResult>(i))}});
    }
    for (size_t i = 0; i < puts.size(); ++i) {
      puts[i] = &registry.AddCounter("crowdsurf_dht_puts_total",
                                     "Records that this node was told to publish, by outcome.",
                                     {{"result", Name(static_cast<PutResult>(i))}});
    }
    for (size_t i = 0; i < clock_samples.size(); ++i) {
      clock_samples[i] = &registry.AddCounter("crowdsurf_dht_clock_samples_total",
                                              "Readings of peers' clocks, by what became of them.",
                                              {{"result", Name(static_cast<ClockSample>(i))}});
    }
  }

  MetricRegistry& registry;
  Counter& requests =
      registry.AddCounter("crowdsurf_dht_requests_total", "Requests sent to peers.");
  // Another peer is asked as well.
  Counter& requests_slow =
      registry.AddCounter("crowdsurf_dht_requests_slow_total",
                          "Requests not answered by the peer's own 95th percentile.");
  Counter& requests_failed =
      registry.AddCounter("crowdsurf_dht_requests_failed_total", "Requests given up or refused.");
  Counter& requests_shed = registry.AddCounter("crowdsurf_dht_requests_shed_total",
                                               "Requests not sent because too many were open.");
  Counter& replies_unmatched =
      registry.AddCounter("crowdsurf_dht_replies_unmatched_total",
                          "Replies to nothing that was asked of their sender.");
  Counter& lookups =
      registry.AddCounter("crowdsurf_dht_lookups_total", "Iterative lookups finished.");
  Counter& lookups_shed = registry.AddCounter("crowdsurf_dht_lookups_shed_total",
                                              "Lookups not started because too many were waiting.");
  Counter& pushes =
      registry.AddCounter("crowdsurf_dht_pushes_total", "Changes pushed to watchers.");
  Counter& pushes_unwanted = registry.AddCounter("crowdsurf_dht_pushes_unwanted_total",
                                                 "Pushes received for keys that are not watched.");
  Counter& requests_limited = registry.AddCounter(
      "crowdsurf_dht_requests_limited_total", "Requests of senders beyond their rate, dropped.");
  Counter& records_forged = registry.AddCounter("crowdsurf_dht_records_forged_total",
                                                "Records whose owner or signature is wrong.");
  Counter& messages_invalid =
      registry.AddCounter("crowdsurf_dht_messages_invalid_total",
                          "Messages that could not be decoded or made no sense.");
  std::array<Counter*, 11> store_results;             // by StoreResult
  std::array<Counter*, kPutResults> puts;             // by PutResult
  std::array<Counter*, kClockSamples> clock_samples;  // by ClockSample
};

}  // namespace crowdsurf::dht
