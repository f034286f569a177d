#include "simulator/chaos/lease_trainer.h"

#include <algorithm>

namespace crowdsurf::simulator {

void LeaseTrainer::Take(Time now, const worker::LeasesGranted& granted) {
  granted_ = granted;
  while (!batches_.empty() && batches_.back().begin >= now) batches_.pop_back();
  uint64_t skip = 0;  // samples of the leases that it has trained, or trains now
  if (!batches_.empty() && batches_.back().stream == granted.stream)
    skip = batches_.back().position - std::min(granted.begin, batches_.back().position);
  Time at = batches_.empty() ? now : std::max(now, batches_.back().end);
  uint64_t position = granted.begin;
  for (const worker::Lease& lease : granted.leases) {
    for (uint64_t from = 0; from < lease.count;) {
      const uint64_t known = std::min(skip, lease.count - from);
      if (known > 0) {
        skip -= known;
        from += known;
        position += known;
        continue;
      }
      const uint64_t count = std::min<uint64_t>(unit_, lease.count - from);
      position += count;
      const uint64_t before = batches_.empty() ? 0 : batches_.back().total;
      batches_.push_back({.begin = at,
                          .end = at + step_,
                          .stream = granted.stream,
                          .position = position,
                          .lease = {lease.epoch, lease.begin + from, count},
                          .total = before + count});
      from += count;
      at = at + step_;
    }
  }
}

void LeaseTrainer::Adopt(Time now) {
  while (!batches_.empty() && batches_.back().end > now) batches_.pop_back();
}

size_t LeaseTrainer::Done(Time now) const {
  return static_cast<size_t>(
      std::partition_point(batches_.begin(), batches_.end(),
                           [&](const Batch& batch) { return batch.end <= now; }) -
      batches_.begin());
}

worker::StreamProgress LeaseTrainer::Progress(Time now) const {
  const size_t done = Done(now);
  const bool busy = done < batches_.size();
  // The step under way may be of the stream before.
  const bool old = busy && batches_[done].stream != granted_.stream;
  const uint64_t stream = old ? batches_[done].stream : granted_.stream;
  worker::StreamProgress progress{.at = {stream, 0}, .waits = !busy};
  if (done > 0 && batches_[done - 1].stream == stream)
    progress.at.position = batches_[done - 1].position;
  return progress;
}

uint64_t LeaseTrainer::Samples(Time now) const {
  const size_t done = Done(now);
  return done == 0 ? 0 : batches_[done - 1].total;
}

Time LeaseTrainer::NextBoundary(Time now) const {
  const size_t done = Done(now);
  return done < batches_.size() ? batches_[done].end : now;
}

}  // namespace crowdsurf::simulator
