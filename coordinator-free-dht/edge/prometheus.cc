#include "coordinator-free-dht/edge/prometheus.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace crowdsurf::dht {
namespace {

prometheus::ClientMetric Convert(const MetricRegistry::Series& series) {
  prometheus::ClientMetric out;
  for (const auto& [name, value] : series.labels) out.label.push_back({name, value});
  if (series.counter) out.counter.value = series.counter->value();
  if (series.gauge) out.gauge.value = series.gauge->value();
  if (series.histogram) {
    const Histogram& histogram = *series.histogram;
    uint64_t cumulative = 0;
    for (size_t i = 0; i <= histogram.upper_bounds().size(); ++i) {
      cumulative += histogram.bucket(i);
      const double bound = i < histogram.upper_bounds().size()
                               ? histogram.upper_bounds()[i]
                               : std::numeric_limits<double>::infinity();
      out.histogram.bucket.push_back({cumulative, bound});
    }
    out.histogram.sample_count = cumulative;
    out.histogram.sample_sum = histogram.sum();
  }
  return out;
}

prometheus::MetricType TypeOf(MetricRegistry::Kind kind) {
  switch (kind) {
    case MetricRegistry::Kind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricRegistry::Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricRegistry::Kind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

std::string RenderMetrics(const MetricRegistry& registry) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, family] : registry.families()) {
    prometheus::MetricFamily out;
    out.name = name;
    out.help = family.help;
    out.type = TypeOf(family.kind);
    for (const MetricRegistry::Series& series : family.series) {
      out.metric.push_back(Convert(series));
    }
    families.push_back(std::move(out));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace crowdsurf::dht
