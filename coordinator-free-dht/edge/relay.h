// Relay: connections with agents that this one may not dial, carried by the neighbours between.
//
// A firewall may let an agent dial its neighbours of a tree only. Transports dial as ever. When
// that fails they ask here and get a connection whose bytes the neighbours hand on, over the call
// PeerRelay.Carry of their peer ports. Mutual TLS at each hop lets in agents of the job alone. The
// carried bytes keep the TLS of their two ends, where they have it: tensors in the clear can be
// read and changed here. core/relay/relay_searches.h decides which agent is asked, and
// core/relay/relay_paths.h decides what is believed. Here are the bytes.
//
// Two ways in. gRPC's dials come to a loopback port and say CONNECT with a secret of this process;
// other rooms call Connect and get a socket. Each carried connection holds at most one piece of
// 64 KiB a direction. It reads the next when that is written, so a slow reader slows the writer.
// A hop that dies cuts what it carries; both ends see a closed connection and dial again.
// Nothing is asked, dialed or carried where every dial succeeds. Threads: one of its own; every
// public method from any, none blocks but Stop. Bounds: RelayConfig and kRelay... below, counted.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "coordinator-free-dht/core/relay/relay_paths.h"

namespace grpc {
class Service;
class Channel;
class CallbackServerContext;
}  // namespace grpc

namespace crowdsurf::dht {

inline constexpr size_t kRelayPieceBytes = 64 << 10;  // of one direction of one connection
inline constexpr size_t kRelayWaiting = 64;           // at the entrance, before they said CONNECT
inline constexpr size_t kRelayChannels = 64;  // to neighbours; idle ones close by themselves
inline constexpr Duration kRelayLinger = Seconds(5);    // of one direction when the other has ended
inline constexpr Duration kRelayGreeting = Seconds(5);  // to say CONNECT in

// A connected socket, closed when nobody has taken it.
class RelaySocket {
 public:
  explicit RelaySocket(int fd) : fd_(fd) {}
  ~RelaySocket();
  RelaySocket(const RelaySocket&) = delete;
  RelaySocket& operator=(const RelaySocket&) = delete;
  int Take();  // the descriptor, whose owner the caller is now; once

 private:
  int fd_;
};

struct RelayOptions {
  RelayConfig config = {};
  PeerId self = {};
  // Dials `end` as for this agent itself, unless a stream with it is open; OnProved or OnUnproved
  // follows. Any thread; a tensor transport sets its own (SetProver).
  std::function<void(const Contact& end)> prove_peer;
  // A channel to a neighbour with this agent's credentials, that closes when it is idle.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> channel_to;
  std::function<Time()> now;                                             // any thread
  std::function<std::string(const std::string& endpoint)> dial_at = {};  // see TransportOptions
  // A neighbour's call has come: the key of the certificate that it showed, empty without TLS. Any
  // thread.
  std::function<std::string(const grpc::CallbackServerContext& call)> known = {};
};

class Relay {
 public:
  // `metrics` and `logger`'s sink outlive it.
  Relay(RelayOptions options, MetricRegistry& metrics, Logger logger);
  ~Relay();  // stops

  // PeerRelay, for the server of the peer port. Lives as long as the relay.
  grpc::Service* service();
  // Opens the entrance. Error: no loopback port is to be had.
  Status Start();
  // Cuts everything, and waits. The server that has service() is shut down before.
  void Stop();

  // Of the entrance, after Start: where it is and what opens it.
  const std::string& entrance() const;  // 127.0.0.1:port
  const std::string& secret() const;    // for Proxy-Authorization
  // Does the reason of a failed dial through the entrance say that the process is dead?
  static bool SaysDead(const std::string& reason);

  // See RelayPaths; the same.
  void OnStreamUp(const Contact& peer, StreamPath path);
  void OnStreamDown(const PeerId& peer);
  void Introduce(const PeerId& peer, const std::string& endpoint, RelayPort port);
  void OnProved(const Contact& end);
  // An own dial of `endpoint` that nobody carried failed. kRefused: nobody listens there.
  void OnUnproved(const std::string& endpoint, DownEvidence evidence);
  // Sets the prover of the ends of `port`, as RelayOptions::prove_peer; nullptr: nobody any more.
  void SetProver(RelayPort port, std::function<void(const Contact& end)> prover);
  bool Via(const Contact& to) const;
  AfterFailure OnDialFailed(const Contact& to, DownEvidence evidence);
  void OnCarriedFailed(const Contact& to);
  void OnDead(const PeerId& peer);
  bool Dead(const PeerId& peer) const;

  // A connection with `endpoint`. `done` is called once, on the relay's thread, unless the relay
  // stops before. Without a socket, `evidence` says what is known of the process there.
  using Connected = std::function<void(std::shared_ptr<RelaySocket>, DownEvidence evidence)>;
  void Connect(const std::string& endpoint, Connected done);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::dht
