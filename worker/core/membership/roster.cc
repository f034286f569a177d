#include "worker/core/membership/roster.h"

#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"

#include <algorithm>

namespace crowdsurf::worker {
namespace {

constexpr uint8_t kRecordFormat = 1;
constexpr size_t kPerShard = 100;  // members under one key
constexpr size_t kMaxZone = 128;
// A change is published at once, but not more often than this: changes come in bursts.
constexpr Duration kMinGap = Milliseconds(10);
constexpr size_t kMaxContactsKept = 2 * kMaxMembers;

}  // namespace

Bytes Encode(const RosterRecord& record) {
  ByteWriter out;
  out.U8(kRecordFormat);
  Encode(record.contact, out);
  out.String(record.http_endpoint);
  out.String(record.zone);
  out.U32(record.member.cell);
  out.I64(record.member.joined_unix_ms);
  out.Bool(record.member.on_demand);
  out.U32(record.member.bandwidth_class);
  out.Bool(record.ready);
  out.Bool(record.seated);
  out.Bool(record.leaving);
  out.Raw(record.view.view());
  out.U64(record.epoch);
  out.U64(record.lineage.members);
  out.Raw(record.lineage.origin.view());
  out.U64(record.step);
  out.U64(record.due.value());
  out.U64(record.holds.value());
  Encode(record.committed, out);
  return out.Take();
}

std::optional<RosterRecord> DecodeRosterRecord(const PeerId& owner, ByteView bytes) {
  ByteReader in(bytes);
  RosterRecord record;
  if (in.U8() != kRecordFormat) in.Fail();
  record.contact = DecodeContact(in);
  record.http_endpoint = in.String(kMaxEndpoint);
  record.zone = in.String(kMaxZone);
  record.member.id = owner;
  record.member.cell = in.U32();
  record.member.joined_unix_ms = in.I64();
  record.member.on_demand = in.Bool();
  record.member.bandwidth_class = in.U32();
  record.ready = in.Bool();
  record.seated = in.Bool();
  record.leaving = in.Bool();
  record.view = ReadId<ViewHash>(in);
  record.epoch = in.U64();
  record.lineage.members = in.U64();
  record.lineage.origin = ReadId<ViewHash>(in);
  record.step = in.U64();
  record.due = AveragingId(in.U64());
  record.holds = AveragingId(in.U64());
  record.committed = DecodeCommitted(in);
  if (!in.Done() || record.contact.id != owner) return std::nullopt;
  if (record.epoch > kMaxNumber || record.due.value() > kMaxNumber ||
      record.holds.value() > kMaxNumber || record.lineage.members > kMaxMembers)
    return std::nullopt;
  return record;
}

Duration Roster::Heartbeat() const {
  // N / 100 heartbeats above 100 members, 30 at most (docs/views.md).
  const double stretch = std::clamp(static_cast<double>(members_) / 100.0, 1.0, 30.0);
  return config_.heartbeat * stretch;
}

size_t Roster::Shards() const {
  size_t shards = 1;
  while (shards * kPerShard < members_ && shards < kMaxShards) shards *= 2;
  return shards;
}

std::string Roster::Key(size_t shard) const {
  return "crowdsurf/" + config_.job + "/roster/" + std::to_string(shard);
}

size_t Roster::ShardOf(const PeerId& peer) const {
  // Ids are hashes, so two bytes of them spread evenly.
  return (size_t{peer.bytes()[0]} << 8 | peer.bytes()[1]) % Shards();
}

void Roster::Start(Actions& out) { WatchAll(out); }

void Roster::WatchAll(Actions& out) {
  for (; watched_ < Shards(); ++watched_) out.push_back(WatchKey{Key(watched_)});
  for (; watched_ > Shards(); --watched_) out.push_back(UnwatchKey{Key(watched_ - 1)});
}

void Roster::Keep(Time now, const RosterRecord& own, const Place& place, Actions& out) {
  members_ = place.members;
  WatchAll(out);
  // Steps are for screens: they alone are no news. Due is news only where messages do not reach
  // all.
  own_.step = own.step;
  const AveragingId due = own_.due;
  if (place.members <= 64) own_.due = own.due;
  const bool news = !(own == own_);
  own_.due = due;
  const Duration gap = news ? kMinGap : Heartbeat();
  if (!last_put_.unset() && now - last_put_ < gap) {
    pending_ = news;
    return;
  }
  pending_ = false;
  own_ = own;
  last_put_ = now;
  const Bytes value = Encode(own);
  out.push_back(PutRecord{Key(ShardOf(config_.id)), value, Ttl()});
  if (place.witness && ShardOf(config_.id) != 0) out.push_back(PutRecord{Key(0), value, Ttl()});
}

// False: its key has a record of a higher boot. One of a lower boot goes.
bool Roster::TakeBoot(const PeerRecord& record, News& news) {
  if (record.key_of_owner == dht::PublicKey{}) return true;
  const auto known = owners_.find(record.key_of_owner);
  if (known != owners_.end() && known->second.boot > record.boot) return false;
  if (known != owners_.end() && known->second.id != record.owner) {
    const PeerId old = known->second.id;
    Drop(old);
    expires_.erase(old);
    news.replaced.push_back(old);
  }
  owners_[record.key_of_owner] = {.id = record.owner, .boot = record.boot};
  owner_keys_[record.owner] = record.key_of_owner;
  return true;
}

void Roster::Drop(const PeerId& peer) {
  records_.erase(peer);
  const auto key = owner_keys_.find(peer);
  if (key == owner_keys_.end()) return;
  owners_.erase(key->second);
  owner_keys_.erase(key);
}

Roster::News Roster::OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out,
                               bool whole) {
  whole_ |= whole;
  if (heard_at_.unset()) heard_at_ = now;
  News news;
  for (const PeerRecord& each : records) {
    if (each.owner == config_.id) continue;
    auto record = DecodeRosterRecord(each.owner, each.value);
    if (!record) {
      metrics_.RefuseMessage(MessageRefusal::kRosterRecord);
      continue;
    }
    if (records_.size() >= kMaxMembers && !records_.contains(each.owner)) {
      metrics_.RefuseMessage(MessageRefusal::kRosterFull);
      continue;
    }
    if (!TakeBoot(each, news)) {
      metrics_.RefuseMessage(MessageRefusal::kRosterOldBoot);
      continue;
    }
    Learn(record->contact, out);
    const auto at = records_.find(each.owner);
    if (at == records_.end() || !(at->second == *record)) news.changed.push_back(each.owner);
    records_[each.owner] = std::move(*record);
    expires_[each.owner] = now + each.ttl;
  }
  return news;
}

