#include "coordinator-free-dht/core/node/node.h"

#include <utility>

#include "base/check.h"
#include "coordinator-free-dht/core/node/node_metrics.h"

namespace crowdsurf::dht {

namespace {

// Own records are written anew when the job's time has moved by this: a twelfth of the life of a
// roster's record.
constexpr Duration kMoved = Milliseconds(250);
// And not more often than this: peers can set their clocks at will.
constexpr Duration kWritePause = Milliseconds(100);

}  // namespace

Node::Node(Self self, const NodeConfig& config, const RecordAuthority* authority,
           NodeMetrics* metrics, Rng rng)
    : self_(std::move(self)),
      config_(config),
      authority_(authority),
      metrics_(metrics),
      rng_(rng.Fork("dht/node")),
      table_(self_.contact.id, config_),
      // Ids of an earlier life of this address must not match; half the space is left to count in.
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

Clocks Node::Enter(const Clocks& at) {
  own_wall_ = at.wall;
  return clocks_.JobTime(at);
}

void Node::OnClock(const Clocks& raw, const PublicKey& peer, WallTime wall, Duration round_trip,
                   Actions& out) {
  const Clocks at = Enter(raw);
  Sample(raw, peer, wall, round_trip);
  if (upkeep_at_ <= at.now) Upkeep(clocks_.JobTime(raw), out);
}

void Node::Sample(const Clocks& raw, const PublicKey& peer, WallTime wall, Duration round_trip) {
  const ClockSample sample = clocks_.Add(raw, peer, wall, round_trip);
  metrics_->clock_samples[static_cast<size_t>(sample)]->Add();
  const Duration moved = clocks_.Offset(raw) - written_by_;
  if (std::max(moved, Duration() - moved) < kMoved || !write_again_.infinite()) return;
  write_again_ = std::max(raw.now, written_again_ + kWritePause);
  WakeBy(write_again_);
}

// The job's time has moved: own records get its stamps, and a record that seemed to have ended is
// asked for again.
void Node::WriteAnew(const Clocks& at, Actions& out) {
  write_again_ = Time::Infinite();
  written_again_ = at.now;
  written_by_ = at.wall - own_wall_;
  for (auto& [key, own] : own_) {
    if (own.until > at.now) WriteOwn(at, key, own.record->value, own.until, out);
  }
  for (auto& [key, watch] : watches_) {
    for (auto& [id, holder] : watch.holders) {
      if (holder.state == Asked::kActive) holder.renew = at.now;
    }
  }
}

void Node::OnTimer(const Clocks& raw, Actions& out) {
  const Clocks at = Enter(raw);
  // Failures before upkeep, which asks by the contacts that are left.
  while (auto due = requests_.NextDue(at.now)) {
    if (due->failed) {
      OnFailedRequest(at, due->request, out);
    } else {
      OnSlowRequest(at, due->request, out);
    }
  }
  ProbeSeeds(at.now, out);
  if (upkeep_at_ <= at.now) Upkeep(at, out);
}

Time Node::NextDeadline() const {
  return std::min({requests_.NextDeadline(), seeds_.NextDeadline(), upkeep_at_});
}

// Everything that is not urgent to the millisecond, each at its own rhythm.
void Node::Upkeep(const Clocks& at, Actions& out) {
  upkeep_at_ = Time::Infinite();
  if (write_again_ <= at.now) WriteAnew(at, out);
  if (sweep_at_ <= at.now) {
    store_.Sweep(at.wall);
    subscriptions_.Sweep(at.now);
    Republish(at, out);
    std::vector<Key> ended;
    for (const auto& [key, own] : own_) {
      if (own.until <= at.now) ended.push_back(key);
    }
    // Not in the loop above, since it erases from the same map.
    for (const Key& key : ended) StopPublishing(key);
    sweep_at_ = Time::Infinite();
  }
  if (sweep_at_.infinite() && (!store_.empty() || subscriptions_.size() > 0 || !own_.empty())) {
    sweep_at_ = at.now + config_.sweep;
  }
  PingSuspects(at.now, out);
  if (refresh_at_ <= at.now) RefreshTable(at, out);
  LookUpHolders(at, out);
  RenewWatches(at, out);
  WakeBy(std::min({sweep_at_, refresh_at_, write_again_, replicas_.NextDeadline()}));
}

// Kademlia 2.5: holders send records that nobody renewed to the present holders.
void Node::Republish(const Clocks& at, Actions& out) {
  for (const Key& key : store_.NotRenewedSince(at.now - config_.republish)) {
    // Jitter spreads the holders of a key: the first to republish it renews it at the others.
    if (!rng_.Bernoulli(0.25)) continue;
    store_.MarkRenewed(at.now, key);
    StartLookup(at, key, ForRepublish{}, out);
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

void Node::AddSeeds(const Clocks& raw, const std::vector<std::string>& endpoints, Actions& out) {
  const Clocks at = Enter(raw);
  for (const std::string& endpoint : endpoints) {
    // The list of a job's seeds names this node, too, in the end.
    if (!endpoint.empty() && endpoint != self_.contact.endpoint) seeds_.Add(at.now, endpoint);
  }
  ProbeSeeds(at.now, out);
  PumpWaiting(at, out);
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

void Node::OnPeerDown(const Clocks& raw, const Contact& peer, DownEvidence evidence, Actions& out) {
  const Clocks at = Enter(raw);
  if (peer.id.none()) {
    if (const auto probe = requests_.TakeSeed(peer.endpoint)) {
      OnFailedRequest(at, *probe, out);
    }
    return;
  }
  const std::vector<Request> lost = requests_.TakeAllTo(peer.id);
  if (IsDead(evidence)) {
    // Its process is gone, with all that it knew; nothing is retried.
    subscriptions_.RemoveWatcher(peer.id);
    table_.Remove(peer.id);
    for (const Request& request : lost) OnFailedRequest(at, request, out);
    OnContactLost(at, peer.id, out);
    return;
  }
  for (const Request& request : lost) OnFailedRequest(at, request, out);
  // Pushes may have been lost with the connection: renew what it holds for us, which also tells
  // whether it lives.
  for (auto& [key, watch] : watches_) {
    const auto holder = watch.holders.find(peer.id);
    if (holder == watch.holders.end() || holder->second.state != Asked::kActive) continue;
    holder->second.renew = at.now;
    WakeBy(at.now);
  }
  if (table_.Contains(peer.id)) PingIfWanted(at.now, peer, out);
}

void Node::OnContactAdded(const Clocks& at, const Contact& contact, Actions& out) {
  // A new neighbour may know more of them: look again soon. Far contacts come and go.
  const std::vector<Contact> nearest = table_.Nearest(PointOf(self_.contact.id), config_.k);
  const bool neighbour = std::find(nearest.begin(), nearest.end(), contact) != nearest.end();
  // Only these tell that the neighbourhood grows, and a search of our own id looks for neighbours.
  if (neighbour) ++added_since_refresh_;
  if (table_.size() == 1) OnCompany(at.now);
  if (neighbour && added_since_refresh_ == 1) {
    refresh_interval_ = std::min(refresh_interval_, config_.min_refresh);
    refresh_at_ = std::min(refresh_at_, at.now + refresh_interval_ * (0.5 + rng_.UniformDouble()));
    WakeBy(refresh_at_);
  }
  PumpWaiting(at, out);
  // After the searches: somebody waits for those.
  HandOver(at, contact, out);
  SyncFollowed(at, out);
}

void Node::OnContactLost(const Clocks& at, const PeerId& id, Actions& out) {
  // First, so that the lines below look for holders without it.
  replicas_.Remove(id);
  suspects_.erase(id);
  // Many die together: whoever takes the place may have died meanwhile, and would keep it until a
  // lookup comes by.
  for (const PeerId& promoted : table_.TakePromoted()) {
    suspects_.try_emplace(promoted, at.now);
    WakeBy(at.now);
  }
  for (auto& [key, own] : own_) own.placed.erase(id);
  for (auto& [key, watch] : watches_) watch.holders.erase(id);
  SyncFollowed(at, out);
  // Alone: only a seed can lead back into the network.
  if (table_.size() == 0) seeds_.Hurry(at.now);
}

// A newcomer near a key that we hold should hold it too. The nearest holder sends it; the second
// nearest as well, because the nearest may be dying at this moment.
void Node::HandOver(const Clocks& at, const Contact& newcomer, Actions& out) {
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
    // Further holders stay silent: twenty copies of each record would greet every newcomer.
    if (!among_nearest || nearer > 1) continue;
    std::vector<RecordPtr> records = store_.Find(at.wall, key);
    if (records.empty()) continue;
    SendRequest(at.now, newcomer, FireAndForget{}, StoreRequest{std::move(records)}, out);
  }
}

void Node::SyncFollowed(const Clocks& at, Actions& out) {
  for (const auto& [key, own] : own_) SyncOwn(at, key, out);
  SyncWatches(at, out);
}

void Node::LookUpHolders(const Clocks& at, Actions& out) {
  for (const Key& key : replicas_.TakeDue(at.now)) StartLookup(at, key, ForHolders{}, out);
  WakeBy(replicas_.NextDeadline());
}

size_t Node::MemoryBytes() const {
  size_t bytes = sizeof *this - sizeof table_ - sizeof store_ - sizeof subscriptions_ -
                 sizeof limiter_ - sizeof requests_ - sizeof replicas_ - sizeof clocks_;
  bytes += table_.MemoryBytes() + store_.MemoryBytes() + subscriptions_.MemoryBytes() +
           requests_.MemoryBytes() + replicas_.MemoryBytes() + limiter_.MemoryBytes() +
           clocks_.MemoryBytes();
  bytes += lookups_.size() * (sizeof(RunningLookup) + 4 * config_.k * (sizeof(Contact) + 96));
  for (const auto& [key, own] : own_) bytes += 160 + own.placed.size() * 88;
  for (const auto& [key, watch] : watches_) {
    bytes += 192 + watch.holders.size() * 96 + watch.seen.size() * 96;
    // A record that the store or another node of a simulator holds, too, is counted there.
    for (const auto& [subkey, record] : watch.seen)
      if (record.use_count() == 1) bytes += sizeof(Record) + 32 + record->value.capacity();
  }
  return bytes;
}

}  // namespace crowdsurf::dht
