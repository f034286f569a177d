// Tensor outbox: the frames that wait for one peer, bounded in bytes.
//
// The host thread pushes, an I/O thread looks at the front, writes and pops. It outlives a
// connection: after a reconnect the front frame is sent again from its first byte. A refused push
// is remembered, and the pop that brings the queue below half of the bound says so, so that the
// host can go on. A frame may be lent bytes of others, which are copied when those are wanted back
// (Keep). Thread-safe.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/time.h"
#include "worker/core/reduce/reducer.h"
#include "worker/edge/tensor/tensor_frame.h"

namespace crowdsurf::worker {

struct OutFrame {
  TensorHeaderBytes header;
  bool chunk = false;     // an input or a result
  bool unhashed = false;  // whoever writes it hashes the payload, which it reads anyway (Hashed)
  SharedBytes payload;    // nullptr: none, or it is lent
  ByteView lent = {};     // in place of the payload; its owner keeps it as it is until Keep
  ByteView bytes() const { return payload ? ByteView(*payload) : lent; }
  size_t size() const { return kTensorHeaderBytes + bytes().size(); }
};

class TensorOutbox {
 public:
  enum class Pushed : uint8_t { kQueued, kQueuedFirst, kFull, kClosed };

  explicit TensorOutbox(size_t max_bytes) : max_bytes_(max_bytes) {}

  // kQueuedFirst: the queue was empty, the I/O thread must be woken. A frame is taken while the
  // queue is below its bound, so a single frame always fits.
  Pushed Push(OutFrame frame);
  // Held while a frame's bytes are read, from when the frame was looked at.
  std::unique_lock<std::mutex> Reading() { return std::unique_lock(reading_); }
  // Copies what is lent, into buffers of `pool`: afterwards nobody reads it. Waits for one write to
  // a socket at most.
  void Keep(BytePool& pool);
  // The first frame, without taking it; nullopt: there is none.
  std::optional<OutFrame> Front() const;
  // The first frames, at most `most`, without taking them, and none after the first `bytes`.
  std::vector<OutFrame> First(size_t most, size_t bytes) const;
  // That frame, counted from the first, has this header now. Pre: First has given it, and nothing
  // was popped since.
  void Hashed(size_t frame, const TensorHeaderBytes& header);
  // Takes the first frame, which was sent. True when a refused pusher may go on now.
  bool Pop();
  uint32_t TakeLeft();  // inputs and results that Pop has taken since the last call
  // The least round trip of the connection that writes it; nullopt: it is not known.
  void OnRoundTrip(std::optional<Duration> round_trip);
  std::optional<Duration> round_trip() const;
  bool empty() const;
  bool closed() const;
  // Drops everything and refuses from now on; the number of frames dropped.
  size_t Close();

 private:
  const size_t max_bytes_;
  std::mutex reading_;  // before mutex_
  mutable std::mutex mutex_;
  std::deque<OutFrame> frames_;
  size_t bytes_ = 0;
  uint32_t left_ = 0;
  std::optional<Duration> round_trip_;
  bool refused_ = false;
  bool closed_ = false;
};

}  // namespace crowdsurf::worker
