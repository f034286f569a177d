// RelayPaths: what an agent knows of who can be dialed, and through whom others are reached.
//
// Two agents that may not dial each other are joined through the neighbours between them
// (relay_searches.h); this remembers what decides about that. A *neighbour* is a peer with a
// stream that nobody carries; it was *met*. A peer is *hidden* when the stream with it is carried.
// An *end* is an address of a peer, as others or that peer itself say. Bytes of others go there
// only when it was *proved* a moment ago: this agent's own dial of that address found the peer's
// certificate. So an agent is no open proxy, whatever a peer says its address is. A *route* is the
// neighbour through whom an end was reached last; it is forgotten when that neighbour goes, when it
// says that it cannot reach the end any more, or when nobody answers at the end: somebody
// connected, but to a process that is frozen, say.
//
// A refused dial means that the process is dead only where a dial could have been accepted: at a
// peer that was met, or, as long as nothing was ever carried here, anywhere. Elsewhere it may be
// the firewall that refuses. Pure; single sequence. Bounds: RelayConfig; what was put in first of
// what is over them is forgotten, and counted.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/down_evidence.h"
#include "base/time.h"
#include "coordinator-free-dht/core/relay/relay_metrics.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

struct RelayConfig {
  size_t carried = 256;      // connections, joined or being looked for, carried at a time
  size_t searches = 64;      // of them being looked for; the middle of a chain hears of all
  size_t asked_at_once = 8;  // neighbours of one search: in a mesh the first few can dial it
  size_t asked_first = 2;    // of these before all: most ends are dead, and whoever met one says so
  uint32_t hops = 64;        // the longest way: the diameter of a chain that anybody would make
  size_t numbers = 4096;     // of searches heard of; each lives as long as a search may
  size_t ends = 16'384;      // addresses heard of: two a peer, eight thousand peers
  size_t routes = 4096;      // ends reached through somebody
  size_t failures = 1024;    // ends that nobody could reach a moment ago, and dead peers
  Duration head_start = Milliseconds(100);  // of the own dial before neighbours are asked, too
  Duration patience = Seconds(4);           // of a search: less than a dial's 5 s
  Duration failure_lives = Seconds(1);      // an end that nobody reaches is not looked for again
  Duration refusal_lives = Seconds(1);      // a dead peer is not dialed again for each message
  Duration proof_lives = Seconds(60);       // of an end; addresses are given to others in time
  Duration death_lives = Seconds(60);       // a peer that was met and cannot be dialed any more is
                                            // dead or frozen so long; then it may be a firewall
};

// What became of a search, or of one dial in it. Ordered as on the wire; never renumbered.
enum class RelayAnswer : uint8_t {
  kFound = 1,        // joined
  kDead = 2,         // somebody who had met the peer was refused
  kRefused = 3,      // refused, by agents that had neither met it nor seen a firewall
  kUnreachable = 4,  // anything else that failed
  kNothing = 5,      // says nothing about the end: asked before, or the end is not known here
};

// After a dial failed, what is to be done about it.
enum class AfterFailure : uint8_t {
  kFinal,  // what the dial said stands
  kSoft,   // it failed, and that says nothing about the peer's life, not even a refusal
  kRelay,  // ask the neighbours
};

// How a stream reaches its peer.
enum class StreamPath : uint8_t {
  kDirect,   // by a dial that nobody carried
  kCarried,  // through a relay
};

// What listens at an end, and so, whose dial proves it.
enum class RelayPort : uint8_t { kPeer, kTensor };

// A map that forgets what was put in first. Put and Use move to the end.
template <class Key, class Value>
class Remembered {
 public:
  explicit Remembered(size_t most) : max_(most) {}

  // False: something was forgotten to make room.
  bool Put(const Key& key, Value value) {
    Erase(key);
    order_.push_back(key);
    entries_.emplace(key, Entry{std::move(value), std::prev(order_.end())});
    if (entries_.size() <= max_) return true;
    Erase(Key(order_.front()));
    return false;
  }
  void Erase(const Key& key) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) return;
    order_.erase(it->second.place);
    entries_.erase(it);
  }
  template <class Predicate>
  void EraseIf(Predicate predicate) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const bool gone = predicate(it->second.value);
      if (gone) order_.erase(it->second.place);
      it = gone ? entries_.erase(it) : std::next(it);
    }
  }
  // nullptr: not there.
  Value* Find(const Key& key) {
    const auto it = entries_.find(key);
    return it == entries_.end() ? nullptr : &it->second.value;
  }
  // As Find, and what is used so is forgotten last.
  Value* Use(const Key& key) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) return nullptr;
    order_.splice(order_.end(), order_, it->second.place);
    return &it->second.value;
  }
  const Value* Find(const Key& key) const { return const_cast<Remembered*>(this)->Find(key); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value;
    typename std::list<Key>::iterator place;
  };
  size_t max_;
  std::map<Key, Entry> entries_;
  std::list<Key> order_;
};

