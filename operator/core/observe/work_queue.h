// WorkQueue: keys to reconcile, each at most once at a time; time is an argument.
//
// De-duplicating (a key added while it waits is there once; added while it is worked on it comes
// again afterwards), delayed, and rate-limited per key: exponential and jittered, reset by Forget.
// Order: by the time a key became ready, then by key, so that one busy job cannot starve another.
// Owner: the controller's host thread. Single sequence. Bound: one entry a key, and keys are
// objects of a cache. Source: client-go util/workqueue (contract).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/backoff.h"
#include "base/rng.h"
#include "base/time.h"

namespace crowdsurf::controller {

class WorkQueue {
 public:
  // Of a failing key. A conflict is over when the watch has told of it, in some milliseconds, and
  // that news brings the key back sooner; all else that fails needs a server to recover.
  static constexpr Backoff kRetry{
      .initial = Milliseconds(250), .most = Seconds(60), .factor = 2, .jitter = 0.5};

  explicit WorkQueue(Rng rng) : rng_(rng) {}

  void Add(const std::string& key, Time now) { AddAt(key, now); }
  void AddAfter(const std::string& key, Time now, Duration delay) { AddAt(key, now + delay); }
  // After a failure: the key's own exponential delay. Returns it.
  Duration AddRateLimited(const std::string& key, Time now);
  void Forget(const std::string& key) { failures_.erase(key); }

  // A ready key, now worked on until Done; nullopt when none is ready.
  std::optional<std::string> Get(Time now);
  // Pre: Get returned `key` and Done was not called since.
  void Done(const std::string& key);
  // Forgets everything about a key that is gone from the cache.
  void Drop(const std::string& key);

  Time NextReady() const;                      // Infinite when nothing waits
  Duration waited() const { return waited_; }  // of the key that Get gave last, since it was ready
  size_t depth() const { return ready_at_.size(); }
  uint64_t adds() const { return adds_; }
  uint64_t retries() const { return retries_; }

 private:
  void AddAt(const std::string& key, Time at);
  void Schedule(const std::string& key, Time at);

  Rng rng_;
  std::map<std::string, Time> ready_at_;             // waiting keys
  std::set<std::pair<Time, std::string>> in_order_;  // the same, by time
  std::map<std::string, Time> again_;                // added while worked on
  std::set<std::string> working_;
  std::map<std::string, int> failures_;
  uint64_t adds_ = 0;
  uint64_t retries_ = 0;
  Duration waited_;
};

}  // namespace crowdsurf::controller
