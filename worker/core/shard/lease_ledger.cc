#include "worker/core/shard/lease_ledger.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kHashKey = 0x6c65'6173'6573;  // "leases": the hashes' domain

}  // namespace

uint64_t LeaseLedger::Holder::end() const {
  uint64_t end = position;
  for (const Lease& lease : open) end += lease.count;
  return end;
}

const LeaseLedger::Holder* LeaseLedger::Find(const PeerId& peer) const {
  const auto at = holders_.find(peer);
  return at == holders_.end() ? nullptr : &at->second;
}

size_t LeaseLedger::open() const {
  size_t open = returned_.size();
  for (const auto& [peer, holder] : holders_) open += holder.open.size();
  return open;
}

void LeaseLedger::Commit(AveragingId averaging, const ClaimSet& decided,
                         const std::set<PeerId>& members) {
  CHECK(averaging > mark_.averaging);
  if (spec_.none()) spec_ = decided.spec;
  if (spec_.none()) return;  // no worker of this job has asked for data
  const bool fits = decided.spec == spec_;
  if (fits)
    for (const LeaseClaim& claim : decided.claims) Settle(claim);
  for (auto at = holders_.begin(); at != holders_.end();) {
    const auto next = std::next(at);
    if (!members.contains(at->first)) TakeBack(at);
    at = next;
  }
  if (fits)
    for (const LeaseClaim& claim : decided.claims)
      if (members.contains(claim.peer)) Grant(averaging, claim);
  mark_ = {.averaging = averaging, .hash = 0};
  mark_.hash = HashOfContents();
}

uint64_t LeaseLedger::HashOfContents() const {
  LeaseLedger contents = *this;
  contents.mark_.hash = 0;
  return ContentHash(contents.Encode(), kHashKey);
}

void LeaseLedger::Settle(const LeaseClaim& claim) {
  const auto at = holders_.find(claim.peer);
  if (at == holders_.end()) {
    if (claim.trained.stream != 0) ++totals_.void_claims;
    return;
  }
  Holder& holder = at->second;
  if (holder.stream != claim.trained.stream) return TakeBack(at);
  // What is not granted cannot be committed, whatever is claimed.
  while (holder.position < claim.trained.position && !holder.open.empty()) {
    Lease& first = holder.open.front();
    const uint64_t count = std::min(first.count, claim.trained.position - holder.position);
    first.begin += count;
    first.count -= count;
    holder.position += count;
    totals_.committed += count;
    if (first.count == 0) holder.open.pop_front();
  }
}

void LeaseLedger::TakeBack(std::map<PeerId, Holder>::iterator holder) {
  for (const Lease& lease : holder->second.open) {
    totals_.returned += lease.count;
    returned_.insert(lease);
  }
  holders_.erase(holder);
}

// The next `count` samples that were never granted, or as many as their epoch has.
Lease LeaseLedger::TakeNext(uint64_t count) {
  Lease lease = next_;
  lease.count = std::min(count, spec_.samples - next_.begin);
  next_.begin += lease.count;
  if (next_.begin == spec_.samples) next_ = {.epoch = next_.epoch + 1, .begin = 0, .count = 0};
  return lease;
}

// What was taken back goes first, so that an epoch ends.
void LeaseLedger::Grant(AveragingId averaging, const LeaseClaim& claim) {
  uint64_t left = static_cast<uint64_t>(claim.want) * spec_.unit;
  const size_t before = open();
  if (left == 0 || before >= kMaxOpen) return;
  const auto [at, fresh] = holders_.try_emplace(claim.peer);
  Holder& holder = at->second;
  if (fresh) holder.stream = averaging.value();
  // What was taken back is open already, and at most one piece of it is cut in two.
  size_t room = kMaxOpen - before;
  while (left > 0 && room > 0 && holder.open.size() < kMaxHeld) {
    Lease lease;
    if (returned_.empty()) {
      lease = TakeNext(left);
      --room;
    } else {
      lease = *returned_.begin();
      returned_.erase(returned_.begin());
      if (lease.count > left) {
        returned_.insert({lease.epoch, lease.begin + left, lease.count - left});
        lease.count = left;
      }
    }
    left -= lease.count;
    // Runs that follow one another are one lease.
    if (!holder.open.empty() && holder.open.back().epoch == lease.epoch &&
        holder.open.back().begin + holder.open.back().count == lease.begin) {
      holder.open.back().count += lease.count;
    } else {
      holder.open.push_back(lease);
    }
  }
}

}  // namespace crowdsurf::worker
