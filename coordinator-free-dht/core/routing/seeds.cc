#include "coordinator-free-dht/core/routing/seeds.h"

#include <algorithm>

namespace crowdsurf::dht {

Seeds::Seed* Seeds::Find(const std::string& endpoint) {
  const auto it = std::find_if(seeds_.begin(), seeds_.end(),
                               [&](const Seed& seed) { return seed.endpoint == endpoint; });
  return it == seeds_.end() ? nullptr : &*it;
}

void Seeds::Add(Time now, const std::string& endpoint) {
  if (Seed* const known = Find(endpoint); known != nullptr) {
    // A seed that is named again may be back. One that answers keeps its rhythm.
    if (known->failures > 0 && !known->asking) known->next = now;
    return;
  }
  // The list comes from outside and may grow without end; old addresses are the likeliest to be
  // dead.
  if (seeds_.size() >= config_.seeds) seeds_.erase(seeds_.begin());
  seeds_.push_back({.endpoint = endpoint, .next = now, .since = now});
}

std::optional<std::string> Seeds::NextDue(Time now) {
  for (Seed& seed : seeds_) {
    if (seed.asking || seed.next > now) continue;
    seed.asking = true;
    return seed.endpoint;
  }
  return std::nullopt;
}

void Seeds::OnAnswer(Time now, const std::string& endpoint) {
  Seed* const seed = Find(endpoint);
  if (seed == nullptr) return;
  seed->asking = false;
  seed->settled = seed->answered = true;
  seed->failures = 0;
  // Jitter: nodes that started together would else ask a seed together for ever.
  seed->next = now + config_.seed_again * (0.5 + rng_.UniformDouble());
}

void Seeds::OnFailure(Time now, const std::string& endpoint) {
  Seed* const seed = Find(endpoint);
  if (seed == nullptr) return;
  seed->asking = false;
  seed->settled = true;
  seed->next = now + config_.seed_retry.Delay(seed->failures, rng_);
  // Beyond this the back-off is at its longest anyway.
  seed->failures = std::min(seed->failures + 1, 30);
}

void Seeds::Hurry(Time now) {
  for (Seed& seed : seeds_) {
    // The old back-off was learned from a network that may be gone.
    seed.failures = 0;
    seed.next = std::min(seed.next, now + config_.seed_retry.Delay(0, rng_));
  }
}

bool Seeds::AwaitingFirstAnswers() const {
  return std::any_of(seeds_.begin(), seeds_.end(), [](const Seed& seed) { return !seed.settled; });
}

std::vector<std::string> Seeds::Silent(Time now) const {
  std::vector<std::string> silent;
  for (const Seed& seed : seeds_) {
    if (!seed.answered && now - seed.since >= kSilentAfter) silent.push_back(seed.endpoint);
  }
  return silent;
}

Time Seeds::NextDeadline() const {
  Time next = Time::Infinite();
  for (const Seed& seed : seeds_) {
    // One that is being asked wakes nobody: its answer or its time-out comes by itself.
    if (!seed.asking) next = std::min(next, seed.next);
  }
  return next;
}

}  // namespace crowdsurf::dht
