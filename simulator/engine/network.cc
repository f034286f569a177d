#include "simulator/engine/network.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::simulator {

void Network::Send(int from, int to, Plane plane, std::function<void()> deliver) {
  ++sent_;
  if (rng_.Bernoulli(options_.loss)) {
    ++lost_;
    return;
  }
  std::function<void()> again;
  if (options_.duplicate > 0) again = deliver;
  Schedule(from, to, plane, std::move(deliver));
  if (rng_.Bernoulli(options_.duplicate)) Schedule(from, to, plane, std::move(again));
}

void Network::Schedule(int from, int to, Plane plane, std::function<void()> deliver) {
  Time when = queue_.now() + Delay();
  if (options_.in_order) {
    Time& last = last_[static_cast<size_t>(plane)][{from, to}];
    when = std::max(when, last);
    last = when;
  }
  queue_.At(when, [this, from, to, deliver = std::move(deliver)] {
    if (!Reaches(from, to)) {
      ++lost_;
      return;
    }
    deliver();
  });
}

Duration Network::Delay() {
  Duration extra = Nanoseconds(static_cast<int64_t>(
      rng_.Exponential(static_cast<double>(options_.mean_extra_delay.nanoseconds()) + 1)));
  if (options_.slow > 0 && rng_.Bernoulli(options_.slow)) extra = extra * options_.slow_factor;
  return options_.min_delay + extra;
}

void Network::Cut(int from, int to) { cuts_.insert({from, to}); }

void Network::Restore(int from, int to) { cuts_.erase({from, to}); }

void Network::Partition(const std::set<int>& side) { side_ = side; }

void Network::Heal() {
  cuts_.clear();
  side_.clear();
  options_.loss = 0;
  options_.duplicate = 0;
  options_.slow = 0;
  options_.in_order = true;
}

bool Network::Reaches(int from, int to) const {
  return !cuts_.contains({from, to}) && side_.contains(from) == side_.contains(to);
}

}  // namespace crowdsurf::simulator
