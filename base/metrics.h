// Metrics: handles that cores and edges count through, behind a registry port.
//
// A module declares every metric once, in one place: name `crowdsurf_<module>_<noun>_<unit>`
// (`_total` for counters), help, unit in the name, labels from closed sets only (never peer or pod
// ids). Creating a handle creates the series at zero. A registry keeps values in memory; base/edge
// writes them as Prometheus text. Handles are relaxed atomics and the registry has a lock, so that
// a series may appear while another thread scrapes. Bound: what the modules declare.
// docs/metrics.md lists them all, and a test compares it with the declarations.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
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

enum class MetricKind { kCounter, kGauge, kHistogram };

// What a registry holds at one instant, by value. value: of counters and gauges; the rest: of
// histograms, counts cumulative and with +Inf as the last.
struct MetricValue {
  MetricLabels labels;
  double value = 0;
  std::vector<double> upper_bounds;
  std::vector<uint64_t> cumulative;
  double sum = 0;
};
struct MetricFamily {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  std::vector<MetricValue> series;
};

// Owns every series of a process or of a simulated peer. Asking twice for one (name, labels) gives
// the same handle. Pre of all Add*: help is a sentence, a counter's name and no other ends in
// "_total", a name has one kind. Any thread.
class MetricRegistry {
 public:
  Counter& AddCounter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge& AddGauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  Histogram& AddHistogram(std::string_view name, std::string_view help,
                          std::vector<double> upper_bounds, MetricLabels labels = {});
  // Forgets the series whose labels contain `match` (a job that is gone). Handles to them must not
  // be used again.
  void Drop(const MetricLabels& match);

  // Every family, in order of name; one without series too. O(series).
  std::vector<MetricFamily> Collect() const;
  // The value of one counter or gauge, 0 if there is none: for tests.
  double Value(std::string_view name, const MetricLabels& labels = {}) const;

 private:
  struct Series {
    MetricLabels labels;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    MetricKind kind;
    std::string help;
    std::deque<Series> series;
  };
  Series& Find(std::string_view name, std::string_view help, MetricKind kind, MetricLabels labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace crowdsurf
