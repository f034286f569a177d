// ModelAge: how old the models in the members' averages are, as it travels in the job's count.
//
// RelaySum only: an update of one step reaches the average of all diluted by 1 + the mean age, over
// all pairs of members, of the one's model in the other's average. Age counts in steps of the
// model's owner. A member knows it up to the difference between both members' step numbers; over
// all pairs these differences cancel. So only the sum over all members of a view says anything.
// Values; any thread. Source: docs/strategies/relaysum.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>

#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

// The factor of the learning rate that the members agreed on in a count of their view.
struct AgreedScale {
  AveragingId averaging = {};  // of that count
  double scale = 0;            // 0: none yet
  auto operator<=>(const AgreedScale&) const = default;
};

struct ModelAge {
  double steps = 0;      // the members' shares of the mean age; one alone may be below 0
  uint32_t members = 0;  // whose shares these are
  AgreedScale agreed;    // the latest that they know
  bool operator==(const ModelAge&) const = default;
  bool none() const { return *this == ModelAge(); }
};

// Far above what steps and trees allow; sums over all members stay finite.
inline constexpr double kMaxModelAge = 1e9;

inline bool IsValid(const ModelAge& age) {
  const auto bounded = [](double value) { return std::abs(value) <= kMaxModelAge; };  // not NaN
  return bounded(age.steps) && bounded(age.agreed.scale) && age.agreed.scale >= 0;
}
// A sum of valid ages is valid, whoever lies.
inline void Add(const ModelAge& age, ModelAge& sum) {
  sum.steps = std::clamp(sum.steps + age.steps, -kMaxModelAge, kMaxModelAge);
  sum.members += age.members;
  sum.agreed = std::max(sum.agreed, age.agreed);
}

}  // namespace crowdsurf::worker
