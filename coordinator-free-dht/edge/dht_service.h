// DhtService: dht::Node on a HostLoop and a PeerTransport; what worker/edge uses.
//
// Owns the node, turns its actions into sends and callbacks, and decodes what arrives. Every method
// and every callback on the host thread. Callbacks run after the input that caused them has been
// worked off, so they may call back in here.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/down_evidence.h"
#include "base/edge/host_loop.h"
#include "coordinator-free-dht/core/clock/clock_warning.h"
#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"
#include "coordinator-free-dht/edge/transport.h"

namespace crowdsurf::dht {

// What a service stands on; outlives it.
struct DhtHost {
  HostLoop& loop;
  PeerTransport& transport;  // started: its endpoint becomes the node's
  const Identity& identity;
};

class DhtService : public TimerSource {
 public:
  using GetCallback = std::function<void(Time, WallTime, const std::vector<RecordPtr>&)>;
  using WatchCallback = std::function<void(Time, WallTime, const WatchUpdate&)>;

  // Adds itself to the loop. `seed`: from the system's entropy. `metrics` outlives the service.
  DhtService(const DhtHost& host, const NodeConfig& config, uint64_t seed, MetricRegistry& metrics,
             Logger logger);
  ~DhtService() override;

  // From TransportHandlers: DHT bodies, and every lost peer.
  void OnMessage(Time now, WallTime wall, const Contact& from, const Bytes& body);
  void OnPeerDown(Time now, WallTime wall, const Contact& peer, DownEvidence evidence);

  // From TransportHandlers::on_clock.
  void OnClock(Time now, WallTime wall, const PublicKey& key, WallTime said, Duration round_trip);

  // Addresses of peers, from the seeds file; asked for ever.
  void AddSeeds(Time now, WallTime wall, const std::vector<std::string>& endpoints);
  // See Node::SilentSeeds. The log names them, too, when there are more than before.
  std::vector<std::string> SilentSeeds(Time now) const { return node_.SilentSeeds(now); }
  // See Node::Put; lives for `ttl` from `wall`.
  PutResult Put(Time now, WallTime wall, const Key& key, Bytes value, Duration ttl);
  void Get(Time now, WallTime wall, const Key& key, size_t enough, GetCallback callback);
  // One callback a key: a second Watch of a key is refused.
  bool Watch(Time now, WallTime wall, const Key& key, WatchCallback callback);
  void Unwatch(Time now, WallTime wall, const Key& key);

  // The rest of the life of a record that a callback was given.
  Duration LifeLeft(Time now, WallTime wall, const Record& record) const {
    return node_.LifeLeft({now, wall}, record);
  }
  // What this machine's clock says when the job's time is `then`.
  WallTime ToLocal(Time now, WallTime wall, WallTime then) const {
    return then - node_.ClockOffset({now, wall});
  }

  const Node& node() const { return node_; }

  Time NextDeadline() const override { return node_.NextDeadline(); }
  void OnTimer(Time now, WallTime wall) override;

 private:
  void Execute(Time now, WallTime wall, Actions actions);
  void RunCallbacks(Time now, WallTime wall);
  void SayClock(Time now, WallTime wall);
  void SaySilentSeeds(Time now);

  HostLoop& loop_;
  PeerTransport& transport_;
  Logger logger_;
  NodeMetrics metrics_;
  Counter& undecodable_;
  size_t silent_seeds_said_ = 0;  // how many the log has named at most
  Gauge& contacts_;
  Gauge& records_;
  Gauge& memory_;
  Gauge& clock_offset_;
  ClockWarning clock_warning_;
  Time gauges_at_;
  Node node_;
  std::map<uint64_t, GetCallback> gets_;
  std::map<Key, WatchCallback> watches_;
  std::deque<std::function<void(Time, WallTime)>> callbacks_;
  bool running_callbacks_ = false;
};

}  // namespace crowdsurf::dht
