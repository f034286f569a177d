// Send plane: all that this agent sends to peers over the tensor transport, in one queue a peer.
//
// Purpose: between the planes, which know what frames are made of (chunk_plane.h, mix_plane.h), and
// TensorTransport, which moves them. A plane pushes a send. When its turn comes, it is asked to
// make the frame. A send waits as a few words while a peer's link is full, so the bytes in flight
// stay bounded. SendQueues decides what goes next, what is tried again and what is dropped. Host
// thread only. Bounds: SendQueuesConfig; endpoints of introduced peers.
#pragma once

#include <string>

#include "coordinator-free-dht/core/relay/relay_paths.h"
#include "worker/core/link/send_queues.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/tensor/tensor_transport.h"
#include "worker/edge/tensor/waiting_send.h"

namespace crowdsurf::worker {

// What became of a try.
enum class Tried : uint8_t {
  kSent,  // all of it has left, or what is left is void
  kPart,  // some has left: the others have their turn before the rest
  kFull,  // nothing: the link takes no more now
  kDown,  // nothing: the link has failed
};

// A plane that sends. Outlives what it has pushed.
class Sender {
 public:
  virtual ~Sender() = default;
  // The turn of one of its sends: makes one frame and transmits it. Pushes nothing.
  virtual Tried Try(const PeerId& to, WaitingSend& what) = 0;
};

class SendPlane {
 public:
  static constexpr size_t kMaxPeers = 200'000;  // introduced

  // References outlive the plane.
  SendPlane(TensorTransport& transport, AgentMetrics& metrics)
      : transport_(transport), metrics_(metrics) {}

  void Introduce(const PeerId& peer, const std::string& tensor_endpoint);
  bool Knows(const PeerId& peer) const { return endpoints_.Find(peer) != nullptr; }

  // Behind what waits for that peer; tried at once if nothing does. False: refused, a bound is
  // reached (counted).
  bool Push(Time now, const PeerId& to, Sender& sender, WaitingSend what);
  // The first that waits for `to` and matches; nullptr: none. O(sends of that peer).
  template <class Predicate>
  WaitingSend* Find(const PeerId& to, Predicate matches) {
    Waiting* found = queues_.Find(to, [&](const Waiting& it) { return matches(it.what); });
    return found == nullptr ? nullptr : &found->what;
  }
  // For a Sender in its Try. To a peer that was never introduced it is as if lost on the way.
  Tried Transmit(const PeerId& to, const TensorHeader& header, SharedBytes payload);
  // The same, of bytes that stay as they are until TensorTransport::KeepLent.
  Tried TransmitLent(const PeerId& to, const TensorHeader& header, ByteView lent);

  void OnDrained(Time now, const PeerId& peer);
  // The link with it failed: what waits is tried again.
  void OnFailed(Time now, const PeerId& peer) { queues_.OnFailed(now, peer); }
  void OnDead(const PeerId& peer);  // what waits for it is dropped
  void OnTimer(Time now);
  Time NextDeadline() const { return queues_.NextDeadline(); }

 private:
  struct Waiting {
    Sender* sender;
    WaitingSend what;
  };

  void Flush(Time now, const PeerId& to);  // what waits and can go

  TensorTransport& transport_;
  AgentMetrics& metrics_;
  dht::Remembered<PeerId, std::string> endpoints_{kMaxPeers};  // the longest unused goes
  SendQueues<Waiting> queues_;
};

}  // namespace crowdsurf::worker
