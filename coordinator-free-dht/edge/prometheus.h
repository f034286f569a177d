// RenderMetrics: a MetricRegistry as Prometheus text, by prometheus-cpp's serializer.
//
// Called by the HTTP port for every scrape. Values are read with relaxed atomics; new series must
// not be added while it runs, so modules declare all of theirs at construction (base/metrics.h).
#pragma once

#include <string>

#include "base/metrics.h"

namespace crowdsurf::dht {

// Text format 0.0.4; families in order of name. O(series).
std::string RenderMetrics(const MetricRegistry& registry);

}  // namespace crowdsurf::dht