class RelayPaths {
 public:
  RelayPaths(const RelayConfig& config, RelayMetrics& metrics);  // both outlive this

  // ---- what the transports see ----
  // A stream with `peer` is up.
  void OnStreamUp(const Contact& peer, StreamPath path);
  // The last stream with `peer` that nobody carries has ended.
  void OnStreamDown(const PeerId& peer);
  // `endpoint` is one of the peer's addresses, it is said.
  void Introduce(const PeerId& peer, const std::string& endpoint, RelayPort port);
  // An own dial of `end.endpoint`, which nobody carried, found the certificate of `end.id` there.
  void OnProved(Time now, const Contact& end);
  // One of `endpoint` failed, or found somebody else.
  void OnUnproved(const std::string& endpoint) { proved_.Erase(endpoint); }
  // Is `to` to be dialed through the relay from the first? `to.id` may be none.
  bool Via(const Contact& to) const;
  // A dial of `to` that nobody carried failed.
  AfterFailure OnDialFailed(Time now, const Contact& to, DownEvidence evidence);
  // One that went through the relay failed, or was cut before the peer had said who it is.
  void OnCarriedFailed(Time now, const Contact& to);
  // All that was tried says that the process of `peer` is gone.
  void OnDead(Time now, const PeerId& peer);
  // Did that happen a moment ago? A dial costs a TLS context, and a round has a beat every 25 ms.
  bool Dead(Time now, const PeerId& peer) const;

  // ---- for relay_searches.h ----
  const std::map<PeerId, std::string>& neighbours() const { return neighbours_; }
  // The peer that has this address; nullptr: an end that nobody has.
  const PeerId* PeerOf(const std::string& endpoint) const;
  // Pre: PeerOf.
  RelayPort PortOf(const std::string& endpoint) const { return ends_.Find(endpoint)->port; }
  bool Proved(Time now, const std::string& endpoint) const;
  // What an own dial of `endpoint` for somebody else says; pre: it failed.
  RelayAnswer Judge(Time now, const std::string& endpoint, DownEvidence evidence) const;
  // The neighbour through whom `endpoint` was reached last; none: nobody.
  std::optional<PeerId> Route(const std::string& endpoint) const;
  void Remember(const std::string& endpoint, const PeerId& neighbour);
  void ForgetRoute(const std::string& endpoint) { routes_.Erase(endpoint); }
  // Nobody reached it: it is not looked for again at once, nor through the relay first.
  void OnUnreachable(Time now, const std::string& endpoint);
  // An end answered on a connection that is carried here.
  void OnCarried() { firewall_ = true; }
  // Was there ever such a one?
  bool firewall() const { return firewall_; }

 private:
  struct End {
    PeerId peer;
    RelayPort port;
  };
  struct Proof {
    PeerId peer;
    Time at;
  };
  bool Met(Time now, const PeerId& peer) const;
  // Puts it in, and counts what is forgotten for it.
  template <class Key, class Value>
  void Keep(Remembered<Key, Value>& entries, const Key& key, Value value) {
    if (!entries.Put(key, std::move(value))) metrics_.forgotten.Add();
  }

  const RelayConfig& config_;
  RelayMetrics& metrics_;
  std::map<PeerId, std::string> neighbours_;  // bounded by the transport's streams
  Remembered<std::string, End> ends_;
  Remembered<std::string, Proof> proved_;
  Remembered<PeerId, Time> met_;  // when a dial of it failed first since; unset: never
  Remembered<PeerId, bool> hidden_;
  Remembered<std::string, PeerId> routes_;
  Remembered<std::string, Time> failures_;  // until when
  Remembered<PeerId, Time> dead_;           // until when
  bool firewall_ = false;
};

}  // namespace crowdsurf::dht
