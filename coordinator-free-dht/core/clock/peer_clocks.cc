#include "coordinator-free-dht/core/clock/peer_clocks.h"

#include <algorithm>
#include <cstdlib>

namespace crowdsurf::dht {
namespace {

int64_t Ahead(WallTime wall, Time now) { return wall.nanoseconds() - now.nanoseconds(); }

}  // namespace

const char* Name(ClockSample sample) {
  switch (sample) {
    case ClockSample::kTaken:
      return "taken";
    case ClockSample::kWorse:
    case ClockSample::kSlow:
    case ClockSample::kFar:
    case ClockSample::kUnproved:
      return "left_out";  // one series: an agent has at most 250
  }
  return "unknown";
}

ClockSample PeerClocks::Add(const Clocks& at, const PublicKey& peer, WallTime wall,
                            Duration round_trip) {
  if (round_trip < Duration() || round_trip > kLongestRoundTrip) return ClockSample::kSlow;
  // Compared, and not subtracted: a peer may say any number.
  if (wall < at.wall - kFurthest || wall > at.wall + kFurthest) return ClockSample::kFar;
  const Duration error = round_trip * 0.5;
  const Reading reading{Ahead(wall, at.now) + error.nanoseconds(), error, at.now, at.now};
  const auto known = readings_.find(peer);
  if (known != readings_.end()) {
    Reading& held = known->second;
    held.heard = at.now;
    const int64_t apart = std::abs(reading.ahead - held.ahead);
    // Both cannot be true of a clock that runs on: it was set meanwhile.
    const bool was_set = apart > (reading.error + held.error).nanoseconds();
    const bool old = at.now - held.taken > kPreferred;
    if (!was_set && !old && reading.error > held.error) return ClockSample::kWorse;
    held = reading;
  } else {
    MakeRoom(at.now);
    readings_.emplace(peer, reading);
  }
  Sort();
  return ClockSample::kTaken;
}

// Forgets who is silent, and the most silent one where all places are taken.
void PeerClocks::MakeRoom(Time now) {
  std::erase_if(readings_, [&](const auto& item) { return now - item.second.heard > kForgotten; });
  if (readings_.size() < kMostPeers) return;
  const auto silent = std::min_element(
      readings_.begin(), readings_.end(),
      [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; });
  readings_.erase(silent);
}

void PeerClocks::Sort() {
  ahead_.clear();
  for (const auto& [peer, reading] : readings_) ahead_.push_back(reading.ahead);
  std::sort(ahead_.begin(), ahead_.end());
}

Duration PeerClocks::Offset(const Clocks& at) const {
  if (ahead_.empty()) return Duration();
  const int64_t own = Ahead(at.wall, at.now);
  const size_t middle = ahead_.size() / 2;
  // With ours the number is odd: the median is ours, or the nearest of the two in the middle.
  if (ahead_.size() % 2 == 0)
    return Nanoseconds(std::clamp(own, ahead_[middle - 1], ahead_[middle]) - own);
  // Else it lies between the two in the middle. One is this, and the other ours or its neighbour.
  const int64_t least = ahead_.size() == 1 ? own : ahead_[middle - 1];
  const int64_t most = ahead_.size() == 1 ? own : ahead_[middle + 1];
  const int64_t other = std::clamp(own, least, most);
  return Nanoseconds((ahead_[middle] - own) / 2 + (other - own) / 2);
}

}  // namespace crowdsurf::dht
