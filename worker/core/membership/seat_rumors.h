// SeatRumors: seats and vacancies of the present view that a member told and did not give.
//
// The steward gives seats and declares vacancies; others pass them on, because the steward may die
// while it tells. What somebody else tells is held until the steward says it, a second member does,
// or nobody is left to ask (Membership::Believes). Owner: Membership, single sequence. Bounds:
// kMax items, kMaxTellers each, forgotten after kForget: a peer that knows better tells again.
// Source: docs/views.md, Seats and vacancies.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

class SeatRumors {
 public:
  static constexpr size_t kMax = 256;
  static constexpr size_t kMaxTellers = 4;
  static constexpr Duration kForget = Seconds(5);

  using Item = std::variant<Seat, Vacancy>;
  struct Rumor {
    std::set<PeerId> tellers;  // those that can make it believed; a stranger cannot
    Time since;
  };

  // False: there is no room, and the item is dropped.
  bool Hold(Time now, const std::set<PeerId>& tellers, const Item& item);
  // Takes out what is believed, and what was held for too long: that is dropped.
  std::vector<Item> Take(Time now, const std::function<bool(const Item&, const Rumor&)>& believes);
  // What it told counts no more.
  void Withdraw(const PeerId& teller);
  void Clear() { rumors_.clear(); }

  bool empty() const { return rumors_.empty(); }
  Time oldest() const;  // Infinite when there is none

 private:
  std::map<Item, Rumor> rumors_;
};

}  // namespace crowdsurf::worker
