// Node: one Kademlia node as a state machine; composes routing table, lookups, store and watches.
//
// Input: messages, lost peers, timers and local requests, each with one reading of the clocks.
// Output: Actions appended to `out`. No input is
// trusted: malformed, forged, stale or excess input is counted and dropped. One owner calls it,
// never from two threads; each call costs O(k log n) and never blocks. Idle memory about 10 KiB
// plus 150 bytes a contact. Deterministic: same construction and inputs, same actions.
//
// Kademlia (Maymounkov and Mazieres 2002) with differences: records have owners, sequence and
// absolute expiry in the job's time, which is the median of the peers' clocks (peer_clocks.h);
// *watch* pushes changes; time-outs are percentiles of a peer's own round trips, after which
// another peer is asked as well (hedge); the holders of own and watched keys are remembered, so a
// renewed record goes out at once without a lookup; seeds are asked again for ever, so that split
// swarms merge; contacts enter the table only by replying.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/down_evidence.h"
#include "base/rng.h"
#include "base/time.h"
#include "coordinator-free-dht/core/clock/peer_clocks.h"
#include "coordinator-free-dht/core/port/actions.h"
#include "coordinator-free-dht/core/port/clocks.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/routing/lookup.h"
#include "coordinator-free-dht/core/routing/requests.h"
#include "coordinator-free-dht/core/routing/routing_table.h"
#include "coordinator-free-dht/core/routing/seeds.h"
#include "coordinator-free-dht/core/routing/source_limiter.h"
#include "coordinator-free-dht/core/store/replica_tracker.h"
#include "coordinator-free-dht/core/store/store.h"
#include "coordinator-free-dht/core/store/subscriptions.h"

namespace crowdsurf::dht {

struct NodeMetrics;

// The identity of this node. `public_key` and `boot` must give `contact.id` (PeerIdOf): CHECKed.
struct Self {
  Contact contact;
  PublicKey public_key{};
  uint64_t boot = 0;
};

class Node {
 public:
  // `authority` and `metrics` outlive the node; metrics may be shared by many nodes.
  Node(Self self, const NodeConfig& config, const RecordAuthority* authority, NodeMetrics* metrics,
       Rng rng);
  Node(const Node&) = delete;  // its parts refer to each other
  Node& operator=(const Node&) = delete;

  // From the network. `from` is the authenticated sender and the endpoint it says it listens on.
  void OnMessage(const Clocks& at, const Contact& from, const Message& message, Actions& out);
  // A peer's wall clock said `wall` at some moment of the last `round_trip`, outside of messages:
  // whoever owns `peer` has said so.
  void OnClock(const Clocks& at, const PublicKey& peer, WallTime wall, Duration round_trip,
               Actions& out);
  // Connection to `peer` is lost. A peer that is known to be dead
  // is forgotten at once; otherwise its requests in flight fail and it is asked again.
  // `peer.id` none: a seed's address that could not be reached.
  void OnPeerDown(const Clocks& at, const Contact& peer, DownEvidence evidence, Actions& out);
  // Pre: none; does whatever is due. Call at or after NextDeadline().
  void OnTimer(const Clocks& at, Actions& out);
  // When OnTimer wants to be called; Time::Infinite() when never. O(1) amortised.
  Time NextDeadline() const;

  // Local requests.
  // Starts the clock-driven work, asks these addresses for company and keeps asking for ever.
  // Replaces nothing: addresses add up (bounded, oldest forgotten first); own address is skipped.
  void AddSeeds(const Clocks& at, const std::vector<std::string>& endpoints, Actions& out);
  // Signs and publishes `value` as this node's own record of `key`, and keeps it at the current
  // holders (new, closer ones included) for `life`. A second Put of a key replaces the first
  // (higher sequence). PutDone follows when the result is kPublished. Any other result is counted
  // and changes nothing.
  PutResult Put(const Clocks& at, const Key& key, Bytes value, Duration life, Actions& out);
  // Stops keeping the own record of `key` alive (it then expires). To erase it, Put an empty value.
  void StopPublishing(const Key& key);
  // Finds the records of `key`. GetDone with the returned number follows. With `enough` > 0 the
  // search ends as soon as so many holders (this node counts) had a record: quick, may be old.
  uint64_t Get(const Clocks& at, const Key& key, size_t enough, Actions& out);
  // Subscribes to `key` at its nearest holders, follows them as they change, and reports what is
  // held now and every change. Idempotent. False when there are too many.
  bool Watch(const Clocks& at, const Key& key, Actions& out);
  void Unwatch(Time now, const Key& key, Actions& out);

