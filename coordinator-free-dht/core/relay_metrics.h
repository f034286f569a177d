// RelayMetrics: every metric of the relay of connections, core and edge, declared once.
//
// Made from the agent's MetricRegistry by its owner (edge/relay.h) and handed to the cores; tests
// make their own. Thread-safe like the handles it holds. All of them stay at zero where everybody
// may dial everybody.
#pragma once

#include "base/metrics.h"

namespace crowdsurf::dht {

struct RelayMetrics {
  explicit RelayMetrics(MetricRegistry& registry);

  Counter& found;             // own searches, by what became of them
  Counter& dead;              //
  Counter& unreachable;       //
  Counter& questions;         // asked of neighbours, for oneself or for others
  Counter& refused_searches;  // questions and connections turned away, by the bound they met
  Counter& refused_carried;
  Counter& refused_hops;
  Counter& refused_circle;
  Counter& refused_unknown;
  Counter& refused_unproved;
  Counter& refused_secret;
  Counter& refused_malformed;
  Counter& refused_entrance;
  Counter& forgotten;  // addresses and routes, for want of room
  Counter& bytes;
  Gauge& connections;
};

}  // namespace crowdsurf::dht
