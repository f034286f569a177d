// PeerTransport: the one gRPC server of an agent and its streams to other peers.
//
// A bidi stream `Exchange` joins a pair of peers; the first envelope each way is Hello{boot,
// endpoint}, from which, with the public key of the certificate that mutual TLS proved, each side
// computes the other's PeerId. Then envelopes of two channels flow: DHT and WORKER. Opened on first
// Send, kept until idle (least recently used beyond 256), kept alive by HTTP/2 pings. Whatever
// arrives is posted to the host loop; the host's mailbox full means dropped and counted, never
// blocked. Messages of one channel between two peers arrive in order while a stream lives; a
// message may be lost with its stream, never duplicated.
// Threads: Start, Stop and Send from any thread; handlers run on the host thread.
// Bounds: per-peer queue (count and bytes, newest dropped), streams in and out, message size.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "coordinator-free-dht/core/message.h"
#include "coordinator-free-dht/edge/host.h"
#include "coordinator-free-dht/edge/identity.h"

namespace grpc {
class Service;
class Channel;
}  // namespace grpc

namespace crowdsurf::dht {

enum class ChannelKind : uint8_t { kDht = 0, kWorker = 1 };

struct TransportOptions {
  std::string listen = "127.0.0.1";  // address to bind
  int port = 0;                      // 0: any free one
  std::string advertise;             // host that peers dial; empty: `listen`
  bool tls = true;                   // false: spec.tls.mode Disabled; ids are then only claimed
  size_t queue_messages = 4096;      // waiting for one peer
  size_t queue_bytes = 16 << 20;     // waiting for one peer
  size_t streams_out = 256;          // dialed, least recently used goes first
  size_t streams_in = 1024;          // accepted
  size_t message_bytes = 4 << 20;    // of one body
};

// Calls on the host thread. `from`, `endpoint`: authenticated id, and where that peer says it
// listens.
struct TransportHandlers {
  std::function<void(Time, WallTime, const PeerId& from, const std::string& endpoint, ChannelKind,
                     Bytes body)>
      on_message;
  // The first stream with `peer` is up.
  std::function<void(Time, WallTime, const PeerId& peer, const std::string& endpoint)> on_up;
  // The last stream with `peer` is gone, or a dial of it failed (its id is none when only the
  // address was known). hard: the connection was reset or closed and one reconnect was refused, or
  // another peer answers at its endpoint: that process is dead. Not hard: unreachable, or cut in
  // between.
  std::function<void(Time, WallTime, const Contact& peer, bool hard)> on_down;
};

class PeerTransport {
 public:
  // All references outlive the transport.
  PeerTransport(TransportOptions options, const Identity& identity, HostLoop& host,
                MetricRegistry& metrics, Logger logger);
  ~PeerTransport();  // stops

  // Another room's gRPC service on the same server, under the same mutual TLS. Before Start; not
  // owned.
  void RegisterService(grpc::Service* service);
  void SetHandlers(TransportHandlers handlers);  // before Start

  // Binds and serves. Needs key.pem, cert.pem and ca.pem in the identity's directory with TLS;
  // picks up renewed ones by itself. Error: the address and why it cannot be had.
  Status Start();
  // Closes every stream and waits for the last callback; then nothing is posted any more.
  void Stop();

  // host:port that others can dial. After Start.
  std::string endpoint() const;

  // Queues `body` for a peer, dialing `endpoint` when there is no stream. `peer` may be none: then
  // whoever answers at `endpoint` gets it. Never blocks. False (counted) when the queue is full,
  // the body too large, or the transport is stopped.
  bool Send(const PeerId& peer, const std::string& endpoint, ChannelKind kind, Bytes body);

  // A channel with this agent's credentials, for other rooms' stubs.
  std::shared_ptr<grpc::Channel> NewChannel(const std::string& endpoint) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace crowdsurf::dht
