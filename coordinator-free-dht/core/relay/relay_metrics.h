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
  RelayMetrics(const RelayMetrics&) = delete;  // its late counters name it
  RelayMetrics& operator=(const RelayMetrics&) = delete;

  MetricRegistry& registry;
  Counter& found = Searches("found");
  Counter& dead = Searches("dead");
  Counter& unreachable = Searches("unreachable");
  // For oneself or for others.
  Counter& questions = registry.AddCounter("crowdsurf_relay_questions_total",
                                           "Questions for a way to a peer, asked of neighbours.");
  // At zero they would be nine of the 250 series that a worker may have.
  LateCounter refused_searches{[this]() -> Counter& { return Refused("searches"); }};
  LateCounter refused_carried{[this]() -> Counter& { return Refused("connections"); }};
  LateCounter refused_hops{[this]() -> Counter& { return Refused("hops"); }};
  LateCounter refused_circle{[this]() -> Counter& { return Refused("circle"); }};
  LateCounter refused_unknown{[this]() -> Counter& { return Refused("unknown_peer"); }};
  LateCounter refused_unproved{[this]() -> Counter& { return Refused("unproved"); }};
  LateCounter refused_secret{[this]() -> Counter& { return Refused("secret"); }};
  LateCounter refused_malformed{[this]() -> Counter& { return Refused("malformed"); }};
  LateCounter refused_entrance{[this]() -> Counter& { return Refused("waiting"); }};
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
