// RelayMetrics: every metric of the relay of connections, core and edge, one row a metric.
//
// Made from the agent's MetricRegistry by its owner (edge/relay.h) and handed to the cores; tests
// make their own. Thread-safe like the handles it holds. All of them stay at zero where everybody
// may dial everybody.
#pragma once

#include "base/metrics.h"

namespace crowdsurf::dht {

struct RelayMetrics {
  explicit RelayMetrics(MetricRegistry& r) : registry(r) {}

  MetricRegistry& registry;
  Counter& found = Searches("found");
  Counter& dead = Searches("dead");
  Counter& unreachable = Searches("unreachable");
  // For oneself or for others.
  Counter& questions = registry.AddCounter("crowdsurf_relay_questions_total",
                                           "Questions for a way to a peer, asked of neighbours.");
  Counter& refused_searches = Refused("searches");
  Counter& refused_carried = Refused("connections");
  Counter& refused_hops = Refused("hops");
  Counter& refused_circle = Refused("circle");
  Counter& refused_unknown = Refused("unknown_peer");
  Counter& refused_unproved = Refused("unproved");
  Counter& refused_secret = Refused("secret");
  Counter& refused_malformed = Refused("malformed");
  Counter& refused_entrance = Refused("waiting");
  Counter& forgotten = registry.AddCounter(
      "crowdsurf_relay_forgotten_total", "Addresses and routes forgotten to make room for others.");
  Counter& bytes =
      registry.AddCounter("crowdsurf_relay_carried_bytes_total",
                          "Bytes carried for connections of this agent and of others.");
  Gauge& connections =
      registry.AddGauge("crowdsurf_relay_connections", "Connections carried or being looked for.");

 private:
  Counter& Searches(const char* outcome) {
    return registry.AddCounter(
        "crowdsurf_relay_searches_total",
        "Own searches for a way to a peer that cannot be dialed, by outcome.",
        {{"outcome", outcome}});
  }
  Counter& Refused(const char* reason) {
    return registry.AddCounter("crowdsurf_relay_refused_total",
                               "Connections and questions that the relay turned away, by reason.",
                               {{"reason", reason}});
  }
};

}  // namespace crowdsurf::dht
