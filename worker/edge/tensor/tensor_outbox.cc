#include "worker/edge/tensor/tensor_outbox.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {

TensorOutbox::Pushed TensorOutbox::Push(OutFrame frame) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Pushed::kClosed;
  // The last frame may go beyond the bound, so one that is larger than the bound still passes.
  if (bytes_ >= max_bytes_) {
    refused_ = true;
    return Pushed::kFull;
  }
  bytes_ += frame.size();
  frames_.push_back(std::move(frame));
  return frames_.size() == 1 ? Pushed::kQueuedFirst : Pushed::kQueued;
}

void TensorOutbox::Keep(BytePool& pool) {
  const std::lock_guard reading(reading_);
  const std::lock_guard lock(mutex_);
  for (OutFrame& frame : frames_) {
    if (frame.lent.empty()) continue;
    Bytes own = pool.Take(frame.lent.size());
    std::copy(frame.lent.begin(), frame.lent.end(), own.begin());
    frame.payload = pool.Share(std::move(own));
    frame.lent = {};
  }
}

// Copies share their payloads: an I/O thread writes them without the lock.
std::optional<OutFrame> TensorOutbox::Front() const {
  const std::lock_guard lock(mutex_);
  return frames_.empty() ? std::nullopt : std::optional(frames_.front());
}

std::vector<OutFrame> TensorOutbox::First(size_t most, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<OutFrame> out;
  size_t taken = 0;
  for (size_t i = 0; i < frames_.size() && i < most && taken < bytes; ++i) {
    out.push_back(frames_[i]);
    taken += frames_[i].size();
  }
  return out;
}

void TensorOutbox::Hashed(size_t frame, const TensorHeaderBytes& header) {
  const std::lock_guard lock(mutex_);
  if (frame >= frames_.size()) return;  // closed meanwhile
  frames_[frame].header = header;
  frames_[frame].unhashed = false;
}

bool TensorOutbox::Pop() {
  const std::lock_guard lock(mutex_);
  CHECK(!frames_.empty());
  bytes_ -= frames_.front().size();
  if (frames_.front().chunk) ++left_;
  frames_.pop_front();
  // Not at the first free byte, which would wake the host for every frame.
  if (!refused_ || bytes_ > max_bytes_ / 2) return false;
  refused_ = false;
  return true;
}

uint32_t TensorOutbox::TakeLeft() {
  const std::lock_guard lock(mutex_);
  return std::exchange(left_, 0);
}

void TensorOutbox::OnRoundTrip(std::optional<Duration> round_trip) {
  const std::lock_guard lock(mutex_);
  round_trip_ = round_trip;
}

std::optional<Duration> TensorOutbox::round_trip() const {
  const std::lock_guard lock(mutex_);
  return round_trip_;
}

bool TensorOutbox::empty() const {
  const std::lock_guard lock(mutex_);
  return frames_.empty();
}

bool TensorOutbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

size_t TensorOutbox::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  bytes_ = 0;
  return std::exchange(frames_, {}).size();
}

}  // namespace crowdsurf::worker
