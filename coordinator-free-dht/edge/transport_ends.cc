// TransportCore: what follows when a stream ends or a dial fails.
#include <algorithm>
#include <utility>

#include "coordinator-free-dht/edge/transport_core.h"

namespace crowdsurf::dht {
namespace {

// A redialed stream that is cut again sooner is not redialed: no loop with a peer that hangs up.
constexpr Duration kLivedEnough = Seconds(1);
constexpr int kProbes = 8;

bool SaysRefused(const std::string& reason) {
  return reason.find("Connection refused") != std::string::npos;
}

bool SaysHungUp(const std::string& reason) {
  return reason.find("Socket closed") != std::string::npos ||
         reason.find("Connection reset") != std::string::npos ||
         reason.find("closing") != std::string::npos;
}

}  // namespace

void TransportCore::OnDone(StreamPtr stream, StreamEnd end, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  stream->closed = true;
  stream->joiner.Drop();
  if (!stream->outgoing) {
    --incoming_;
    const auto same = incoming_of_.find(stream->key);
    if (same != incoming_of_.end() && --same->second == 0) incoming_of_.erase(same);
  }
  all_.erase(stream.get());
  metrics_.streams.Set(static_cast<double>(all_.size()));
  if (!stopped_) {
    if (stream->ready) {
      if (stream->path == StreamPath::kDirect && !HasNeighbour(stream->peer.id)) {
        relay_.OnStreamDown(stream->peer.id);
      }
      OnStreamLost(stream, end);
    } else if (stream->outgoing) {
      OnDialFailed(stream, reason);
    }
  }
  retired_.push_back(std::move(stream));
  if (all_.empty()) idle_.notify_all();
}

// A ready stream that nobody carries. Of those that are going, too.
bool TransportCore::HasNeighbour(const PeerId& id) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& entry) {
    const Stream& stream = *entry.second;
    return stream.ready && !stream.closed && stream.path == StreamPath::kDirect &&
           stream.peer.id == id;
  });
}

bool TransportCore::DialCarried(const StreamPtr& stream, DownEvidence& evidence) {
  if (stream->path == StreamPath::kCarried) {
    relay_.OnCarriedFailed(stream->peer);
    return false;
  }
  const AfterFailure after = relay_.OnDialFailed(stream->peer, evidence);
  // A firewall may have refused: the peer must not be taken for dead for that.
  if (after != AfterFailure::kFinal) evidence = DownEvidence::kUnreachable;
  if (after != AfterFailure::kRelay) return false;
  const StreamPtr again = DialBy(stream->peer, StreamPath::kCarried);
  again->probe = stream->probe;
  MoveQueue(stream, again);
  return true;
}

void TransportCore::OnDialFailed(const StreamPtr& stream, const std::string& reason) {
  const bool carried = stream->path == StreamPath::kCarried;
  const bool refused = carried ? Relay::SaysDead(reason) : SaysRefused(reason);
  DownEvidence evidence = refused ? DownEvidence::kRefused : DownEvidence::kUnreachable;
  if (!carried) relay_.OnUnproved(stream->dialed, evidence);
  (refused ? metrics_.dials_refused : metrics_.dials_failed).Add();
  logger_.Debug("dial failed", {{"endpoint", stream->peer.endpoint}, {"reason", reason}});
  const Contact wanted = stream->peer;
  if (wanted.id.none()) {
    dialing_unknown_.erase(wanted.endpoint);
    if (DialCarried(stream, evidence)) return;
    DropQueue(stream);
    PostDown(wanted, evidence);
    return;
  }
  const auto it = peers_.find(wanted.id);
  if (it == peers_.end()) return DropQueue(stream);
  if (it->second.dialing == stream) it->second.dialing = nullptr;
  if (!it->second.ready.empty()) {  // it dialed us meanwhile
    MoveQueue(stream, it->second.ready.front());
    return;
  }
  // Another dial is under way, and its end decides about the peer.
  if (it->second.dialing != nullptr) return DropQueue(stream);
  // A dying process closes its connections and its listening socket one after the other, and so may
  // take a call that it never answers: only a refusal is final.
  if (!refused && SaysHungUp(reason) && stream->probe > 0 && stream->probe < kProbes) {
    const StreamPtr again = Dial(wanted);
    again->probe = stream->probe + 1;
    return MoveQueue(stream, again);
  }
  if (DialCarried(stream, evidence)) return;
  DropQueue(stream);
  peers_.erase(it);
  if (IsDead(evidence)) relay_.OnDead(wanted.id);
  PostDown(wanted, evidence);
}

void TransportCore::OnStreamLost(const StreamPtr& stream, StreamEnd end) {
  const auto it = peers_.find(stream->peer.id);
  if (it == peers_.end()) return DropQueue(stream);
  Peer& peer = it->second;
  std::erase(peer.ready, stream);
  if (!peer.ready.empty()) return MoveQueue(stream, peer.ready.front());
  if (peer.dialing != nullptr) return MoveQueue(stream, peer.dialing);
  // An idle peer makes room. It is no news, and the next message dials again.
  if (end == StreamEnd::kOrderly && stream->queue.empty()) {
    peers_.erase(it);
    return;
  }
  // It accepts and hangs up: it may be dying, or broken; the core asks it in its own time.
  if (stream->probe > 0 && host_.Now() - stream->ready_since < kLivedEnough) {
    DropQueue(stream);
    peers_.erase(it);
    return PostDown(stream->peer, DownEvidence::kUnreachable);
  }
  // Cut: one more try tells a dead process (refused) from a cut connection.
  const StreamPtr again = Dial(stream->peer);
  again->probe = end == StreamEnd::kOrderly ? 0 : 1;
  MoveQueue(stream, again);
}

}  // namespace crowdsurf::dht
