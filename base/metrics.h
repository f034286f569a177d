// Metrics: handles that cores and edges count through, behind a registry port.
//
// A module declares every metric once, in one struct, from a MetricRegistry: name
// `crowdsurf_<module>_<noun>_<unit>`
// (`_total` for counters), help, unit in the name, labels from closed sets only (never peer or pod
// ids). Creating a handle creates the series at zero. The default registry keeps values in memory
// (tests, simulator); an edge exposes them through prometheus-cpp's serializer. Handles are shared
// and thread-safe (relaxed atomics); creating them is single sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf {

using MetricLabels = std::map<std::string, std::string>;

class Counter {
 public:
  void Add(double by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }  // by >= 0
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void Set(double v) { value_.store(v, std::memory_order_relaxed); }
  void Add(double by) { value_.fetch_add(by, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> upper_bounds);  // ascending; +Inf is implied
  void Observe(double v);
  const std::vector<double>& upper_bounds() const { return bounds_; }
  uint64_t bucket(size_t i) const {
    return buckets_[i].load(std::memory_order_relaxed);
  }  // not cumulative
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::deque<std::atomic<uint64_t>> buckets_;  // bounds + 1
  std::atomic<double> sum_{0};
};

// Owns every series of a process or of a simulated peer. Asking twice for one (name, labels) gives
// the same handle.
class MetricRegistry {
 public:
  enum class Kind { kCounter, kGauge, kHistogram };
  struct Series {
    MetricLabels labels;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    Kind kind;
    std::string help;
    std::deque<Series> series;
  };

  Counter& AddCounter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge& AddGauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  Histogram& AddHistogram(std::string_view name, std::string_view help,
                          std::vector<double> upper_bounds, MetricLabels labels = {});
  // Forgets the series whose labels contain `match` (a job that is gone). Handles to them must not
  // be used again.
  void Drop(const MetricLabels& match);

  const std::map<std::string, Family>& families() const { return families_; }
  // The value of one counter or gauge, 0 if there is none: for tests.
  double Value(std::string_view name, const MetricLabels& labels = {}) const;

 private:
  Series& Find(std::string_view name, std::string_view help, Kind kind, MetricLabels labels);
  std::map<std::string, Family> families_;
};

}  // namespace crowdsurf
