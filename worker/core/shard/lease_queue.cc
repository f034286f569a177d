#include "worker/core/shard/lease_queue.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {

LeaseQueue::LeaseQueue(uint32_t unit) : unit_(unit) { CHECK_GE(unit, 1U); }

void LeaseQueue::Take(const LeasesGranted& granted) {
  const uint64_t stream = granted.stream == left_ ? 0 : granted.stream;
  if (stream != stream_) {
    stream_ = stream;
    position_ = stream == 0 ? 0 : granted.begin;
    handed_ = 0;
  }
  closed_ = granted.closed;
  rest_.clear();
  if (stream_ == 0 || closed_) return;
  rest_.assign(granted.leases.begin(), granted.leases.end());
  if (position_ > granted.begin) Skip(position_ - granted.begin);
}

std::optional<Lease> LeaseQueue::Next() {
  if (rest_.empty()) return std::nullopt;
  const Lease& first = rest_.front();
  handed_ = std::min<uint64_t>(first.count, unit_);
  return Lease{first.epoch, first.begin, handed_};
}

void LeaseQueue::Trained() {
  position_ += handed_;
  Skip(handed_);
  handed_ = 0;
}

void LeaseQueue::Drop() {
  if (stream_ != 0) left_ = stream_;
  stream_ = position_ = handed_ = 0;
  rest_.clear();
}

void LeaseQueue::Skip(uint64_t samples) {
  while (!rest_.empty() && samples > 0) {
    Lease& first = rest_.front();
    const uint64_t known = std::min(samples, first.count);
    samples -= known;
    first.begin += known;
    first.count -= known;
    if (first.count == 0) rest_.pop_front();
  }
}

}  // namespace crowdsurf::worker
