#include "worker/core/averaging/send_window.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {
namespace {

constexpr double kGain = 2;  // BBR's: enough to see that a link takes more than it is given

}  // namespace

uint32_t MaxWindowChunks(size_t ranks, uint64_t chunk_bytes, uint32_t least) {
  CHECK(ranks > 0 && chunk_bytes > 0);
  const uint64_t senders = std::max<uint64_t>(ranks - 1, 1);
  const uint64_t chunks = kMaxUnderWayBytes / senders / chunk_bytes;
  return static_cast<uint32_t>(std::clamp<uint64_t>(chunks, least, kMaxChunks));
}

void SendWindows::OnRoundTrip(const PeerId& owner, std::optional<Duration> round_trip) {
  if (!round_trip || *round_trip <= Duration()) {
    links_.erase(owner);
    return;
  }
  if (!links_.contains(owner) && links_.size() >= kMaxPeers) {
    links_.erase(std::min_element(links_.begin(), links_.end(), [](const auto& a, const auto& b) {
      return a.second.told < b.second.told;
    }));
  }
  Link& link = links_[owner];
  link.told = ++told_;
  link.round_trip = *round_trip;
}

void SendWindows::OnRoundOpened() {
  for (auto& [owner, link] : links_) link.under_way.clear();
}

void SendWindows::OnInput(Time now, const PeerId& owner, ChunkIndex chunk) {
  const auto at = links_.find(owner);
  if (at == links_.end() || at->second.under_way.size() >= kMaxInputs) return;
  at->second.under_way.push_back({chunk, now, at->second.come});
}

bool SendWindows::OnResult(Time now, const PeerId& owner, ChunkIndex chunk, uint64_t bytes) {
  const auto at = links_.find(owner);
  if (at == links_.end()) return false;
  Link& link = at->second;
  link.come += bytes;
  // Nearly always the first: an owner folds in the order in which inputs come.
  const auto input = std::find_if(link.under_way.begin(), link.under_way.end(),
                                  [&](const Input& sent) { return sent.chunk == chunk; });
  if (input == link.under_way.end()) return false;
  const Duration took = std::max(now - input->left, link.round_trip);
  const double rate = static_cast<double>(link.come - input->come) / took.seconds();
  link.under_way.erase(input);
  if (now - link.began >= link.round_trip) {
    link.began = now;
    link.epoch = (link.epoch + 1) % kSamples;
    link.rates[link.epoch] = 0;
  }
  link.rates[link.epoch] = std::max(link.rates[link.epoch], rate);
  return true;
}

uint64_t SendWindows::BytesTo(const PeerId& owner) const {
  const auto at = links_.find(owner);
  if (at == links_.end()) return 0;
  const Link& link = at->second;
  const double rate = *std::max_element(link.rates.begin(), link.rates.end());
  return static_cast<uint64_t>(std::ceil(kGain * rate * link.round_trip.seconds()));
}

}  // namespace crowdsurf::worker
