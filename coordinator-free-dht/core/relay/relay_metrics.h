// RelayMetrics: every metric of the relay of connections, core and edge, one row a metric.
//
// Made from the agent's MetricRegistry by its owner (edge/relay.h) and handed to the cores; tests
// make their own. Thread-safe like the handles it holds. All of them stay at zero where everybody
// may dial everybody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/metrics.h"

namespace crowdsurf::dht {

// Why the relay turns a connection or a question away.
enum class RelayRefusal : uint8_t {
  kSearches,
  kConnections,
  kHops,
  kCircle,
  kUnknownPeer,
  kUnproved,
  kSecret,
  kMalformed,
  kWaiting,
  kSilent,
};
// Of each, in the same order: the label `reason` of crowdsurf_relay_refused_total.
inline constexpr auto kRelayRefusals =
    std::to_array<const char*>({"searches", "connections", "hops", "circle", "unknown_peer",
                                "unproved", "secret", "malformed", "waiting", "silent"});
static_assert(kRelayRefusals.size() == static_cast<size_t>(RelayRefusal::kSilent) + 1);

struct RelayMetrics {
  explicit RelayMetrics(MetricRegistry& r) : registry(r) {}

  // The series of a reason is made by its first refusal: at zero all of them would be ten of a
  // worker's series (at most 250).
  void Refuse(RelayRefusal reason) { Refused(reason).Add(); }

  MetricRegistry& registry;
  Counter& found = Searches("found");
  Counter& dead = Searches("dead");
  Counter& unreachable = Searches("unreachable");
  // For oneself or for others.
  Counter& questions = registry.AddCounter("crowdsurf_relay_questions_total",
                                           "Questions for a way to a peer, asked of neighbours.");
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
  Counter& Refused(RelayRefusal reason) {
    return registry.AddCounter("crowdsurf_relay_refused_total",
                               "Connections and questions that the relay turned away, by reason.",
                               {{"reason", kRelayRefusals[static_cast<size_t>(reason)]}});
  }
};

}  // namespace crowdsurf::dht
