#include "coordinator-free-dht/core/node_metrics.h"

namespace crowdsurf::dht {

const char* Name(PutResult result) {
  switch (result) {
    case PutResult::kPublished:
      return "published";
    case PutResult::kTooLarge:
      return "too_large";
    case PutResult::kExpired:
      return "expired";
    case PutResult::kTooFar:
      return "too_far";
    case PutResult::kTooMany:
      return "too_many";
  }
  return "unknown";
}

NodeMetrics::NodeMetrics(MetricRegistry& r)
    : requests(r.AddCounter("crowdsurf_dht_requests_total", "Requests sent to peers.")),
      requests_slow(r.AddCounter("crowdsurf_dht_requests_slow_total",
                                 "Requests not answered by the peer's own 95th percentile.")),
      requests_failed(
          r.AddCounter("crowdsurf_dht_requests_failed_total", "Requests given up or refused.")),
      requests_shed(r.AddCounter("crowdsurf_dht_requests_shed_total",
                                 "Requests not sent because too many were open.")),
      replies_unmatched(r.AddCounter("crowdsurf_dht_replies_unmatched_total",
                                     "Replies to nothing that was asked of their sender.")),
      lookups(r.AddCounter("crowdsurf_dht_lookups_total", "Iterative lookups finished.")),
      lookups_shed(r.AddCounter("crowdsurf_dht_lookups_shed_total",
                                "Lookups not started because too many were waiting.")),
      pushes(r.AddCounter("crowdsurf_dht_pushes_total", "Changes pushed to watchers.")),
      pushes_unwanted(r.AddCounter("crowdsurf_dht_pushes_unwanted_total",
                                   "Pushes received for keys that are not watched.")),
      requests_limited(r.AddCounter("crowdsurf_dht_requests_limited_total",
                                    "Requests of senders beyond their rate, dropped.")),
      records_forged(r.AddCounter("crowdsurf_dht_records_forged_total",
                                  "Records whose owner or signature is wrong.")),
      messages_invalid(r.AddCounter("crowdsurf_dht_messages_invalid_total",
                                    "Messages that could not be decoded or made no sense.")) {
  for (size_t i = 0; i < store_results.size(); ++i) {
    store_results[i] = &r.AddCounter("crowdsurf_dht_store_results_total",
                                     "Records offered to this holder, by what became of them.",
                                     {{"result", Name(static_cast<StoreResult>(i))}});
  }
  for (size_t i = 0; i < puts.size(); ++i) {
    puts[i] = &r.AddCounter("crowdsurf_dht_puts_total",
                            "Records that this node was told to publish, by outcome.",
                            {{"result", Name(static_cast<PutResult>(i))}});
  }
}

}  // namespace crowdsurf::dht
