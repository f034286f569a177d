#include "coordinator-free-dht/edge/dht_service.h"

#include <absl/strings/str_join.h>

#include <utility>

#include "coordinator-free-dht/core/wire/codec.h"

namespace crowdsurf::dht {

DhtService::DhtService(const DhtHost& host, const NodeConfig& config, uint64_t seed,
                       MetricRegistry& metrics, Logger logger)
    : loop_(host.loop),
      transport_(host.transport),
      logger_(logger.For("dht")),
      metrics_(metrics),
      undecodable_(metrics_.messages_invalid),
      contacts_(metrics.AddGauge("crowdsurf_dht_contacts", "Peers in the routing table.")),
      records_(metrics.AddGauge("crowdsurf_dht_records", "Records held for the network.")),
      memory_(metrics.AddGauge("crowdsurf_dht_memory_bytes", "Memory of the DHT node, estimated.")),
      clock_offset_(metrics.AddGauge(
          "crowdsurf_dht_clock_ahead_seconds",
          "How far this machine's wall clock is ahead of the median of the peers' clocks.")),
      node_(Self{{host.identity.id(), host.transport.endpoint()},
                 host.identity.public_key(),
                 host.identity.boot()},
            config, &host.identity, &metrics_, Rng(seed)) {
  loop_.AddSource(this);
}

DhtService::~DhtService() { loop_.RemoveSource(this); }

void DhtService::OnMessage(Time now, WallTime wall, const Contact& from, const Bytes& body) {
  const auto message = Decode(body);
  if (!message) {
    undecodable_.Add();
    return;
  }
  Actions out;
  node_.OnMessage({now, wall}, from, *message, out);
  Execute(now, wall, std::move(out));
}

void DhtService::OnPeerDown(Time now, WallTime wall, const Contact& peer, DownEvidence evidence) {
  Actions out;
  node_.OnPeerDown({now, wall}, peer, evidence, out);
  Execute(now, wall, std::move(out));
}

void DhtService::OnClock(Time now, WallTime wall, const PublicKey& key, WallTime said,
                         Duration round_trip) {
  Actions out;
  node_.OnClock({now, wall}, key, said, round_trip, out);
  Execute(now, wall, std::move(out));
}

void DhtService::AddSeeds(Time now, WallTime wall, const std::vector<std::string>& endpoints) {
  Actions out;
  node_.AddSeeds({now, wall}, endpoints, out);
  Execute(now, wall, std::move(out));
}

PutResult DhtService::Put(Time now, WallTime wall, const Key& key, Bytes value, Duration ttl) {
  Actions out;
  const PutResult result = node_.Put({now, wall}, key, std::move(value), ttl, out);
  Execute(now, wall, std::move(out));
  return result;
}

void DhtService::Get(Time now, WallTime wall, const Key& key, size_t enough, GetCallback callback) {
  Actions out;
  const uint64_t get = node_.Get({now, wall}, key, enough, out);
  // Before Execute: this node's own records may answer the Get at once.
  gets_.emplace(get, std::move(callback));
  Execute(now, wall, std::move(out));
}

bool DhtService::Watch(Time now, WallTime wall, const Key& key, WatchCallback callback) {
  if (!watches_.emplace(key, std::move(callback)).second) return false;
  Actions out;
  const bool watching = node_.Watch({now, wall}, key, out);
  // So that the caller may try again when another watch has ended.
  if (!watching) watches_.erase(key);
  Execute(now, wall, std::move(out));
  return watching;
}

void DhtService::Unwatch(Time now, WallTime wall, const Key& key) {
  watches_.erase(key);
  Actions out;
  node_.Unwatch(now, key, out);
  Execute(now, wall, std::move(out));
}

void DhtService::OnTimer(Time now, WallTime wall) {
  Actions out;
  node_.OnTimer({now, wall}, out);
  Execute(now, wall, std::move(out));
  if (now < gauges_at_) return;
  // Counting memory walks over all that the node holds; a scrape comes every few seconds.
  gauges_at_ = now + Seconds(1);
  contacts_.Set(static_cast<double>(node_.contacts()));
  records_.Set(static_cast<double>(node_.store().records()));
  memory_.Set(static_cast<double>(node_.MemoryBytes()));
  SayClock(now, wall);
  SaySilentSeeds(now);
}

void DhtService::SaySilentSeeds(Time now) {
  const std::vector<std::string> silent = node_.SilentSeeds(now);
  if (silent.size() <= silent_seeds_said_) return;
  silent_seeds_said_ = silent.size();
  logger_.Warning("seeds never answered", {{"addresses", absl::StrJoin(silent, ", ")}});
}

void DhtService::SayClock(Time now, WallTime wall) {
  const Duration ahead = Duration() - node_.ClockOffset({now, wall});
  clock_offset_.Set(ahead.seconds());
  const auto said = clock_warning_.Say(now, ahead);
  if (!said) return;
  logger_.Warning(clock_warning_.large() ? "this machine's clock is off"
                                         : "this machine's clock is right again",
                  {{"ahead_of_peers_seconds", said->seconds()}});
}

// PutDone needs nothing: the node puts a record again for as long as it is wanted.
void DhtService::Execute(Time now, WallTime wall, Actions actions) {
  for (Action& action : actions) {
    if (auto* send = std::get_if<Send>(&action)) {
      // A refusal is counted by the transport; the node's time-outs see to the rest.
      (void)transport_.Send(send->to, ChannelKind::kDht, Encode(send->message));
    } else if (auto* get = std::get_if<GetDone>(&action)) {
      const auto it = gets_.find(get->get);
      if (it == gets_.end()) continue;
      callbacks_.push_back([callback = std::move(it->second), records = std::move(get->records)](
                               Time t, WallTime w) { callback(t, w, records); });
      gets_.erase(it);
    } else if (auto* update = std::get_if<WatchUpdate>(&action)) {
      callbacks_.push_back([this, update = std::move(*update)](Time t, WallTime w) {
        // Looked up now: an earlier callback may have ended the watch.
        const auto it = watches_.find(update.key);
        if (it == watches_.end()) return;
        // A copy: it may end its own watch while it runs.
        const WatchCallback callback = it->second;
        callback(t, w, update);
      });
    }
  }
  RunCallbacks(now, wall);
}

void DhtService::RunCallbacks(Time now, WallTime wall) {
  if (running_callbacks_) return;  // the loop below is at work further up
  running_callbacks_ = true;
  while (!callbacks_.empty()) {
    const auto callback = std::move(callbacks_.front());
    callbacks_.pop_front();
    callback(now, wall);
  }
  running_callbacks_ = false;
}

}  // namespace crowdsurf::dht
