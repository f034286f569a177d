#include "simulator/engine/roster_board.h"

namespace crowdsurf::simulator {
namespace {

// A watch is renewed, and what was missed comes with it.
constexpr Duration kRefresh = Seconds(2);
// Until a peer has answered, when its record is read from holders: it is asked as well.
constexpr Duration kAnswer = Milliseconds(2);

}  // namespace

void RosterBoard::Put(int node, const PeerId& owner, const worker::PutRecord& record) {
  const RecordKey key{record.key, owner};
  dht::Record& held = (records_[key] = {node, {}}).record;
  held.value = record.value;
  held.written = clocks_.JobTime(node);
  held.expiry = held.written + record.ttl;
  for (const int watcher : watchers_[record.key])
    if (watcher != node && !rng_.Bernoulli(loss_)) Push(watcher, key);
}

void RosterBoard::Push(int node, const RecordKey& key) {
  const auto& record = records_.at(key);
  if (!Sees(node, record.from)) return;
  network_.Send(record.from, node, Plane::kRecords, [this, node, key, sent = queue_.now()] {
    const auto at = records_.find(key);
    if (at == records_.end() || Ended(at->second)) return;
    if (!Sees(node, at->second.from)) return;
    clocks_.Hear(node, at->second.from, (queue_.now() - sent) * 2.0);
    std::vector<worker::PeerRecord> records;
    Read(node, key, at->second, records);
    if (!records.empty()) deliver_(node, records);
  });
}

void RosterBoard::Read(int node, const RecordKey& key, const Record& record,
                       std::vector<worker::PeerRecord>& out) const {
  const Duration left = dht::LifeLeft(record.record, clocks_.JobTime(node));
  if (left <= Duration()) return;
  out.push_back({key.first, key.second, record.record.value, left});
}

void RosterBoard::Watch(int node, const std::string& key) {
  if (watchers_[key].insert(node).second) Ask(node, key);
}

// A lost request is sent again, as a DHT does.
void RosterBoard::Ask(int node, const std::string& key) {
  if (!watchers_[key].contains(node) || answered_.contains({node, key})) return;
  // A frame to itself: delayed and lost as the links do it.
  network_.Send(node, node, Plane::kRecords, [this, node, key] {
    if (!watchers_[key].contains(node) || !answered_.insert({node, key}).second) return;
    deliver_(node, Collect(node, key));  // also an empty list: it is the answer
    RefreshLater(node, key);
  });
  queue_.After(kRefresh, [this, node, key] { Ask(node, key); });
}

void RosterBoard::RefreshLater(int node, const std::string& key) {
  queue_.After(kRefresh, [this, node, key] { Refresh(node, key); });
}

void RosterBoard::Refresh(int node, const std::string& key) {
  if (!watchers_[key].contains(node)) return;
  const std::vector<worker::PeerRecord> records = Collect(node, key);
  // The watch was answered before, so an empty list is no news.
  if (!records.empty()) deliver_(node, records);
  RefreshLater(node, key);
}

std::vector<worker::PeerRecord> RosterBoard::Collect(int node, const std::string& key) {
  std::vector<const std::pair<const RecordKey, Record>*> seen;
  for (auto at = records_.lower_bound({key, PeerId()});
       at != records_.end() && at->first.first == key;) {
    // Expired records go when somebody looks.
    if (Ended(at->second)) {
      at = records_.erase(at);
      continue;
    }
    if (at->second.from != node && Sees(node, at->second.from) && !rng_.Bernoulli(loss_))
      seen.push_back(&*at);
    ++at;
  }
  // Clocks first: the records are read by them.
  for (const auto* each : seen) clocks_.Hear(node, each->second.from, kAnswer);
  std::vector<worker::PeerRecord> records;
  for (const auto* each : seen) Read(node, each->first, each->second, records);
  return records;
}

void RosterBoard::Unwatch(int node, const std::string& key) {
  watchers_[key].erase(node);
  answered_.erase({node, key});
}

void RosterBoard::Gone(int node) {
  for (auto& [key, nodes] : watchers_) nodes.erase(node);
}

void RosterBoard::Hide(int node, int owner) { hidden_.insert({node, owner}); }

void RosterBoard::Show(int node, int owner) { hidden_.erase({node, owner}); }

}  // namespace crowdsurf::simulator
