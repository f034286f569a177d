// Network: many dht::Nodes under virtual time, for tests.
//
// Messages take a random delay and may be lost; a peer that is killed answers no more, and
// depending on `hard_deaths` its peers are told (as a reset connection tells them) or must find
// out. Every message goes through the codec. Deterministic by its seed. Single sequence.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/down_evidence.h"
#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"
#include "coordinator-free-dht/core/wire/codec.h"
#include "coordinator-free-dht/core/wire/unsafe_hash_authority.h"

namespace crowdsurf::dht {

// Counts what it is asked to verify: in production that is most of what a quiet node computes.
class CountingAuthority : public UnsafeHashAuthority {
 public:
  using UnsafeHashAuthority::UnsafeHashAuthority;
  bool Verify(const PublicKey& key, ByteView bytes, const Signature& signature) const override {
    ++verified;
    return UnsafeHashAuthority::Verify(key, bytes, signature);
  }
  mutable uint64_t verified = 0;
};

class Network {
 public:
  struct Options {
    uint64_t seed = 1;
    Duration min_delay = Microseconds(200);
    Duration max_delay = Microseconds(800);
    Duration connect = Duration();  // of a pair's first message more than of its others: handshakes
    double loss = 0;
    bool hard_deaths = true;  // the dead one's correspondents are told
    NodeConfig config = {};
  };
  struct Peer {
    std::string endpoint;
    PublicKey public_key{};
    std::unique_ptr<CountingAuthority> authority;
    std::unique_ptr<Node> node;
    bool alive = true;
    Duration skew = Duration();  // its wall clock is ahead by this
    int side = 0;                // of a partition: messages between sides are lost
    uint64_t sent = 0;
    std::set<size_t> correspondents;
    std::vector<GetDone> gets;
    std::vector<PutDone> puts;
    std::map<Key, std::map<PeerId, RecordPtr>> watched;  // newest of each subkey
    std::map<Key, Time> synced;                          // when first
    std::map<Key, int> updates;
  };

  explicit Network(const Options& options)
      : options_(options), rng_(options.seed), metrics_(registry_) {}

  // Starts a node that knows `seeds`; its id follows from the network's seed, or from `own_key`.
  size_t AddPeer(const std::vector<std::string>& seeds, const PublicKey* own_key = nullptr,
                 Duration skew = Duration()) {
    const size_t index = peers_.size();
    auto peer = std::make_unique<Peer>();
    peer->endpoint = EndpointOf(index);
    peer->skew = skew;
    Rng key = rng_.Fork("key/" + std::to_string(index));
    for (uint8_t& byte : peer->public_key) byte = static_cast<uint8_t>(key.Next());
    if (own_key != nullptr) peer->public_key = *own_key;
    peer->authority = std::make_unique<CountingAuthority>(peer->public_key);
    const Self self{{PeerIdOf(peer->public_key, 1), peer->endpoint}, peer->public_key, 1};
    peer->node = std::make_unique<Node>(self, options_.config, peer->authority.get(), &metrics_,
                                        rng_.Fork("node/" + std::to_string(index)));
    by_endpoint_[peer->endpoint] = index;
    by_id_[self.contact.id] = index;
    peers_.push_back(std::move(peer));
    Do(index, [&](Node& node, Actions& out) { node.AddSeeds(clocks(index), seeds, out); });
    return index;
  }

  // Of a node that may be yet to come.
  static std::string EndpointOf(size_t index) { return "peer-" + std::to_string(index) + ":1"; }

  // Runs `input` on a node and executes its actions.
  void Do(size_t index, const std::function<void(Node&, Actions&)>& input) {
    Actions out;
    input(*peers_[index]->node, out);
    Execute(index, std::move(out));
  }

  void Kill(size_t index) {
    Peer& dead = *peers_[index];
    dead.alive = false;
    if (!options_.hard_deaths) return;
    for (const size_t other : dead.correspondents) TellDown(other, index);
  }

  void Run(Duration span) {
    RunUntil(now_ + span, [] { return false; });
  }
  // Until `done` or for `limit`; true when done.
  bool RunUntilDone(Duration limit, const std::function<bool()>& done) {
    return RunUntil(now_ + limit, done);
  }

  Peer& peer(size_t index) { return *peers_[index]; }
  Node& node(size_t index) { return *peers_[index]->node; }
  const PeerId& id(size_t index) const { return peers_[index]->node->self().id; }
  size_t IndexOf(const PeerId& peer_id) const { return by_id_.at(peer_id); }
  size_t size() const { return peers_.size(); }
  Time now() const { return now_; }
  WallTime wall() const { return kEpoch + (now_ - kStart); }
  Clocks clocks() const { return {now_, wall()}; }
  Clocks clocks(size_t index) const { return {now_, wall() + peers_[index]->skew}; }
  uint64_t messages() const { return messages_; }
  MetricRegistry& registry() { return registry_; }
  Options& options() { return options_; }
  Rng& rng() { return rng_; }

  // The k live peers truly nearest to `key`, closest first.
  std::vector<PeerId> TrueNearest(const Key& key, size_t k) const {
    std::map<Distance, PeerId> nearest;
    for (const auto& p : peers_) {
      if (!p->alive) continue;
      nearest[DistanceBetween(key, PointOf(p->node->self().id))] = p->node->self().id;
    }
    std::vector<PeerId> out;
    for (const auto& [distance, peer_id] : nearest) {
      if (out.size() == k) break;
      out.push_back(peer_id);
    }
    return out;
  }
  // How many live peers hold a record of `subkey` at `key`.
  int Copies(const Key& key, const PeerId& subkey) const {
    int copies = 0;
    for (const auto& p : peers_) {
      if (!p->alive) continue;
      for (const RecordPtr& record : p->node->store().Find(wall(), key)) {
        copies += record->subkey == subkey;
      }
    }
    return copies;
  }

