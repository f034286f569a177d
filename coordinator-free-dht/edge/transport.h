// PeerTransport: the one gRPC server of an agent and its streams to other peers.
//
// A bidi stream `Exchange` joins a pair of peers. The first envelope each way is Hello{boot,
// endpoint}. From it and the public key that mutual TLS proved, each side computes the other's
// PeerId. Of one key the highest boot is the peer (core/routing/latest_boots.h): a lower one is
// refused, and dead when a higher one comes. Then envelopes of three channels flow: DHT, WORKER,
// TENSOR. Opened on first Send, kept until least recently used of too many, kept alive by HTTP/2
// pings. Whatever arrives is posted to the host loop; the host's mailbox full means dropped and
// counted, never blocked. A peer that cannot be dialed is looked for through the neighbours
// (edge/relay.h), and its stream then is one like any other. Messages between two peers arrive in
// order while a stream lives; one may be lost with its stream, never duplicated. Threads: Start,
// Stop and Send from any thread; handlers run on the host thread. Bounds: waiting messages (count
// and bytes, newest dropped), streams in and out, message size; connections, by
// base/edge/connection_gate.h, which takes them before gRPC does. A connection has
// 2 * connect_timeout for its first call, a stream has connect_timeout for its Hello.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/down_evidence.h"
#include "base/edge/host_loop.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "coordinator-free-dht/core/relay/relay_paths.h"
#include "coordinator-free-dht/core/wire/message.h"
#include "coordinator-free-dht/edge/identity.h"

namespace grpc {
class Service;
class Channel;
}  // namespace grpc

namespace crowdsurf::dht {

class Relay;

enum class ChannelKind : uint8_t { kDht = 0, kWorker = 1, kTensor = 2 };

struct TransportOptions {
  std::string listen = "127.0.0.1";  // address to bind
  int port = 0;                      // 0: any free one
  std::string advertise = {};        // host that peers dial; empty: `listen`
  std::string job = {};              // whose certificates are good; empty: any of our CA
  bool tls = true;                   // false: for tests; ids are only claimed
  size_t queue_messages = 4096;      // waiting for one stream
  size_t queue_bytes = 64 << 20;     // waiting for one stream
  size_t streams_out = 256;          // dialed, least recently used goes first
  size_t streams_in = 1024;          // accepted
  size_t streams_of_key = 16;        // of those, that show one certificate
  size_t connections_of_key = 16;    // accepted, the same; its oldest makes room
  // Accepted connections without a call of somebody of the job yet, of which an address has at
  // most half. Less where descriptors are few (base/edge/descriptors.h).
  size_t strangers = 256;
  // Of one body, which may travel in pieces. The longest is the PLAN of 2^20 chunks that are all
  // reduced again: 34 MiB.
  size_t message_bytes = 40 << 20;
  size_t joining_bytes = 64 << 20;          // of bodies that have come in part, all streams
  Duration connect_timeout = Seconds(5);    // of a dial that is neither answered nor refused
  Duration keepalive = Seconds(5);          // ping on a silent connection
  Duration keepalive_timeout = Seconds(2);  // then it is dead
  Duration probe_period = Seconds(10);      // between two handshakes with the own port
  RelayConfig relay = {};                   // for peers that may not be dialed
  // Where an address is really dialed; empty: there. Tests hide a peer by it, as a firewall would.
  std::function<std::string(const std::string& endpoint)> dial_at = {};
};

// Called on the host thread.
struct TransportHandlers {
  // `from`: the authenticated id, and where that peer says it can be dialed.
  std::function<void(Time, WallTime, const Contact& from, ChannelKind, Bytes body)> on_message;
  // The first stream with `peer` is up.
  std::function<void(Time, WallTime, const Contact& peer)> on_up;
  // The last stream with `peer` was cut, or a dial of it failed (its id is none when only the
  // address was known). Of an unreachable one messages may be lost. A stream that a living peer
  // closes in good order, being idle, is no news.
  std::function<void(Time, WallTime, const Contact& peer, DownEvidence evidence)> on_down;
  // The hello of a dialed peer with this key says that its wall clock reads `said`, give or take
  // `round_trip`. Before the first message of the stream.
  std::function<void(Time, WallTime, const PublicKey& key, WallTime said, Duration round_trip)>
      on_clock = {};
};

class PeerTransport {
 public:
  // All references outlive the transport.
  PeerTransport(TransportOptions options, const Identity& identity, HostLoop& host,
                MetricRegistry& metrics, Logger logger);
  ~PeerTransport();  // stops

  // Another room's gRPC service on the same server, under the same mutual TLS. Before Start; not
  // owned, outlives the transport.
  void RegisterService(grpc::Service* service);
  void SetHandlers(TransportHandlers handlers);  // before Start

  // Binds and serves. Needs key.pem, cert.pem and ca.pem in the identity's directory with TLS;
  // picks up renewed ones by itself. Error: the address and why it cannot be had.
  Status Start();
  // Closes every stream and waits for the last callback; then nothing is posted any more.
  void Stop();

  // host:port that others can dial. After Start.
  std::string endpoint() const;
  // Does the own port complete handshakes? False after two failures in a row (edge/port_probe.h).
  // Any thread, after Start.
  bool answers() const;

  // Queues `body` for a peer, dialing `peer.endpoint` when there is no stream. With an id of none,
  // the peer that answers at the endpoint gets it. Never blocks. False (counted) when the queue is
  // full, the body too large, or the transport is stopped.
  bool Send(const Contact& peer, ChannelKind kind, Bytes body);

  // That key has spoken here under a higher boot: of that boot's peer nothing counts any more. Any
  // thread.
  bool IsOldBoot(const PublicKey& key, uint64_t boot) const;

  // Connections with peers that may not be dialed; other rooms' transports ask it, too.
  Relay& relay();

  // A channel with this agent's credentials, for other rooms' stubs. After Start.
  std::shared_ptr<grpc::Channel> NewChannel(const std::string& endpoint) const;

 private:
  friend class TransportCore;
  std::shared_ptr<class TransportCore> core_;
};

}  // namespace crowdsurf::dht
