#include "simulator/engine/network.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::simulator {

void Network::Send(const FrameOnLink& frame, std::function<void()> deliver) {
  ++sent_;
  const bool values = frame.plane == Plane::kTensor && options_.tensor_loss > 0;
  if (rng_.Bernoulli(options_.loss) || (values && rng_.Bernoulli(options_.tensor_loss))) {
    ++lost_;
    return;
  }
  // Copied only where links duplicate: most runs do without.
  std::function<void()> again;
  if (options_.duplicate > 0) again = deliver;
  Schedule(frame, std::move(deliver));
  if (rng_.Bernoulli(options_.duplicate)) Schedule(frame, std::move(again));
}

// The way in takes bytes as they come, so that a frame alone takes the time of its bytes once.
Time Network::ArrivalOf(const FrameOnLink& frame) {
  const Duration delay = Delay();
  const double out_rate = RateOf(frame.from);
  const double in_rate = RateOf(frame.to);
  const auto bytes = static_cast<double>(frame.bytes);
  Time first = queue_.now();  // its first byte leaves, and its last
  Time last = first;
  if (out_rate > 0) {
    Time& out = out_free_[frame.from];
    first = std::max(out, first);
    last = out = first + Seconds(bytes / out_rate);
  }
  if (in_rate <= 0) return last + delay;
  Time& in = in_free_[frame.to];
  in = std::max(std::max(in, first + delay) + Seconds(bytes / in_rate), last + delay);
  return in;
}

double Network::RateOf(int node) const {
  const auto at = rates_.find(node);
  return at == rates_.end() ? options_.bytes_per_second : at->second;
}

void Network::Schedule(const FrameOnLink& frame, std::function<void()> deliver) {
  const int from = frame.from, to = frame.to;
  Time when = ArrivalOf(frame);
  if (options_.in_order) {
    // Not before the frame that was sent before it.
    Time& last = last_[static_cast<size_t>(frame.plane)][{from, to}];
    when = std::max(when, last);
    last = when;
  }
  queue_.At(when, [this, from, to, deliver = std::move(deliver)] {
    // Cut while the frame was on its way.
    if (!Reaches(from, to)) {
      ++lost_;
      return;
    }
    deliver();
  });
}

Duration Network::Delay() {
  // A nanosecond more: no exponential distribution has the mean 0.
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
  // Delays and bandwidth stay: they are no faults.
  options_.loss = options_.tensor_loss = 0;
  options_.duplicate = 0;
  options_.slow = 0;
  options_.in_order = true;
}

bool Network::Reaches(int from, int to) const {
  return !cuts_.contains({from, to}) && side_.contains(from) == side_.contains(to);
}

}  // namespace crowdsurf::simulator
