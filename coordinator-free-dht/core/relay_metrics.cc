#include "coordinator-free-dht/core/relay_metrics.h"

namespace crowdsurf::dht {
namespace {

Counter& Searches(MetricRegistry& r, const char* outcome) {
  return r.AddCounter("crowdsurf_relay_searches_total",
                      "Own searches for a way to a peer that cannot be dialed, by outcome.",
                      {{"outcome", outcome}});
}
Counter& Refused(MetricRegistry& r, const char* reason) {
  return r.AddCounter("crowdsurf_relay_refused_total",
                      "Connections and questions that the relay turned away, by reason.",
                      {{"reason", reason}});
}

}  // namespace

RelayMetrics::RelayMetrics(MetricRegistry& r)
    : found(Searches(r, "found")),
      dead(Searches(r, "dead")),
      unreachable(Searches(r, "unreachable")),
      questions(r.AddCounter("crowdsurf_relay_questions_total",
                             "Questions for a way to a peer, asked of neighbours.")),
      refused_searches(Refused(r, "searches")),
      refused_carried(Refused(r, "connections")),
      refused_hops(Refused(r, "hops")),
      refused_circle(Refused(r, "circle")),
      refused_unknown(Refused(r, "unknown_peer")),
      refused_unproved(Refused(r, "unproved")),
      refused_secret(Refused(r, "secret")),
      refused_malformed(Refused(r, "malformed")),
      refused_entrance(Refused(r, "waiting")),
      forgotten(r.AddCounter("crowdsurf_relay_forgotten_total",
                             "Addresses and routes forgotten to make room for others.")),
      bytes(r.AddCounter("crowdsurf_relay_carried_bytes_total",
                         "Bytes carried for connections of this agent and of others.")),
      connections(
          r.AddGauge("crowdsurf_relay_connections", "Connections carried or being looked for.")) {}

}  // namespace crowdsurf::dht
