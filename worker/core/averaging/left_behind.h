// LeftBehind: a member that sits one averaging after the other out, because the others measure from
// a base that it cannot fetch before they have the next one.
//
// Owner: Averaging; single sequence. A value. Source: docs/averaging.md, Joiners.
#pragma once

#include "base/time.h"

namespace crowdsurf::worker {

class LeftBehind {
 public:
  void OnSatOut(Time now) {
    if (count_++ == 0) since_ = now;
  }
  void Reset() { *this = {}; }
  // So many averagings, and for so long: a fetch or two that come late are no reason to go.
  bool is(Time now) const { return count_ >= kAveragings && now - since_ >= kPatience; }

 private:
  static constexpr int kAveragings = 4;
  static constexpr Duration kPatience = Seconds(3);

  int count_ = 0;
  Time since_;  // of the first of them
};

}  // namespace crowdsurf::worker
