#include "coordinator-free-dht/core/routing/source_limiter.h"

#include <algorithm>

namespace crowdsurf::dht {

double SourceLimiter::TokensAt(Time now, const Bucket& bucket) const {
  const double gained = (now - bucket.at).seconds() * config_.source_rate;
  return std::min(config_.source_burst, bucket.tokens + std::max(0.0, gained));
}

bool SourceLimiter::Take(Time now, const PeerId& source, double cost) {
  auto at = buckets_.find(source);
  if (at == buckets_.end()) {
    if (buckets_.size() >= config_.sources) MakeRoom(now);
    at = buckets_.emplace(source, Bucket{config_.source_burst, now}).first;
  }
  Bucket& bucket = at->second;
  bucket.tokens = TokensAt(now, bucket);
  bucket.at = now;
  if (bucket.tokens < cost) return false;
  bucket.tokens -= cost;
  return true;
}

void SourceLimiter::Fine(Time now, const PeerId& source, double cost) {
  const auto at = buckets_.find(source);
  if (at == buckets_.end()) return;
  at->second.tokens = TokensAt(now, at->second) - cost;
  at->second.at = now;
}

void SourceLimiter::MakeRoom(Time now) {
  std::erase_if(buckets_, [&](const auto& entry) {
    return TokensAt(now, entry.second) >= config_.source_burst;
  });
  if (buckets_.size() < config_.sources) return;
  buckets_.erase(
      std::min_element(buckets_.begin(), buckets_.end(),
                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
}

size_t SourceLimiter::MemoryBytes() const { return sizeof *this + buckets_.size() * 96; }

}  // namespace crowdsurf::dht