  // How long a record that was reported here lives on; by it and not by its expiry a reader counts.
  Duration LifeLeft(const Clocks& at, const Record& record) const {
    // Nobody has looked at the end of a pushed record yet.
    return std::min(dht::LifeLeft(record, JobTime(at)), config_.longest_life);
  }
  WallTime JobTime(const Clocks& at) const { return clocks_.JobTime(at).wall; }
  // What this machine's wall clock lacks of the job's time.
  Duration ClockOffset(const Clocks& at) const { return clocks_.Offset(at); }

  const Contact& self() const { return self_.contact; }
  size_t contacts() const { return table_.size(); }
  // Seeds that have never answered (seeds.h).
  std::vector<std::string> SilentSeeds(Time now) const { return seeds_.Silent(now); }
  // The k known peers closest to `target` (never this node), closest first.
  std::vector<Contact> Nearest(const Key& target) const {
    return table_.Nearest(target, config_.k);
  }
  const Store& store() const { return store_; }
  // Deep size of what this node holds, in bytes, estimated: for the simulator's budget.
  size_t MemoryBytes() const;

 private:
  // Lookups (node_lookup.cc): what a finished one is for.
  struct ForGet {
    uint64_t get = 0;
    size_t enough = 0;  // holders with a record; 0: search to the end
    size_t holders = 0;
    std::map<PeerId, RecordPtr> records;
  };
  struct ForHolders {};  // of a followed key, the lookup's target
  struct ForTable {
    bool join = false;  // of our own id through a seed: the first one fills the far buckets after
  };
  struct ForRepublish {};  // the target's records go to its nearest holders
  using LookupPurpose = std::variant<ForGet, ForHolders, ForTable, ForRepublish>;
  struct RunningLookup {
    Lookup lookup;
    LookupPurpose purpose;
  };
  struct WaitingLookup {
    Key target;
    LookupPurpose purpose;
  };
  void StartLookup(const Clocks& at, const Key& target, LookupPurpose purpose, Actions& out);
  void RunLookup(const Clocks& at, const Key& target, LookupPurpose purpose,
                 const std::vector<Contact>& start, Actions& out);
  void Advance(const Clocks& at, uint64_t lookup, Actions& out);
  void Finish(const Clocks& at, RunningLookup done, Actions& out);
  void PumpWaiting(const Clocks& at, Actions& out);
  void OnQueryReply(const Clocks& at, uint64_t lookup, const PeerId& from, const FindReply& reply,
                    Actions& out);
  // True when there was at least one good record among them.
  bool MergeForGet(WallTime wall, const Key& target, const std::vector<RecordPtr>& records,
                   ForGet& get);
  void FillFarBuckets(const Clocks& at, Actions& out);
  void RefreshTable(const Clocks& at, Actions& out);
  // First contact, alone or with another part of the network: searches begin anew, and soon again.
  void OnCompany(Time now);
  Key RandomPointInBucket(int index);

  // Clocks. Each input is worked off at the job's time.
  Clocks Enter(const Clocks& at);
  void Sample(const Clocks& raw, const PublicKey& peer, WallTime wall, Duration round_trip);
  void WriteAnew(const Clocks& at, Actions& out);

  // Requests and replies (node_messages.cc).
  bool SendRequest(Time now, const Contact& to, Purpose purpose, decltype(Message::body) body,
                   Actions& out);
  void Reply(const Contact& to, uint64_t id, decltype(Message::body) body, Actions& out);
  void OnRequest(const Clocks& at, const Contact& from, const Message& message, Actions& out);
  void OnFind(WallTime wall, const Contact& from, uint64_t id, const FindRequest& find,
              Actions& out);
  void OnStore(const Clocks& at, const Contact& from, uint64_t id, const StoreRequest& store,
               Actions& out);
  void OnWatch(const Clocks& at, const Contact& from, uint64_t id, const WatchRequest& watch,
               Actions& out);
  void OnReply(const Clocks& at, const Contact& from, const Message& message, Actions& out);
  void OnSlowRequest(const Clocks& at, const Request& request, Actions& out);
  void OnFailedRequest(const Clocks& at, const Request& request, Actions& out);
  void PingIfWanted(Time now, const Contact& contact, Actions& out);
  void ProbeSeeds(Time now, Actions& out);

  // Peers coming and going.
  void OnContactAdded(const Clocks& at, const Contact& contact, Actions& out);
  void OnContactLost(const Clocks& at, const PeerId& id, Actions& out);
  void Republish(const Clocks& at, Actions& out);
  void HandOver(const Clocks& at, const Contact& newcomer, Actions& out);

