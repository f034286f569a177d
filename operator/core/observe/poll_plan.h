// PollPlan: which agent is asked next, how many at once, and who is left alone for a while.
//
// Every target is asked once an interval, a new one at once, the longest waiting first; at most
// kAtOnce are under way, and two never begin within the spacing. An agent that is slow or answers
// without end kStrikes times in a row is struck out: it is asked again after six intervals, a
// minute at most. One that nobody listens for costs nothing and is no strike. Single sequence.
// Bound: the targets, which are its owner's workers. Source: docs/pod-lifecycle.md 8.5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"

namespace crowdsurf::controller {

enum class PollEnd {
  kAnswered,
  kNobody,  // refused, reset or no address: it starts, or has ended
  kSlow     // not whole in time, longer than it may be, or no HTTP
};

class PollPlan {
 public:
  // A second each, of what answers in a millisecond: sixteen that drip let fifteen others through
  // in that second. Halved: a tenant with eight such agents would delay everybody.
  static constexpr size_t kAtOnce = 16;
  static constexpr int kStrikes = 3;
  static constexpr Duration kMaxRest = Seconds(60);

  PollPlan(Duration interval, Duration spacing) : interval_(interval), spacing_(spacing) {}

  void SetTarget(const std::string& name, const std::string& address, Time now);
  void Forget(const std::string& name) { targets_.erase(name); }

  struct Poll {
    std::string name, address;
    uint64_t target = 0;  // one of that name and address
  };
  // Begins the next one; nullopt: nobody is due, or no room. Each is followed by one Ended.
  std::optional<Poll> Next(Time now);
  // Whether it is struck out by this.
  bool Ended(const Poll& poll, PollEnd how, Time now);
  // When Next may give one; infinite: not before an Ended or a SetTarget.
  Time NextDue() const;
  Duration rest() const { return std::min(interval_ * 6, kMaxRest); }

 private:
  struct Target {
    std::string address;
    uint64_t number = 0;
    Time due;
    int strikes = 0;  // in a row
    bool under_way = false;
  };
  Duration interval_, spacing_;
  std::map<std::string, Target> targets_;
  Time free_at_;  // of the spacing
  size_t under_way_ = 0;
  uint64_t numbers_ = 0;
};

}  // namespace crowdsurf::controller
