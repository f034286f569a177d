#include "coordinator-free-dht/edge/transport_core.h"

#include <algorithm>
#include <utility>

#include "base/endpoint.h"
#include "coordinator-free-dht/core/wire/codec.h"
#include "coordinator-free-dht/edge/certificate.h"

namespace crowdsurf::dht {
namespace {

constexpr Duration kWarnAgain = Seconds(10);  // of a message that is too long

size_t SizeOf(const peer::Envelope& envelope) { return envelope.frame().body().size(); }

StatusOr<PublicKey> KeyIn(std::string_view bytes) {
  PublicKey key;
  if (bytes.size() != key.size()) return absl::InvalidArgumentError("no public key");
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

// To read a certificate is the dearest part of a hello, and that of a call that came was read then.
StatusOr<PublicKey> KeyOfPeer(const Stream& stream, const peer::Hello& hello,
                              const grpc::AuthContext* auth, bool tls) {
  if (!tls) return KeyIn(hello.public_key());
  return stream.outgoing ? KeyShownBy(*auth) : KeyIn(stream.key);
}

}  // namespace

bool TransportCore::Send(const Contact& to, ChannelKind kind, Bytes body) {
  if (body.size() > options_.message_bytes) {
    metrics_.dropped_size.Add();
    WarnOfTooLong(to, body.size());
    return false;
  }
  if (!to.endpoint.empty() && !ParseEndpoint(to.endpoint)) {
    metrics_.Dropped("bad_address").Add();
    return false;
  }
  std::vector<StreamPtr> retired;  // destroyed after the lock is let go
  const std::lock_guard lock(mutex_);
  retired.swap(retired_);
  if (stopped_) return false;
  StreamPtr stream = StreamTo(to);
  if (stream == nullptr) {
    // An answer to a peer whose stream has gone and whose address nobody told.
    if (to.endpoint.empty() || to.id == identity_.id()) return false;
    if (DropForDead(to, kind)) return false;
    stream = Dial(to);
  }
  const size_t pieces = std::max<size_t>(1, (body.size() + kPieceBytes - 1) / kPieceBytes);
  // All of it or nothing: half a message helps nobody.
  if (!HasRoom(*stream, pieces, body.size())) return false;
  for (size_t part = 0; part < pieces; ++part) {
    const size_t at = part * kPieceBytes, size = std::min(kPieceBytes, body.size() - at);
    peer::Envelope envelope;
    peer::Frame& frame = *envelope.mutable_frame();
    frame.set_channel(static_cast<uint32_t>(kind));
    frame.set_body(body.data() + at, size);
    frame.set_part(static_cast<uint32_t>(part));
    frame.set_more(part + 1 < pieces);
    (void)Enqueue(stream, std::move(envelope));
  }
  return true;
}

// True: its process was gone a moment ago, and so is the message.
bool TransportCore::DropForDead(const Contact& to, ChannelKind kind) {
  if (to.id.none() || !relay_.Dead(to.id)) return false;
  metrics_.dropped_lost.Add();
  // A request waits for its end. The other channels have heard of the death, and may answer the
  // news with one more message for the dead.
  if (kind == ChannelKind::kDht) PostDown(to, DownEvidence::kRefused);
  return true;
}

// A strategy or a model too large for its own words: nothing goes on until somebody knows.
void TransportCore::WarnOfTooLong(const Contact& to, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Time now = host_.Now();
  if (!warned_of_length_.unset() && now - warned_of_length_ < kWarnAgain) return;
  warned_of_length_ = now;
  logger_.Warning("a message is too long and is not sent",
                  {{"peer", to.id.brief()}, {"bytes", bytes}, {"most", options_.message_bytes}});
}

// A ready stream, else one being dialed, else null.
StreamPtr TransportCore::StreamTo(const Contact& to) {
  if (!to.id.none()) {
    const auto it = peers_.find(to.id);
    if (it == peers_.end()) return nullptr;
    return it->second.ready.empty() ? it->second.dialing : it->second.ready.front();
  }
  // Seeds are few and asked rarely: no second index by address.
  for (const auto& [id, peer] : peers_) {
    for (const StreamPtr& stream : peer.ready) {
      if (stream->peer.endpoint == to.endpoint) return stream;
    }
  }
  const auto it = dialing_unknown_.find(to.endpoint);
  return it == dialing_unknown_.end() ? nullptr : it->second;
}

StreamPtr TransportCore::Dial(const Contact& to) {
  return DialBy(to, relay_.Via(to) ? StreamPath::kCarried : StreamPath::kDirect);
}

StreamPtr TransportCore::DialBy(const Contact& to, StreamPath path) {
  EvictIdle(options_.streams_out - 1);
  metrics_.dials.Add();
  const bool carried = path == StreamPath::kCarried;
  const Time dialed_at = host_.Now();  // before anything can come back
  auto channel = carried ? CarriedChannel(to.endpoint) : NewChannel(to.endpoint);
  peer::Envelope hello = OwnHello();
  hello.mutable_hello()->set_carried(carried);
  StreamPtr stream = DialStream(shared_from_this(), std::move(channel), to, hello);
  stream->path = path;
  stream->dialed = to.endpoint;
  stream->dialed_at = dialed_at;
  stream->last_used = ++uses_;
  all_.emplace(stream.get(), stream);
  metrics_.streams.Set(static_cast<double>(all_.size()));
  if (to.id.none()) {
    dialing_unknown_[to.endpoint] = stream;
  } else {
    peers_[to.id].dialing = stream;
  }
  return stream;
}

void TransportCore::Prove(const Contact& end) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  for (const auto& [raw, stream] : all_) {
    const bool direct = stream->outgoing && stream->path == StreamPath::kDirect;
    if (!direct || stream->closed || stream->dialed != end.endpoint) continue;
    if (stream->ready && stream->peer.id == end.id) return relay_.OnProved(end);
    if (!stream->ready) return;  // its end follows
  }
  if (relay_.Dead(end.id)) return relay_.OnUnproved(end.endpoint, DownEvidence::kRefused);
  if (end.id == identity_.id() || relay_.Via(end)) {
    return relay_.OnUnproved(end.endpoint, DownEvidence::kUnreachable);
  }
  (void)Dial(end);
}

// Closes the least recently used idle stream when more than `most` are dialed. One that is busy
// when another is dialed stays, and is looked at again when it has written all.
void TransportCore::EvictIdle(size_t most) {
  size_t dialed = 0;
  StreamPtr oldest;
  for (const auto& [raw, stream] : all_) {
    if (!stream->outgoing || stream->close_when_empty) continue;
    ++dialed;
    const bool idle = stream->ready && !stream->writing && stream->queue.empty();
    if (idle && (oldest == nullptr || stream->last_used < oldest->last_used)) oldest = stream;
  }
  // When all are busy one more is dialed: a bound on idle ones must not stop traffic.
  if (dialed <= most || oldest == nullptr) return;
  oldest->close_when_empty = true;
  // Nothing more is queued on it, so that its closing loses nothing.
  std::erase(peers_[oldest->peer.id].ready, oldest);
  Pump(oldest);
}

// The newest is dropped: the peer may wait for older ones, and order stays.
bool TransportCore::HasRoom(const Stream& stream, size_t messages, size_t bytes) {
  const bool has = stream.queue.size() + messages <= options_.queue_messages &&
                   stream.queue_bytes + bytes <= options_.queue_bytes;
  if (!has) metrics_.dropped_queue.Add();
  return has;
}

bool TransportCore::Enqueue(const StreamPtr& stream, peer::Envelope envelope) {
  const size_t size = SizeOf(envelope);
  if (!HasRoom(*stream, 1, size)) return false;
  stream->queue_bytes += size;
  stream->queue.push_back(std::move(envelope));
  stream->last_used = ++uses_;
  Pump(stream);
  return true;
}

void TransportCore::Pump(const StreamPtr& stream) {
  if (!stream->ready || stream->closed || stream->writing) return;
  if (stream->queue.empty()) {
    if (stream->close_when_empty) stream->StartClosing();
    return;
  }
  stream->current = std::move(stream->queue.front());
  stream->queue.pop_front();
  const size_t size = SizeOf(stream->current);
  stream->queue_bytes -= size;
  metrics_.sent.Add();
  metrics_.sent_bytes.Add(static_cast<double>(size));
  stream->writing = true;
  stream->StartWriting();
}

void TransportCore::OnWritten(const StreamPtr& stream, WriteResult result) {
  const std::lock_guard lock(mutex_);
  stream->writing = false;
  if (result != WriteResult::kWritten) return;  // it is ending: OnDone has its queue
  Pump(stream);
  // Not for each message: only where the bound is passed are all streams looked at.
  if (!stream->writing && all_.size() - incoming_ > options_.streams_out) {
    EvictIdle(options_.streams_out);
  }
}

bool TransportCore::OnRead(const StreamPtr& stream, const peer::Envelope& in,
                           const grpc::AuthContext* auth) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || stream->closed) return false;
  if (in.has_hello() && !stream->ready) return OnHello(stream, in.hello(), auth);
  if (in.has_frame() && stream->ready) {
    OnFrame(stream, in.frame());
    return true;
  }
  metrics_.invalid.Add();
  return stream->ready;  // before its hello nobody gets a second chance
}