  // Holding (node_messages.cc) and publishing (node_publish.cc).
  bool Genuine(WallTime wall, const Record& record);
  enum class Taken : uint8_t { kRefused, kHad, kNew };  // the latter two: this node holds it now
  Taken TakeRecord(const Clocks& at, const RecordPtr& record, const PeerId& source);
  void TellWatchers(const Clocks& at, const std::vector<RecordPtr>& changed, const PeerId& source,
                    Actions& out);
  enum class Placed : uint8_t { kSent, kStored, kFailed };
  struct OwnRecord {
    RecordPtr record;
    Time until;  // its end
    std::map<PeerId, Placed> placed;
    bool reported = false;
  };
  PutResult AdmitOwn(const Key& key, size_t bytes, Duration life) const;
  void WriteOwn(const Clocks& at, const Key& key, Bytes value, Time until, Actions& out);
  void SyncOwn(const Clocks& at, const Key& key, Actions& out);
  void SendOwn(Time now, const Contact& to, OwnRecord& own, int attempt, Actions& out);
  // `placed`: kStored or kFailed.
  void OnOwnStored(const PeerId& holder, const OwnStore& store, Placed placed, Actions& out);
  void ReportIfPlaced(const Key& key, Actions& out);

  // Watching (node_watch.cc).
  enum class Asked : uint8_t { kWaiting, kSlow, kActive, kNo };
  struct Holder {
    Asked state = Asked::kWaiting;
    Time renew;  // active: when to renew; no: when to try again
  };
  struct WatchState {
    std::map<PeerId, Holder> holders;
    std::map<PeerId, RecordPtr> seen;  // the newest reported of each subkey
    bool synced = false;
  };
  void SyncWatch(const Clocks& at, const Key& key, Actions& out);
  void SyncWatches(const Clocks& at, Actions& out);  // all of them
  void AskToWatch(const Clocks& at, const Key& key, const Contact& holder, WatchState& watch,
                  Actions& out);
  void RenewWatches(const Clocks& at, Actions& out);
  void OnWatchReply(const Clocks& at, const Contact& from, const Key& key, const WatchReply& reply,
                    Actions& out);
  void OnPush(const Clocks& at, const Contact& from, const WatchPush& push, Actions& out);
  enum class Trust : uint8_t { kVerified, kUnverified };  // was their signature looked at before?
  // Reports what is news among `records` of one watched key.
  void Deliver(WallTime wall, const Key& key, const std::vector<RecordPtr>& records, Trust trust,
               Actions& out);
  bool NowSynced(const Key& key, const WatchState& watch) const;

  void SyncFollowed(const Clocks& at, Actions& out);
  void LookUpHolders(const Clocks& at, Actions& out);
  void PingSuspects(Time now, Actions& out);
  void Upkeep(const Clocks& at, Actions& out);
  void WakeBy(Time t) { upkeep_at_ = std::min(upkeep_at_, t); }
  // No peer is known, but a seed may yet answer: searching now would find nothing for no reason.
  bool Hopeful() const { return table_.size() == 0 && seeds_.AwaitingFirstAnswers(); }

  const Self self_;
  const NodeConfig config_;
  const RecordAuthority* const authority_;
  NodeMetrics* const metrics_;
  Rng rng_;
  PeerClocks clocks_;
  WallTime own_wall_;    // this machine's clock at the input that is worked off
  Duration written_by_;  // the offset by which own records are written
  Time write_again_ = Time::Infinite();
  Time written_again_;
  RoutingTable table_;
  Requests requests_;
  Seeds seeds_;
  Store store_;
  Subscriptions subscriptions_;
  SourceLimiter limiter_;
  ReplicaTracker replicas_;

  std::map<uint64_t, RunningLookup> lookups_;
  std::deque<WaitingLookup> waiting_;
  uint64_t next_lookup_ = 1;
  uint64_t next_get_ = 1;
  uint64_t sequence_ = 0;  // of own records: grows over all keys
  std::map<Key, OwnRecord> own_;
  std::map<Key, WatchState> watches_;

  std::map<PeerId, Time> suspects_;  // contacts that failed to answer -> when to ping them

  Time upkeep_at_ = Time::Infinite();
  Time refresh_at_ = Time::Infinite();
  Time sweep_at_ = Time::Infinite();
  Duration refresh_interval_;
  size_t added_since_refresh_ = 0;
  bool joined_ = false;   // the far buckets were filled once
  bool pumping_ = false;  // PumpWaiting is running: lookups that end at once must not nest
};

}  // namespace crowdsurf::dht
