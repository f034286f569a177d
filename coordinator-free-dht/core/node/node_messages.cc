// Node: requests, replies and holding of records for others.
#include <utility>

#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"
#include "coordinator-free-dht/core/wire/codec.h"

namespace crowdsurf::dht {
namespace {

// In tokens of the sender's bucket.
double CostOf(const Message& message) {
  size_t records = 0;
  if (const auto* store = std::get_if<StoreRequest>(&message.body)) records = store->records.size();
  if (const auto* push = std::get_if<WatchPush>(&message.body)) records = push->records.size();
  // Each record may cost a signature's verification, which is most of the work.
  return 1 + static_cast<double>(records);
}

}  // namespace

bool Node::SendRequest(Time now, const Contact& to, Purpose purpose, decltype(Message::body) body,
                       Actions& out) {
  const Duration slow = table_.SlowAfter(to.id);
  const Duration fail = std::max(slow * config_.fail_factor, config_.min_fail);
  const auto id = requests_.Add(now, to, purpose, slow, fail);
  if (!id) {
    metrics_->requests_shed.Add();
    return false;
  }
  metrics_->requests.Add();
  out.push_back(Send{to, Message{*id, std::move(body)}});
  return true;
}

void Node::Reply(const Contact& to, uint64_t id, decltype(Message::body) body, Actions& out) {
  out.push_back(Send{to, Message{id, std::move(body), {own_wall_, self_.public_key, self_.boot}}});
}

void Node::OnMessage(const Clocks& raw, const Contact& from, const Message& message, Actions& out) {
  const Clocks at = Enter(raw);
  // Without an id or an address there is nobody to answer; our own id is a seed that is ourselves.
  if (from.id.none() || from.id == self_.contact.id || from.endpoint.empty()) {
    metrics_->messages_invalid.Add();
    return;
  }
  if (IsReply(message)) {
    OnReply(raw, from, message, out);
  } else {
    OnRequest(at, from, message, out);
  }
  // A reply may have moved the job's time.
  if (upkeep_at_ <= at.now) Upkeep(clocks_.JobTime(raw), out);
}

void Node::OnRequest(const Clocks& at, const Contact& from, const Message& message, Actions& out) {
  // Before anything is looked at: over its limit a sender costs this check and no more.
  if (!limiter_.Take(at.now, from.id, CostOf(message))) {
    metrics_->requests_limited.Add();
    return;
  }
  const bool wanted = table_.OnRequest(at.now, from);
  if (const auto* find = std::get_if<FindRequest>(&message.body)) {
    OnFind(at.wall, from, message.id, *find, out);
  } else if (const auto* store = std::get_if<StoreRequest>(&message.body)) {
    OnStore(at, from, message.id, *store, out);
  } else if (const auto* watch = std::get_if<WatchRequest>(&message.body)) {
    OnWatch(at, from, message.id, *watch, out);
  } else if (const auto* push = std::get_if<WatchPush>(&message.body)) {
    OnPush(at, from, *push, out);
  }
  // Only peers that answer enter the table: ask a new one, after it has its own answer.
  if (wanted) PingIfWanted(at.now, from, out);
}

void Node::PingIfWanted(Time now, const Contact& contact, Actions& out) {
  // One sender under many ids must not make this node ask all of them at once.
  if (requests_.pings() >= config_.pings_in_flight || requests_.Pinging(contact.id)) return;
  SendRequest(now, contact, Ping{}, FindRequest{PointOf(self_.contact.id), false}, out);
}

void Node::OnFind(WallTime wall, const Contact& from, uint64_t id, const FindRequest& find,
                  Actions& out) {
  FindReply reply;
  // One more than is told, for the asker may be among them.
  for (Contact& contact : table_.Nearest(find.target, config_.k + 1)) {
    // The asker knows itself.
    if (contact.id != from.id && reply.contacts.size() < std::min(config_.k, kMaxContacts)) {
      reply.contacts.push_back(std::move(contact));
    }
  }
  if (find.values) reply.records = store_.Find(wall, find.target);
  Reply(from, id, std::move(reply), out);
}

bool Node::Genuine(WallTime wall, const Record& record) {
  if (record.subkey == PeerIdOf(record.public_key, record.boot)) {
    // One that we hold or reported was verified when it came, be it as a store or as a push that
    // was quicker; verifying costs more than all else together.
    for (const RecordPtr& held : store_.Find(wall, record.key)) {
      if (held->subkey == record.subkey && *held == record) return true;
    }
    if (const auto watch = watches_.find(record.key); watch != watches_.end()) {
      const auto seen = watch->second.seen.find(record.subkey);
      if (seen != watch->second.seen.end() && *seen->second == record) return true;
    }
    if (authority_->Verify(record.public_key, SignedBytes(record), record.signature)) return true;
  }
  metrics_->records_forged.Add();
  return false;
}

Node::Taken Node::TakeRecord(const Clocks& at, const RecordPtr& record, const PeerId& source) {
  StoreResult result = store_.Admit(at.wall, *record, source);
  if (result == StoreResult::kStored && source != self_.contact.id && !Genuine(at.wall, *record)) {
    // Known only now: the request itself was charged as an honest one.
    limiter_.Fine(at.now, source, config_.forged_cost);
    return Taken::kRefused;
  }
  result = store_.Put(at.now, at.wall, record, source);
  metrics_->store_results[static_cast<size_t>(result)]->Add();
  if (result == StoreResult::kHad) return Taken::kHad;
  if (result != StoreResult::kStored) return Taken::kRefused;
  if (sweep_at_.infinite()) {
    sweep_at_ = at.now + config_.sweep;
    WakeBy(sweep_at_);
  }
  return Taken::kNew;
}

void Node::OnStore(const Clocks& at, const Contact& from, uint64_t id, const StoreRequest& store,
                   Actions& out) {
  StoreReply reply;
  std::vector<RecordPtr> news;
  for (const RecordPtr& record : store.records) {
    const Taken taken = TakeRecord(at, record, from.id);
    ++(taken == Taken::kRefused ? reply.refused : reply.stored);
    if (taken == Taken::kNew) news.push_back(record);
  }
  // Watchers first: they are what the writer is waiting for.
  TellWatchers(at, news, from.id, out);
  Reply(from, id, reply, out);
}

void Node::TellWatchers(const Clocks& at, const std::vector<RecordPtr>& changed,
                        const PeerId& source, Actions& out) {
  std::map<Key, std::vector<RecordPtr>> by_key;
  for (const RecordPtr& record : changed) by_key[record->key].push_back(record);
  for (const auto& [key, records] : by_key) {
    // Who holds the key as well has it from its writer. One push more, the nearest holder's, is for
    // a store that was lost; a third and fourth would be most of what a small job's peers say.
    const std::vector<Contact> holders = table_.Nearest(key, config_.k - 1);  // and we
    const bool nearest = holders.empty() || !Closer(key, holders.front().id, self_.contact.id);
    // Of more peers than hold a key a writer does not know all: it finds a new holder with its next
    // lookup only, at most 1.25 holders_refresh later, and the new one may be the nearest itself.
    const bool all_known = holders.size() + 1 < config_.k;
    const Duration late = config_.holders_refresh * 1.5;
    for (const auto& [watcher, since] : subscriptions_.Watchers(at.now, key)) {
      // It brought the change.
      if (watcher.id == source) continue;
      const bool known = all_known || at.now - since > late;
      const bool holds =
          std::any_of(holders.begin(), holders.end(),
                      [id = watcher.id](const Contact& holder) { return holder.id == id; });
      if (holds && known && !nearest) continue;
      metrics_->pushes.Add();
      out.push_back(Send{watcher, Message{0, WatchPush{records}}});
    }
    Deliver(at.wall, key, records, Trust::kVerified, out);
  }
}

void Node::OnWatch(const Clocks& at, const Contact& from, uint64_t id, const WatchRequest& watch,
                   Actions& out) {
  WatchReply reply;
  if (watch.life == Duration()) {
    subscriptions_.Remove(watch.key, from.id);
    reply.accepted = true;
  } else {
    reply.accepted = subscriptions_.Add(at.now, watch.key, from, watch.life);
    std::map<PeerId, uint64_t> have;
    for (const Have& item : watch.have) have[item.subkey] = item.sequence;
    for (RecordPtr& record : store_.Find(at.wall, watch.key)) {
      const auto known = have.find(record->subkey);
      // Only records that the watcher lacks or has older: a renewal so repairs lost pushes.
      if (known == have.end() || known->second < record->sequence) {
        reply.records.push_back(std::move(record));
      }
    }
    if (sweep_at_.infinite()) {
      sweep_at_ = at.now + config_.sweep;
      WakeBy(sweep_at_);
    }
  }
  Reply(from, id, std::move(reply), out);
}

void Node::OnReply(const Clocks& raw, const Contact& from, const Message& message, Actions& out) {
  const auto request = requests_.Take(message.id, from.id);
  if (!request) {
    // It came too late, or its sender was never asked: an answer that nobody asked for proves
    // nothing.
    metrics_->replies_unmatched.Add();
    return;
  }
  // First, since the records of the reply are read by it. The transport has proved the id, and the
  // id the key.
  if (from.id == PeerIdOf(message.clock.public_key, message.clock.boot)) {
    Sample(raw, message.clock.public_key, message.clock.wall, raw.now - request->sent);
  } else {
    metrics_->clock_samples[static_cast<size_t>(ClockSample::kUnproved)]->Add();
  }
  const Clocks at = clocks_.JobTime(raw);
  const RoutingTable::Heard heard = table_.OnReply(at.now, from, at.now - request->sent);
  if (heard.ping) PingIfWanted(at.now, *heard.ping, out);
  if (heard.added) OnContactAdded(at, from, out);
  if (const auto* probe = std::get_if<SeedProbe>(&request->purpose)) {
    (void)probe;
    seeds_.OnAnswer(at.now, request->to.endpoint);
    SyncWatches(at, out);
    const auto* found = std::get_if<FindReply>(&message.body);
    if (found == nullptr) return;
    // Through the seed alone: if it belongs to another part of a split network, peers near us there
    // would be hidden behind our own nearest ones.
    const bool news =
        heard.added ||
        std::any_of(found->contacts.begin(), found->contacts.end(), [&](const Contact& contact) {
          return contact.id != self_.contact.id && !table_.Contains(contact.id);
        });
    if (heard.added) OnCompany(at.now);
    if (news) RunLookup(at, PointOf(self_.contact.id), ForTable{true}, found->contacts, out);
    return;
  }
  suspects_.erase(from.id);
  // A late answer comes too late for a lookup, but what it says of a record or a watch is true.
  if (const auto* query = std::get_if<LookupQuery>(&request->purpose)) {
    if (request->failed) return;
    const auto* found = std::get_if<FindReply>(&message.body);
    OnQueryReply(at, query->lookup, from.id, found != nullptr ? *found : FindReply{}, out);
  } else if (const auto* store = std::get_if<OwnStore>(&request->purpose)) {
    const auto* answer = std::get_if<StoreReply>(&message.body);
    const bool stored = answer != nullptr && answer->stored > 0;
    OnOwnStored(from.id, *store, stored ? Placed::kStored : Placed::kFailed, out);
  } else if (const auto* ask = std::get_if<WatchAsk>(&request->purpose)) {
    const auto* answer = std::get_if<WatchReply>(&message.body);
    OnWatchReply(at, from, ask->key, answer != nullptr ? *answer : WatchReply{}, out);
  }
}

void Node::OnSlowRequest(const Clocks& at, const Request& request, Actions& out) {
  // A seed has no estimate to be slow by, and no other seed waits for it to be.
  if (std::holds_alternative<SeedProbe>(request.purpose)) return;
  metrics_->requests_slow.Add();
  if (const auto* query = std::get_if<LookupQuery>(&request.purpose)) {
    const auto running = lookups_.find(query->lookup);
    if (running == lookups_.end()) return;
    running->second.lookup.OnSlow(request.to.id);
    Advance(at, query->lookup, out);
  } else if (const auto* ask = std::get_if<WatchAsk>(&request.purpose)) {
    const auto watch = watches_.find(ask->key);
    if (watch == watches_.end()) return;
    const auto holder = watch->second.holders.find(request.to.id);
    if (holder == watch->second.holders.end() || holder->second.state != Asked::kWaiting) return;
    holder->second.state = Asked::kSlow;
    SyncWatch(at, ask->key, out);
  }
}

void Node::OnFailedRequest(const Clocks& at, const Request& request, Actions& out) {
  metrics_->requests_failed.Add();
  if (std::holds_alternative<SeedProbe>(request.purpose)) {
    seeds_.OnFailure(at.now, request.to.endpoint);
    SyncWatches(at, out);
    PumpWaiting(at, out);
    return;
  }
  const PeerId id = request.to.id;
  // First, so that no search below picks it again.
  if (table_.OnFailure(id)) OnContactLost(at, id, out);
  if (!table_.Contains(id)) {
    // Never a contact, or not any more: a search found it, and another may find it again.
    replicas_.Remove(id);
  } else {
    const Time again = at.now + config_.suspect_again;
    suspects_.try_emplace(id, again);
    WakeBy(again);
  }
  if (const auto* query = std::get_if<LookupQuery>(&request.purpose)) {
    const auto running = lookups_.find(query->lookup);
    if (running == lookups_.end()) return;
    running->second.lookup.OnFailure(id);
    Advance(at, query->lookup, out);
  } else if (const auto* store = std::get_if<OwnStore>(&request.purpose)) {
    const auto own = own_.find(store->key);
    // A newer value has gone out meanwhile; nobody waits for the old one.
    if (own == own_.end() || own->second.record->sequence != store->sequence) return;
    // Once more at a peer that may live: one message may be lost, a second one hardly.
    if (store->attempt == 1 && table_.Contains(id)) {
      SendOwn(at.now, request.to, own->second, 2, out);
    } else {
      OnOwnStored(id, *store, Placed::kFailed, out);
    }
  } else if (const auto* ask = std::get_if<WatchAsk>(&request.purpose)) {
    OnWatchReply(at, request.to, ask->key, WatchReply{}, out);
  }
}

}  // namespace crowdsurf::dht