bool TransportCore::OnHello(const StreamPtr& stream, const peer::Hello& hello,
                            const grpc::AuthContext* auth) {
  const auto key = KeyOfPeer(*stream, hello, auth, options_.tls);
  // An address of any length would be kept in every table that the contact reaches.
  if (!key.ok() || hello.endpoint().size() > kMaxEndpoint || !ParseEndpoint(hello.endpoint())) {
    metrics_.invalid.Add();
    return false;
  }
  if (*key == identity_.public_key()) return false;  // a seed that is ourselves
  if (!TakeBoot(*key, hello.boot())) return false;
  const PeerId id = PeerIdOf(*key, hello.boot());
  if (!stream->outgoing) {
    // It may have dialed while we did. One stream is enough: the one dialed by the lower id.
    const auto known = peers_.find(id);
    const bool redundant = identity_.id() < id && known != peers_.end() &&
                           std::any_of(known->second.ready.begin(), known->second.ready.end(),
                                       [](const StreamPtr& other) { return other->outgoing; });
    stream->path = hello.carried() ? StreamPath::kCarried : StreamPath::kDirect;
    Settle(stream, id, hello.endpoint());
    stream->current = OwnHello();
    stream->current.mutable_hello()->set_redundant(redundant);
    stream->writing = true;
    stream->StartWriting();
    return true;
  }
  // Its end answers a dial, so the time of its hello lies between that and now. One that accepts
  // has no such bound, and learns the other's clock from replies.
  TellClock(*stream, *key, hello.wall_ns());
  Settle(stream, id, hello.endpoint());
  Peer& peer = peers_[id];
  // Only when another is ready: a peer that calls all of them redundant is kept.
  if (hello.redundant() && peer.ready.size() > 1) {
    std::erase(peer.ready, stream);
    MoveQueue(stream, peer.ready.front());
    stream->close_when_empty = true;
  }
  Pump(stream);
  return true;
}

