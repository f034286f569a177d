// SpotMarket: which machines the cloud takes and gives, when.
//
// Either at a rate (one or several random workers every so often) or by a recorded trace. Pure:
// time and the machines that can be taken are arguments, randomness is a seed; the same seed takes
// the same workers if they are the same. Single sequence. Bounds: a trace has at most a million
// events.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::cli {

struct TraceEvent {
  Duration at;  // since the trace began
  bool add = false;
  std::string node;
};

// Lines of `milliseconds,add|remove,node`, blank lines and # comments aside, sorted by time here.
// Error: InvalidArgument with the line's number.
StatusOr<std::vector<TraceEvent>> ParseTrace(std::string_view csv);

struct MarketOptions {
  std::optional<Duration> every = {};  // take at this rate
  int count = 1;                       // so many at once; 0: all
  std::vector<TraceEvent> trace = {};  // or by this
  double speed = 1;                    // of the trace: 2 is twice as fast
  uint64_t seed = 1;
};

struct MarketMove {
  bool add = false;
  std::string node;
};

class SpotMarket {
 public:
  explicit SpotMarket(MarketOptions options);

  bool by_trace() const { return !options_.trace.empty(); }
  // The trace begins now, the rate counts from now.
  void Open(Time now);
  // When it moves next; Infinite when it never does again, or is not open.
  Time next() const { return next_; }
  // What happens at `now`; machines are taken from `takeable`.
  std::vector<MarketMove> Moves(Time now, const std::vector<std::string>& takeable);

 private:
  Time TraceTime(size_t i) const;

  MarketOptions options_;
  Rng rng_;
  Time opened_;
  Time next_ = Time::Infinite();
  size_t position_ = 0;
};

}  // namespace crowdsurf::cli
