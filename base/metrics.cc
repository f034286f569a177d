#include "base/metrics.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf {

Histogram::Histogram(std::vector<double> upper_bounds) : bounds_(std::move(upper_bounds)) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
  for (size_t i = 0; i <= bounds_.size(); ++i) buckets_.emplace_back(0);
}

void Histogram::Observe(double v) {
  // The first bound that is not below `v`: Prometheus counts a value equal to its bound (`le`).
  const size_t i =
      static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), v) - bounds_.begin());
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(v, std::memory_order_relaxed);
}

// The mutex is held.
MetricRegistry::Series& MetricRegistry::Find(std::string_view name, std::string_view help,
                                             MetricKind kind, MetricLabels labels) {
  CHECK(!help.empty());
  // As Prometheus names metrics: counters end in _total, and nothing else does.
  CHECK_EQ(name.ends_with("_total"), kind == MetricKind::kCounter);
  auto it = families_.find(name);
  if (it == families_.end()) {
    it = families_.emplace(std::string(name), Family{kind, std::string(help), {}}).first;
  }
  Family& family = it->second;
  CHECK(family.kind == kind);
  for (Series& series : family.series) {
    if (series.labels == labels) return series;
  }
  family.series.push_back({std::move(labels), nullptr, nullptr, nullptr});
  return family.series.back();
}

Counter& MetricRegistry::AddCounter(std::string_view name, std::string_view help,
                                    MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, MetricKind::kCounter, std::move(labels));
  if (!series.counter) series.counter = std::make_unique<Counter>();
  return *series.counter;
}

Gauge& MetricRegistry::AddGauge(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, MetricKind::kGauge, std::move(labels));
  if (!series.gauge) series.gauge = std::make_unique<Gauge>();
  return *series.gauge;
}

Histogram& MetricRegistry::AddHistogram(std::string_view name, std::string_view help,
                                        std::vector<double> upper_bounds, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, MetricKind::kHistogram, std::move(labels));
  if (!series.histogram) series.histogram = std::make_unique<Histogram>(std::move(upper_bounds));
  return *series.histogram;
}

void MetricRegistry::Drop(const MetricLabels& match) {
  const auto matches = [&](const Series& series) {
    return std::all_of(match.begin(), match.end(), [&](const auto& label) {
      const auto it = series.labels.find(label.first);
      return it != series.labels.end() && it->second == label.second;
    });
  };
  const std::lock_guard lock(mutex_);
  for (auto& [name, family] : families_) std::erase_if(family.series, matches);
}

std::vector<MetricFamily> MetricRegistry::Collect() const {
  const std::lock_guard lock(mutex_);
  std::vector<MetricFamily> out;
  for (const auto& [name, family] : families_) {
    out.push_back({name, family.help, family.kind, {}});
    for (const Series& series : family.series) {
      MetricValue value;
      value.labels = series.labels;
      if (series.counter) value.value = series.counter->value();
      if (series.gauge) value.value = series.gauge->value();
      if (series.histogram) {
        const Histogram& histogram = *series.histogram;
        value.upper_bounds = histogram.upper_bounds();
        // Others count meanwhile: the sum may be of a slightly later instant than the buckets.
        uint64_t below = 0;
        for (size_t i = 0; i <= value.upper_bounds.size(); ++i) {
          value.cumulative.push_back(below += histogram.bucket(i));
        }
        value.sum = histogram.sum();
      }
      out.back().series.push_back(std::move(value));
    }
  }
  return out;
}

double MetricRegistry::Value(std::string_view name, const MetricLabels& labels) const {
  const std::lock_guard lock(mutex_);
  const auto it = families_.find(name);
  if (it == families_.end()) return 0;
  for (const Series& series : it->second.series) {
    if (series.labels != labels) continue;
    if (series.counter) return series.counter->value();
    if (series.gauge) return series.gauge->value();
  }
  return 0;
}

}  // namespace crowdsurf
