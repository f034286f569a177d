// DhtService: dht::Node on a HostLoop and a PeerTransport; what worker/edge uses.
//
// Owns the node, turns its actions into sends and callbacks, and hands WORKER messages through.
// Every method and every callback on the host thread (callbacks never from inside a call made by
// the callee: they are run after the call that caused them has returned, in order).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator-free-dht/core/node.h"
#include "coordinator-free-dht/edge/host.h"
#include "coordinator-free-dht/edge/transport.h"

namespace crowdsurf::dht {

class DhtService : public TimerSource {
 public:
  using GetCallback = std::function<void(Time, WallTime, std::vector<RecordPtr>)>;
  using WatchCallback = std::function<void(Time, WallTime, const WatchUpdate&)>;

  // References outlive the service. Construct after transport.Start() (the node's contact is
  // transport.endpoint()) with the handlers below set before it; adds itself to the host.
  DhtService(HostLoop& host, PeerTransport& transport, const Identity& identity, NodeConfig config,
             MetricRegistry& metrics, Logger logger);
  ~DhtService() override;

  // Addresses of peers, from the seeds file; asked for ever.
  void AddSeeds(Time now, WallTime wall, const std::vector<std::string>& endpoints);
  // See Node. `ttl` from `wall`.
  bool Put(Time now, WallTime wall, const Key& key, Bytes value, Duration ttl);
  void Get(Time now, WallTime wall, const Key& key, size_t enough, GetCallback callback);
  // One callback per key; a second Watch of a key replaces it.
  bool Watch(Time now, WallTime wall, const Key& key, WatchCallback callback);
  void Unwatch(Time now, WallTime wall, const Key& key);

  // A message of worker/core to a peer's worker/core.
  bool SendToWorker(const Contact& to, Bytes body);

  // From the transport; wire them into TransportHandlers (or use MakeHandlers).
  void OnMessage(Time now, WallTime wall, const PeerId& from, const std::string& endpoint,
                 const Bytes& body);
  void OnPeerDown(Time now, WallTime wall, const Contact& peer, bool hard);

  const Node& node() const { return node_; }

  Time NextDeadline() const override;
  void OnTimer(Time now, WallTime wall) override;
};

}  // namespace crowdsurf::dht