// One key is one peer. False: it has spoken under a higher boot.
bool TransportCore::TakeBoot(const PublicKey& key, uint64_t boot) {
  const LatestBoots::Answer answer = boots_.OnProof(key, boot);
  if (answer.forgot) metrics_.boots_forgotten.Add();
  if (answer.verdict == LatestBoots::Verdict::kOld) metrics_.boots_old.Add();
  if (answer.verdict == LatestBoots::Verdict::kReplaces) Replace(answer.replaced);
  return answer.verdict != LatestBoots::Verdict::kOld;
}

bool TransportCore::IsOldBoot(const PublicKey& key, uint64_t boot) {
  const std::lock_guard lock(mutex_);
  return boots_.IsOld(key, boot);
}

// Its key speaks under a higher boot: `old` is dead, and its streams end.
void TransportCore::Replace(const PeerId& old) {
  metrics_.boots_replaced.Add();
  Contact contact{old, {}};
  if (const auto it = peers_.find(old); it != peers_.end()) {
    // First off the list: the end of a stream that nobody wants redials nobody.
    const std::vector<StreamPtr> ready = std::move(it->second.ready);
    peers_.erase(it);
    for (const StreamPtr& stream : ready) {
      contact = stream->peer;
      stream->Abort();
    }
  }
  PostDown(contact, DownEvidence::kReplaced);
}

void TransportCore::TellClock(const Stream& stream, const PublicKey& key, int64_t wall_ns) {
  // A peer may say any number. Beyond this all are as far away, and none overflows below.
  const WallTime said = WallTime::FromNanoseconds(std::clamp<int64_t>(wall_ns, 0, INT64_MAX / 2));
  const Time heard = host_.Now();
  const Duration round_trip = heard - stream.dialed_at;
  PostEvent([handlers = handlers, heard, round_trip, key, said](Time now, WallTime wall) {
    // It runs on while this waits in the mailbox.
    if (handlers->on_clock) handlers->on_clock(now, wall, key, said + (now - heard), round_trip);
  });
}