std::vector<PeerId> Roster::TakeExpired(Time now) {
  std::vector<PeerId> expired;
  for (auto at = expires_.begin(); at != expires_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    expired.push_back(at->first);
    Drop(at->first);
    at = expires_.erase(at);
  }
  return expired;
}

void Roster::Learn(const Contact& contact, Actions& out) {
  if (contact.id == config_.id || contact.peer_endpoint.empty()) return;
  Contact& known = contacts_[contact.id];
  if (known == contact) return;
  known = contact;
  if (contacts_.size() > kMaxContactsKept) {
    const auto stale = std::find_if(contacts_.begin(), contacts_.end(), [&](const auto& entry) {
      return entry.first != contact.id && !records_.contains(entry.first);
    });
    if (stale != contacts_.end()) contacts_.erase(stale);
  }
  out.push_back(Introduce{contact.id, contact.peer_endpoint, contact.tensor_endpoint});
}

std::vector<Contact> Roster::ContactsOf(const std::vector<PeerId>& peers) const {
  std::vector<Contact> contacts;
  for (const PeerId& peer : peers) {
    if (contacts.size() == kMaxContacts) break;
    if (peer == config_.id)
      contacts.push_back(
          {config_.id, config_.worker, config_.peer_endpoint, config_.tensor_endpoint});
    else if (const auto at = contacts_.find(peer); at != contacts_.end())
      contacts.push_back(at->second);
  }
  return contacts;
}

std::string Roster::WorkerOf(const PeerId& peer) const {
  if (peer == config_.id) return config_.worker;
  const auto at = contacts_.find(peer);
  return at == contacts_.end() ? std::string() : at->second.worker;
}

const RosterRecord* Roster::Find(const PeerId& peer) const {
  const auto at = records_.find(peer);
  return at == records_.end() ? nullptr : &at->second;
}

Time Roster::NextDeadline() const {
  if (last_put_.unset()) return Time::Infinite();
  Time next = last_put_ + (pending_ ? kMinGap : Heartbeat());
  for (const auto& [peer, when] : expires_) next = std::min(next, when);
  return next;
}

}  // namespace crowdsurf::worker
