#include "simulator/engine/node_clocks.h"

namespace crowdsurf::simulator {
namespace {

constexpr WallTime kEpoch = WallTime::FromNanoseconds(1'700'000'000'000'000'000);

// Each node has a key of its own.
dht::PublicKey KeyOf(int node) {
  dht::PublicKey key{};
  for (size_t i = 0; i < 4; ++i) key[i] = static_cast<uint8_t>(node >> (8 * i));
  return key;
}

}  // namespace

WallTime NodeClocks::TrueTime() const { return kEpoch + (queue_.now() - kStartOfTime); }

dht::Clocks NodeClocks::Own(int node) const {
  const auto ahead = ahead_.find(node);
  return {queue_.now(), ahead == ahead_.end() ? TrueTime() : TrueTime() + ahead->second};
}

void NodeClocks::Hear(int node, int from, Duration round_trip) {
  if (ahead_.empty() || node == from) return;
  learnt_[node].Add(Own(node), KeyOf(from), Own(from).wall - round_trip * 0.5, round_trip);
}

WallTime NodeClocks::JobTime(int node) const {
  const dht::Clocks own = Own(node);
  const auto learnt = learnt_.find(node);
  if (keep_own_ || learnt == learnt_.end()) return own.wall;
  return learnt->second.JobTime(own).wall;
}

}  // namespace crowdsurf::simulator
