// EventQueue: virtual time. A heap of (time, serial) and what happens then.
//
// Events at one instant run in the order they were scheduled, so a run is a function of its seed.
// Virtual time starts at one hour, because a Time of zero means "unset" (base/time.h). Owner: one
// world. Single sequence. Not bounded by itself: max_pending() is what the worlds check their
// bound against.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace crowdsurf::simulator {

inline constexpr Time kStartOfTime = Time::FromNanoseconds(3'600'000'000'000);

class EventQueue {
 public:
  Time now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  size_t pending() const { return heap_.size(); }
  size_t max_pending() const { return max_pending_; }
  uint64_t done() const { return done_; }

  // Runs `what` at `when`, or now if that is past.
  void At(Time when, std::function<void()> what) {
    heap_.push_back({std::max(when, now_), next_serial_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
    max_pending_ = std::max(max_pending_, heap_.size());
  }
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }

  // Runs the earliest event; false when there is none at or before `limit` (now is then `limit`).
  bool RunOne(Time limit = Time::Infinite()) {
    if (heap_.empty() || heap_.front().when > limit) {
      if (!limit.infinite()) now_ = std::max(now_, limit);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.when;
    ++done_;
    event.what();
    return true;
  }

 private:
  struct Event {
    Time when;
    uint64_t serial;
    std::function<void()> what;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.serial > b.serial;
  }

  Time now_ = kStartOfTime;
  uint64_t next_serial_ = 0;
  uint64_t done_ = 0;
  size_t max_pending_ = 0;
  std::vector<Event> heap_;
};

}  // namespace crowdsurf::simulator
