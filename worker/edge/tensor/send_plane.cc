#include "worker/edge/tensor/send_plane.h"

#include <utility>

namespace crowdsurf::worker {
namespace {

Tried OutcomeOf(TensorTransport::Sent sent) {
  if (sent == TensorTransport::Sent::kFull) return Tried::kFull;
  return sent == TensorTransport::Sent::kDown ? Tried::kDown : Tried::kSent;
}

}  // namespace

void SendPlane::Introduce(const PeerId& peer, const std::string& tensor_endpoint) {
  // Peers come and go for as long as a job lasts.
  if (!endpoints_.Put(peer, tensor_endpoint)) metrics_.EndpointsForgotten().Add();
}

bool SendPlane::Push(Time now, const PeerId& to, Sender& sender, WaitingSend what) {
  const size_t bytes = sizeof(Waiting) + HeldBytes(what);
  if (!queues_.Push(to, {&sender, std::move(what)}, bytes)) {
    metrics_.sends_dropped_full.Add();
    return false;
  }
  Flush(now, to);
  return true;
}

Tried SendPlane::Transmit(const PeerId& to, const TensorHeader& header, SharedBytes payload) {
  const std::string* endpoint = endpoints_.Use(to);
  if (endpoint == nullptr) return Tried::kSent;
  return OutcomeOf(transport_.Send(to, *endpoint, header, std::move(payload)));
}

Tried SendPlane::TransmitLent(const PeerId& to, const TensorHeader& header, ByteView lent) {
  const std::string* endpoint = endpoints_.Use(to);
  if (endpoint == nullptr) return Tried::kSent;
  return OutcomeOf(transport_.SendLent(to, *endpoint, header, lent));
}

void SendPlane::OnDrained(Time now, const PeerId& peer) {
  queues_.OnDrained(peer);
  Flush(now, peer);
}

void SendPlane::OnDead(const PeerId& peer) {
  metrics_.sends_dropped_dead.Add(static_cast<double>(queues_.Drop(peer)));
  metrics_.waiting_sends.Set(static_cast<double>(queues_.size()));
}

void SendPlane::OnTimer(Time now) {
  // The word that a queue has drained may be lost, so full links are tried again after a while.
  for (const PeerId& peer : queues_.TakeDue(now)) {
    metrics_.send_retries.Add();
    Flush(now, peer);
  }
}

void SendPlane::Flush(Time now, const PeerId& to) {
  // Ends when nothing waits, or after OnFull or OnFailed: then the queue gives nothing for a while.
  while (Waiting* next = queues_.Next(to)) {
    switch (next->sender->Try(to, next->what)) {
      case Tried::kSent:
        queues_.Pop(to);
        break;
      case Tried::kPart:
        queues_.Yield(to);
        break;
      case Tried::kFull:
        queues_.OnFull(now, to);
        break;
      case Tried::kDown:  // word of how dead it is follows
        queues_.OnFailed(now, to);
        break;
    }
  }
  metrics_.waiting_sends.Set(static_cast<double>(queues_.size()));
}

}  // namespace crowdsurf::worker
