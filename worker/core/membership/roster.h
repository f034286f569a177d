// Roster: who is alive, as the DHT's records say, and how to reach them.
//
// Owner: Peer, single sequence. Each agent keeps one signed record that expires after three
// heartbeats; a record that is gone is the slow proof of death (connections are the fast one). It
// also introduces peers to the host, from records and from messages alike. Of one public key the
// record of the highest boot counts. Bounds: kMaxMembers records, kMaxShards keys. Source:
// docs/views.md, Roster. Heartbeat 1 s up to 100 members, N/100 s above, at most 30 s; above 100
// members the records are spread over several keys, and the witnesses' stay under the first one
// too, so that a newcomer needs only that.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/contact.h"
#include "worker/core/port/inputs.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

struct PeerConfig;
struct PeerMetrics;

struct RosterRecord {
  Contact contact;
  std::string http_endpoint;
  std::string zone;
  Member member;       // seniority and capacity; its cell when seated
  bool ready = false;  // it has a trainer
  bool seated = false;
  bool leaving = false;
  ViewHash view;  // none: in no view
  uint64_t epoch = 0;
  LineageRank lineage;
  uint64_t step = 0;
  AveragingId due = {};    // the averaging it is due for; 0: none
  AveragingId holds = {};  // average that the trainer's parameters come from
  Committed committed;
  bool operator==(const RosterRecord&) const = default;
};

Bytes Encode(const RosterRecord& record);
std::optional<RosterRecord> DecodeRosterRecord(const PeerId& owner, ByteView bytes);

class Roster {
 public:
  static constexpr size_t kMaxShards = 2048;

  Roster(const PeerConfig& config, PeerMetrics& metrics) : config_(config), metrics_(metrics) {}

  void Start(Actions& out);
  // Keeps the own record up: put at once when it says something new, else every heartbeat.
  struct Place {
    size_t members = 0;    // of the view
    bool witness = false;  // this peer
  };
  void Keep(Time now, const RosterRecord& own, const Place& place, Actions& out);
  struct News {
    std::vector<PeerId> changed;   // owners whose record is new or says something new
    std::vector<PeerId> replaced;  // their key has a record of a higher boot: they are dead
  };
  // Records of watched keys. whole: those who hold them have all answered.
  News OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out, bool whole = true);
  // Records that expired since the last call.
  std::vector<PeerId> TakeExpired(Time now);
  // A peer's contact came in a message.
  void Learn(const Contact& contact, Actions& out);
  std::vector<Contact> ContactsOf(const std::vector<PeerId>& peers) const;
  std::string WorkerOf(const PeerId& peer) const;

  // What it has are the records of the job, and not only those that came first.
  bool answered(Time now) const {
    return whole_ || (!heard_at_.unset() && now >= heard_at_ + kWholePatience);
  }
  // When it is answered at the latest; Infinite: while no record has come.
  Time AnsweredBy() const {
    return heard_at_.unset() ? Time::Infinite() : heard_at_ + kWholePatience;
  }
  const std::map<PeerId, RosterRecord>& live() const { return records_; }
  const RosterRecord* Find(const PeerId& peer) const;
  Duration Ttl() const { return Heartbeat() * 3.0; }
  Time NextDeadline() const;

 private:
  Duration Heartbeat() const;
  size_t Shards() const;
  std::string Key(size_t shard) const;
  size_t ShardOf(const PeerId& peer) const;
  void WatchAll(Actions& out);
  struct Owner {
    PeerId id;
    uint64_t boot = 0;
  };
  bool TakeBoot(const PeerRecord& record, News& news);
  void Drop(const PeerId& peer);

  const PeerConfig& config_;
  PeerMetrics& metrics_;
  // A holder that neither answers nor refuses is given up after two seconds.
  static constexpr Duration kWholePatience = Seconds(3);
  bool whole_ = false;
  Time heard_at_;  // of the first record
  size_t members_ = 0;
  size_t watched_ = 0;  // shards
  RosterRecord own_;
  Time last_put_;
  bool pending_ = false;                    // news that came too soon after the last put
  std::map<PeerId, RosterRecord> records_;  // without the own one
  std::map<PeerId, Time> expires_;
  std::map<dht::PublicKey, Owner> owners_;       // of records_, where the key is known
  std::map<PeerId, dht::PublicKey> owner_keys_;  // the same, the other way round
  std::map<PeerId, Contact> contacts_;           // also of peers without a record
};

}  // namespace crowdsurf::worker