 private:
  static constexpr Time kStart = Time::FromNanoseconds(3'600'000'000'000);
  static constexpr WallTime kEpoch = WallTime::FromNanoseconds(1'800'000'000'000'000'000);

  struct Event {
    Time at;
    uint64_t serial;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // a max-heap: later is "less"
      return at != other.at ? at > other.at : serial > other.serial;
    }
  };

  void At(Time at, std::function<void()> run) { events_.push({at, serial_++, std::move(run)}); }
  Duration Delay() {
    const auto spread =
        static_cast<uint64_t>((options_.max_delay - options_.min_delay).nanoseconds() + 1);
    return options_.min_delay + Nanoseconds(static_cast<int64_t>(rng_.Uniform(spread)));
  }

  void TellDown(size_t who, size_t dead) {
    At(now_ + Delay(), [this, who, dead] {
      if (!peers_[who]->alive) return;
      Actions out;
      peers_[who]->node->OnPeerDown(clocks(who), peers_[dead]->node->self(), DownEvidence::kRefused,
                                    out);
      Execute(who, std::move(out));
    });
  }
  void TellUnreachable(size_t who, const Contact& to) {
    At(now_ + Delay(), [this, who, to] {
      if (!peers_[who]->alive) return;
      Actions out;
      peers_[who]->node->OnPeerDown(clocks(who), to, DownEvidence::kRefused, out);
      Execute(who, std::move(out));
    });
  }

  void Execute(size_t from, Actions actions) {
    for (Action& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) {
        Deliver(from, *send);
      } else if (auto* get = std::get_if<GetDone>(&action)) {
        peers_[from]->gets.push_back(std::move(*get));
      } else if (auto* put = std::get_if<PutDone>(&action)) {
        peers_[from]->puts.push_back(*put);
      } else if (auto* update = std::get_if<WatchUpdate>(&action)) {
        Peer& peer = *peers_[from];
        if (update->synced) peer.synced.try_emplace(update->key, now_);
        if (!update->records.empty()) ++peer.updates[update->key];
        for (const RecordPtr& record : update->records) {
          peer.watched[update->key][record->subkey] = record;
        }
      }
    }
    Arm(from);
  }

  void Deliver(size_t from, const Send& send) {
    ++messages_;
    ++peers_[from]->sent;
    const auto it = by_endpoint_.find(send.to.endpoint);
    if (it == by_endpoint_.end()) return TellUnreachable(from, send.to);
    const size_t to = it->second;
    if (!peers_[to]->alive) {
      if (options_.hard_deaths) TellUnreachable(from, send.to);
      return;
    }
    if (peers_[from]->side != peers_[to]->side) return;
    if (options_.loss > 0 && rng_.Bernoulli(options_.loss)) return;
    if (!peers_[from]->correspondents.contains(to)) {
      connected_[{std::min(from, to), std::max(from, to)}] = now_ + options_.connect;
    }
    peers_[from]->correspondents.insert(to);
    peers_[to]->correspondents.insert(from);
    // What is said meanwhile waits for the connection.
    const Time leaves = std::max(now_, connected_[{std::min(from, to), std::max(from, to)}]);
    At(leaves + Delay(), [this, from, to, bytes = Encode(send.message)] {
      if (!peers_[to]->alive) return;
      const auto message = Decode(bytes);
      if (!message) return;
      Actions out;
      peers_[to]->node->OnMessage(clocks(to), peers_[from]->node->self(), *message, out);
      Execute(to, std::move(out));
    });
  }

  // One timer event a node at its earliest wish.
  void Arm(size_t index) {
    const Time next = peers_[index]->node->NextDeadline();
    if (next.infinite()) return;
    const auto armed = armed_.find(index);
    if (armed != armed_.end() && armed->second <= next && armed->second >= now_) return;
    const Time at = std::max(next, now_);
    armed_[index] = at;
    At(at, [this, index, at] {
      if (armed_[index] == at) armed_.erase(index);
      if (!peers_[index]->alive) return;
      if (peers_[index]->node->NextDeadline() > now_) return Arm(index);
      Actions out;
      peers_[index]->node->OnTimer(clocks(index), out);
      Execute(index, std::move(out));
    });
  }

  bool RunUntil(Time limit, const std::function<bool()>& done) {
    while (!done()) {
      if (events_.empty() || events_.top().at > limit) {
        now_ = limit;
        return done();
      }
      // The event may push others: move it out first.
      Event event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      now_ = event.at;
      event.run();
    }
    return true;
  }

  Options options_;
  Rng rng_;
  MetricRegistry registry_;
  NodeMetrics metrics_;
  Time now_ = kStart;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::string, size_t> by_endpoint_;
  std::map<PeerId, size_t> by_id_;
  std::map<size_t, Time> armed_;
  std::map<std::pair<size_t, size_t>, Time> connected_;  // lower index first
  std::priority_queue<Event> events_;
  uint64_t serial_ = 0;
  uint64_t messages_ = 0;
};

inline Bytes BytesOf(std::string_view text) { return Bytes(text.begin(), text.end()); }

}  // namespace crowdsurf::dht