// The stream's other end is `id`: files it under that id, and tells the host when it is news.
void TransportCore::Settle(const StreamPtr& stream, const PeerId& id, const std::string& at) {
  const Contact wanted = stream->peer;
  const bool was_probe = stream->probe > 0;
  if (stream->outgoing) {
    if (wanted.id.none()) {
      dialing_unknown_.erase(wanted.endpoint);
    } else {
      const auto it = peers_.find(wanted.id);
      if (it != peers_.end() && it->second.dialing == stream) it->second.dialing = nullptr;
    }
    if (!wanted.id.none() && wanted.id != id) {
      // Somebody else lives there now, so the one we wanted does not.
      metrics_.impostors.Add();
      const auto it = peers_.find(wanted.id);
      if (it != peers_.end() && !it->second.ready.empty()) {
        MoveQueue(stream, it->second.ready.front());
      } else {
        DropQueue(stream);
        peers_.erase(wanted.id);
        PostDown(wanted, DownEvidence::kRefused);
      }
    }
  }
  stream->peer = {id, at};
  stream->ready = true;
  stream->ready_since = host_.Now();
  relay_.OnStreamUp(stream->peer, stream->path);
  if (stream->outgoing && stream->path == StreamPath::kDirect) {
    relay_.OnProved({id, stream->dialed});
  }
  Peer& peer = peers_[id];
  peer.ready.push_back(stream);
  // The peer was up already; a second stream is no news.
  if (peer.ready.size() > 1) return;
  // It lives, but what was under way on the old stream is lost.
  if (was_probe && wanted.id == id) PostDown(stream->peer, DownEvidence::kUnreachable);
  PostEvent([handlers = handlers, contact = stream->peer](Time now, WallTime wall) {
    if (handlers->on_up) handlers->on_up(now, wall, contact);
  });
}

void TransportCore::OnFrame(const StreamPtr& stream, const peer::Frame& frame) {
  // Counted and dropped, and the stream goes on: a newer peer may have a channel more.
  Bytes body;
  const auto joined = frame.channel() > static_cast<uint32_t>(ChannelKind::kTensor)
                          ? FrameJoiner::Outcome::kRefused
                          : stream->joiner.Take({frame.channel(), frame.part(), frame.more(),
                                                 AsBytes(frame.body())},
                                                options_.message_bytes, joining_, body);
  if (joined == FrameJoiner::Outcome::kRefused) {
    metrics_.invalid.Add();
    return;
  }
  stream->last_used = ++uses_;
  if (joined == FrameJoiner::Outcome::kWaits) return;
  metrics_.received.Add();
  metrics_.received_bytes.Add(static_cast<double>(body.size()));
  const auto kind = static_cast<ChannelKind>(frame.channel());
  // No message before the news of who died: a new boot speaks when the old one is dead.
  const bool posted =
      PostEvents() && host_.Post([handlers = handlers, from = stream->peer, kind,
                                  body = std::move(body)](Time now, WallTime wall) mutable {
        if (handlers->on_message) handlers->on_message(now, wall, from, kind, std::move(body));
      });
  // Never blocked: gRPC's thread serves other streams, too.
  if (!posted) metrics_.dropped_mailbox.Add();
}

void TransportCore::MoveQueue(const StreamPtr& from, const StreamPtr& to) {
  while (!from->queue.empty()) {
    // The new stream may hold as much already; the rest is lost as with any cut.
    if (!Enqueue(to, std::move(from->queue.front()))) metrics_.dropped_lost.Add();
    from->queue.pop_front();
  }
  from->queue_bytes = 0;
}

void TransportCore::DropQueue(const StreamPtr& stream) {
  metrics_.dropped_lost.Add(static_cast<double>(stream->queue.size()));
  stream->queue.clear();
  stream->queue_bytes = 0;
}

void TransportCore::PostDown(const Contact& peer, DownEvidence evidence) {
  PostEvent([handlers = handlers, peer, evidence](Time now, WallTime wall) {
    if (handlers->on_down) handlers->on_down(now, wall, peer, evidence);
  });
}

void TransportCore::PostEvent(HostLoop::Closure event) {
  events_.push_back(std::move(event));
  (void)PostEvents();
}

// True: the host has all of them.
bool TransportCore::PostEvents() {
  while (!events_.empty()) {
    // A copy: Post destroys what it refuses.
    if (!host_.Post(events_.front())) return false;
    events_.pop_front();
  }
  return true;
}

}  // namespace crowdsurf::dht
