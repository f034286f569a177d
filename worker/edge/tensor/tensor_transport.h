// Tensor transport: the bulk bytes between the agents of a job, on connections of their own.
//
// One TCP connection per pair of peers and direction: whoever has frames for a peer dials it.
// Mutual TLS 1.3 unless spec.tls.mode is Disabled: then a connection is plain, and shows a token
// that its peer has given over the control channel (worker/core/link/tensor_tokens.h). Frames are
// queued per peer within a bound; a full queue is told to the caller, who comes back at on_drained.
// Each connection lives on one of the transport's I/O threads (tensor_io_thread.h), the one that
// had the fewest. There what arrives is verified (sizes, hash) and posted to the host. Frames of
// one connection keep their order. When the host is behind, sockets are not read. A connection that
// dies is reported at once: one reconnect is tried, and if nobody listens there any more the peer
// is dead. A peer that cannot be dialed is reached through `relay`, where there is one. Source:
// docs/data-plane.md. No deadline on an open, silent connection: silence is judged by the cores.
// Threads: Send, SendLent, KeepLent, Forget, the tokens' functions and the handlers on the host
// thread; Start and Stop from the owner. Bounds: TensorTransportOptions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_pool.h"
#include "base/down_evidence.h"
#include "base/edge/host_loop.h"
#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "coordinator-free-dht/edge/identity.h"
#include "worker/core/link/tensor_tokens.h"
#include "worker/core/reduce/reducer.h"
#include "worker/edge/tensor/result_slots.h"
#include "worker/edge/tensor/tensor_frame.h"
#include "worker/edge/tensor/tensor_payload.h"

namespace crowdsurf::dht {
class Relay;
}

namespace crowdsurf::worker {

class AveragingClock;

struct TensorTransportOptions {
  std::string job;
  std::string listen = "127.0.0.1";  // address to bind
  int port = 0;                      // 0: any free one
  std::string advertise;             // host that peers dial; empty: `listen`
  bool tls = true;
  bool tokens = false;  // pre: !tls. Without both, ids are only claimed: for tests
  TensorTokensConfig token_table = {};
  size_t queue_bytes = 4 << 20;     // waiting for one peer
  size_t receive_bytes = 64 << 20;  // received and not yet taken by the host, all peers
  size_t dialed = 256;  // connections to peers; the least recently used of a thread goes first
  size_t accepted = 1024;
  // Accepted connections that have not said who they are, of which an address has at most half.
  // Less where descriptors are few (base/edge/descriptors.h).
  size_t strangers = 256;
  size_t accepted_of_key = 16;  // that show one certificate (in the clear: of one peer)
  // I/O threads, which have those connections in equal shares. 0: one, or kMostThreads where there
  // are twice as many processors (docs/decisions/worker/edge/043-two-io-threads.md).
  size_t threads = 0;
  static constexpr size_t kMostThreads = 2;  // they send 2 GB/s of float32 with TLS: 16 Gbit/s
  Duration open_within = Seconds(5);         // from dialling to the peer's Hello
  Duration redial_after = Seconds(0.2);      // after a failure; Sends before that are dropped
  // Reaches peers that cannot be dialed; outlives the transport. nullptr: nothing does.
  dht::Relay* relay = nullptr;
  // A peer of that key and boot counts no more (PeerTransport::IsOldBoot); any thread, outlives the
  // transport. Empty: all count.
  std::function<bool(const dht::PublicKey& key, uint64_t boot)> old_boot = {};
  // Is told of sending and receiving; outlives the transport. nullptr: nobody is.
  AveragingClock* clock = nullptr;
};

struct TensorHandlers {  // on the host thread
  std::function<void(Time, WallTime, const PeerId& from, const TensorHeader&, TensorPayload)>
      on_frame;
  std::function<void(Time, WallTime, const PeerId&, DownEvidence evidence)> on_down;
  std::function<void(Time, WallTime, const PeerId&)> on_drained;
  // With tokens: a connection waits for one of that peer. UseToken or LoseToken follows.
  std::function<void(Time, WallTime, const PeerId&, uint64_t number)> on_token_wanted = {};
  // A peer's connection to this agent was cut and is there again: what was under way may be lost.
  std::function<void(Time, WallTime, const PeerId&)> on_renewed = {};
};

struct LeftForPeer {
  PeerId peer;
  uint32_t chunks = 0;
  // The kernel's least round trip of the connection to it: no queue and no busy processor is in it.
  // nullopt: not known, as of a carried connection.
  std::optional<Duration> round_trip = {};
};

class TensorTransport {
 public:
  enum class Sent : uint8_t { kQueued, kFull, kDown };

  // References outlive the transport.
  TensorTransport(TensorTransportOptions options, const dht::Identity& identity, HostLoop& host,
                  MetricRegistry& metrics, Logger log);
  ~TensorTransport();  // stops

  void SetHandlers(TensorHandlers handlers);  // before Start
  // Binds and starts the I/O threads. Errors: the address and why it cannot be had; the
  // certificate.
  Status Start();
  // Closes everything and joins the threads; no handler is posted afterwards.
  void Stop();
  std::string endpoint() const;  // host:port that others can dial; after Start

  // Queues a frame; dials `endpoint` when there is no connection. header.payload_bytes is filled
  // in, and header.hash too, except for results, which bring theirs. kFull: on_drained follows.
  // kDown: dropped, the peer was just found dead.
  Sent Send(const PeerId& to, const std::string& endpoint, TensorHeader header,
            SharedBytes payload);
  // The same, of bytes that stay as they are until the next KeepLent: they are not copied.
  Sent SendLent(const PeerId& to, const std::string& endpoint, TensorHeader header, ByteView lent);
  // Copies what waits of lent bytes. Afterwards nobody reads them. O(peers), and the bytes.
  void KeepLent();
  // Inputs and results that have left since the last call, of peers with any. O(peers).
  std::vector<LeftForPeer> TakeLeft();
  // Where payloads come from. Who has used one up gives it back.
  const std::shared_ptr<BytePool>& pool() const;
  ResultSlots& slots();  // that results are received into
  // `peer` has asked for a token over control: what to answer. nullopt: it gets none (counted).
  std::optional<TokenHalves> GiveToken(const PeerId& peer);
  // The answer to an ask; nullopt: there is none, and the connection that waits for it ends. One
  // that comes too late is dropped.
  void UseToken(const PeerId& peer, uint64_t number, std::optional<TokenHalves> halves);
  // A stream of control to `peer` broke, and an ask or its answer may be lost with it. An attempt
  // that waits for one ends now, and the peer is tried again as after any failure.
  void LoseToken(const PeerId& peer);
  void CountRefused(TokenRefusal refusal);  // of the control channel
  // Of each I/O thread: connections, and the place of the one that is awaited next. For tests.
  std::vector<size_t> loads();
  // The peer is dead: closes and forgets, without on_down.
  void Forget(const PeerId& peer);
  // Another boot of its key is the peer now: closes what it has dialed, too.
  void Expel(const PeerId& peer);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
