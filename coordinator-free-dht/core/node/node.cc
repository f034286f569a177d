#include "coordinator-free-dht/core/node/node.h"

#include <utility>

#include "base/check.h"

namespace crowdsurf::dht {

Node::Node(Self self, const NodeConfig& config, const RecordAuthority* authority,
           NodeMetrics* metrics, Rng rng)
    : self_(std::move(self)),
      config_(config),
      authority_(authority),
      metrics_(metrics),
      rng_(rng.Fork("dht/node")),
      table_(self_.contact.id, config_),
      requests_(config_, rng_.Next() >> 1),
      seeds_(config_, rng.Fork("dht/seeds")),
      store_(config_),
      subscriptions_(config_),
      limiter_(config_),
      replicas_(self_.contact.id, config_, table_, rng.Fork("dht/holders")),
      refresh_interval_(config_.refresh_first) {
  CHECK(authority_ != nullptr && metrics_ != nullptr);
  CHECK(self_.contact.id == PeerIdOf(self_.public_key, self_.boot));
  CHECK(config_.k > 0 && config_.alpha > 0);
}

void Node::OnTimer(Time now, WallTime wall, Actions& out) {
  while (auto due = requests_.NextDue(now)) {
    if (due->failed) {
      OnFailedRequest(now, wall, due->request, out);
    } else {
      OnSlowRequest(now, wall, due->request, out);
    }
  }
  ProbeSeeds(now, out);
  if (upkeep_at_ <= now) Upkeep(now, wall, out);
}

Time Node::NextDeadline() const {
  return std::min({requests_.NextDeadline(), seeds_.NextDeadline(), upkeep_at_});
}

// Everything that is not urgent to the millisecond, each at its own rhythm.
void Node::Upkeep(Time now, WallTime wall, Actions& out) {
  upkeep_at_ = Time::Infinite();
  if (sweep_at_ <= now) {
    store_.Sweep(wall);
    subscriptions_.Sweep(now);
    Republish(now, wall, out);
    std::vector<Key> ended;
    for (const auto& [key, own] : own_) {
      if (own.record->expiry <= wall) ended.push_back(key);
    }
    for (const Key& key : ended) StopPublishing(key);
    sweep_at_ = Time::Infinite();
  }
  if (sweep_at_.infinite() && (!store_.empty() || subscriptions_.size() > 0 || !own_.empty())) {
    sweep_at_ = now + config_.sweep;
  }
  PingSuspects(now, out);
  if (refresh_at_ <= now) RefreshTable(now, wall, out);
  LookUpHolders(now, wall, out);
  RenewWatches(now, wall, out);
  WakeBy(std::min({sweep_at_, refresh_at_, replicas_.NextDeadline()}));
}

// Kademlia 2.5: holders send records that nobody renewed to the present holders.
void Node::Republish(Time now, WallTime wall, Actions& out) {
  for (const Key& key : store_.NotRenewedSince(now - config_.republish)) {
    // Jitter spreads the holders of a key: the first to republish it renews it at the others.
    if (!rng_.Bernoulli(0.25)) continue;
    store_.MarkRenewed(now, key);
    StartLookup(now, wall, key, ForRepublish{}, out);
  }
}

void Node::PingSuspects(Time now, Actions& out) {
  for (auto it = suspects_.begin(); it != suspects_.end();) {
    if (it->second > now) {
      WakeBy(it->second);
      ++it;
      continue;
    }
    if (const auto contact = table_.Find(it->first)) PingIfWanted(now, *contact, out);
    it = suspects_.erase(it);
  }
}

void Node::AddSeeds(Time now, WallTime wall, const std::vector<std::string>& endpoints,
                    Actions& out) {
  for (const std::string& endpoint : endpoints) {
    if (!endpoint.empty() && endpoint != self_.contact.endpoint) seeds_.Add(now, endpoint);
  }
  ProbeSeeds(now, out);
  PumpWaiting(now, wall, out);
}

void Node::ProbeSeeds(Time now, Actions& out) {
  while (const auto endpoint = seeds_.NextDue(now)) {
    const Contact seed{PeerId(), *endpoint};
    const auto id = requests_.Add(now, seed, SeedProbe{}, config_.seed_patience,
                                  config_.seed_patience + config_.min_fail);
    if (!id) {
      metrics_->requests_shed.Add();
      seeds_.OnFailure(now, *endpoint);
      continue;
    }
    metrics_->requests.Add();
    out.push_back(Send{seed, Message{*id, FindRequest{PointOf(self_.contact.id), false}}});
  }
}

void Node::OnPeerDown(Time now, WallTime wall, const Contact& peer, DownEvidence evidence,
                      Actions& out) {
  if (peer.id.none()) {
    if (const auto probe = requests_.TakeSeed(peer.endpoint)) {
      OnFailedRequest(now, wall, *probe, out);
    }
    return;
  }
  const std::vector<Request> lost = requests_.TakeAllTo(peer.id);
  if (evidence == DownEvidence::kRefused) {
    subscriptions_.RemoveWatcher(peer.id);
    table_.Remove(peer.id);
    for (const Request& request : lost) OnFailedRequest(now, wall, request, out);
    OnContactLost(now, wall, peer.id, out);
    return;
  }
  for (const Request& request : lost) OnFailedRequest(now, wall, request, out);
  // Pushes may have been lost with the connection: renew what it holds for us, which also tells
  // whether it lives.
  for (auto& [key, watch] : watches_) {
    const auto holder = watch.holders.find(peer.id);
    if (holder == watch.holders.end() || holder->second.state != Asked::kActive) continue;
    holder->second.renew = now;
    WakeBy(now);
  }
  if (table_.Contains(peer.id)) PingIfWanted(now, peer, out);
}

void Node::OnContactAdded(Time now, WallTime wall, const Contact& contact, Actions& out) {
  // A new neighbour may know more of them: look again soon. Far contacts come and go.
  const std::vector<Contact> nearest = table_.Nearest(PointOf(self_.contact.id), config_.k);
  const bool neighbour = std::find(nearest.begin(), nearest.end(), contact) != nearest.end();
  if (neighbour) ++added_since_refresh_;
  if (table_.size() == 1) OnCompany(now);
  if (neighbour && added_since_refresh_ == 1) {
    refresh_interval_ = std::min(refresh_interval_, config_.min_refresh);
    refresh_at_ = std::min(refresh_at_, now + refresh_interval_ * (0.5 + rng_.UniformDouble()));
    WakeBy(refresh_at_);
  }
  PumpWaiting(now, wall, out);
  HandOver(now, wall, contact, out);
  SyncFollowed(now, wall, out);
}

void Node::OnContactLost(Time now, WallTime wall, const PeerId& id, Actions& out) {
  replicas_.Remove(id);
  suspects_.erase(id);
  // Many die together: whoever takes the place may have died meanwhile, and would keep it until a
  // lookup comes by.
  for (const PeerId& promoted : table_.TakePromoted()) {
    suspects_.try_emplace(promoted, now);
    WakeBy(now);
  }
  for (auto& [key, own] : own_) own.placed.erase(id);
  for (auto& [key, watch] : watches_) watch.holders.erase(id);
  SyncFollowed(now, wall, out);
  if (table_.size() == 0) seeds_.Hurry(now);
}

// A newcomer near a key that we hold should hold it too. The nearest holder sends it; the second
// nearest as well, because the nearest may be dying at this moment.
void Node::HandOver(Time now, WallTime wall, const Contact& newcomer, Actions& out) {
  for (const Key& key : store_.Keys()) {
    int nearer = 0;
    size_t rank = 0;
    bool among_nearest = false;
    for (const Contact& contact : table_.Nearest(key, config_.k)) {
      if (contact.id == newcomer.id) {
        among_nearest = true;
        continue;
      }
      ++rank;
      if (Closer(key, contact.id, self_.contact.id)) ++nearer;
    }
    if (!among_nearest || nearer > 1) continue;
    std::vector<RecordPtr> records = store_.Find(wall, key);
    if (records.empty()) continue;
    SendRequest(now, newcomer, FireAndForget{}, StoreRequest{std::move(records)}, out);
  }
}

void Node::SyncFollowed(Time now, WallTime wall, Actions& out) {
  for (const auto& [key, own] : own_) SyncOwn(now, wall, key, out);
  for (const auto& [key, watch] : watches_) SyncWatch(now, wall, key, out);
}

void Node::LookUpHolders(Time now, WallTime wall, Actions& out) {
  for (const Key& key : replicas_.TakeDue(now)) StartLookup(now, wall, key, ForHolders{}, out);
  WakeBy(replicas_.NextDeadline());
}

size_t Node::MemoryBytes() const {
  size_t bytes = sizeof *this - sizeof table_ - sizeof store_ - sizeof subscriptions_ -
                 sizeof limiter_ - sizeof requests_ - sizeof replicas_;
  bytes += table_.MemoryBytes() + store_.MemoryBytes() + subscriptions_.MemoryBytes() +
           requests_.MemoryBytes() + replicas_.MemoryBytes() + limiter_.MemoryBytes();
  bytes += lookups_.size() * (sizeof(RunningLookup) + 4 * config_.k * (sizeof(Contact) + 96));
  for (const auto& [key, own] : own_) bytes += 160 + own.placed.size() * 88;
  for (const auto& [key, watch] : watches_) {
    bytes += 192 + watch.holders.size() * 96 + watch.seen.size() * 96;
  }
  return bytes;
}

}  // namespace crowdsurf::dht
