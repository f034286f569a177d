#include "coordinator-free-dht/core/routing/source_limiter.h"

#include <algorithm>

namespace crowdsurf::dht {

double SourceLimiter::TokensAt(Time now, const Bucket& bucket) const {
  const double gained = (now - bucket.at).seconds() * config_.source_rate;
  // An instant before the last one, should a host give it, takes no tokens away.
  return std::min(config_.source_burst, bucket.tokens + std::max(0.0, gained));
}

bool SourceLimiter::Take(Time now, const PeerId& source, double cost) {
  auto at = buckets_.find(source);
  if (at == buckets_.end()) {
    // Anybody can come under a new id, so the number of buckets is bounded as well.
    if (buckets_.size() >= config_.sources) MakeRoom(now);
    at = buckets_.emplace(source, Bucket{config_.source_burst, now}).first;
  }
  Bucket& bucket = at->second;
  bucket.tokens = TokensAt(now, bucket);
  bucket.at = now;
  // A refused request costs nothing, so a sender is let in again soon after its flood.
  if (bucket.tokens < cost) return false;
  bucket.tokens -= cost;
  return true;
}

void SourceLimiter::Fine(Time now, const PeerId& source, double cost) {
  // Its bucket may have made room for another's since; then it begins anew with a full one.
  const auto at = buckets_.find(source);
  if (at == buckets_.end()) return;
  at->second.tokens = TokensAt(now, at->second) - cost;
  at->second.at = now;
}

void SourceLimiter::MakeRoom(Time now) {
  // A full bucket says no more than none at all, so forgetting it favours nobody.
  std::erase_if(buckets_, [&](const auto& entry) {
    return TokensAt(now, entry.second) >= config_.source_burst;
  });
  if (buckets_.size() < config_.sources) return;
  // All are in use. The one that was idle longest has gained most of its tokens back.
  buckets_.erase(
      std::min_element(buckets_.begin(), buckets_.end(),
                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
}

size_t SourceLimiter::MemoryBytes() const { return sizeof *this + buckets_.size() * 96; }

}  // namespace crowdsurf::dht
