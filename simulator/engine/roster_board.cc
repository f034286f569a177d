#include "simulator/engine/roster_board.h"

namespace crowdsurf::simulator {
namespace {

// A watch is renewed, and what was missed comes with it.
constexpr Duration kRefresh = Seconds(2);

}  // namespace

void RosterBoard::Put(int node, const PeerId& owner, const worker::PutRecord& record) {
  const RecordKey key{record.key, owner};
  records_[key] = {node, record.value, queue_.now() + record.ttl};
  for (const int watcher : watchers_[record.key])
    if (watcher != node && !rng_.Bernoulli(loss_)) Push(watcher, key);
}

void RosterBoard::Push(int node, const RecordKey& key) {
  const auto& record = records_.at(key);
  if (!Sees(node, record.from)) return;
  network_.Send(record.from, node, Plane::kRecords, [this, node, key] {
    const auto at = records_.find(key);
    if (at == records_.end() || at->second.expires <= queue_.now()) return;
    if (!Sees(node, at->second.from)) return;
    deliver_(node, {{key.first, key.second, at->second.value, at->second.expires - queue_.now()}});
  });
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
  std::vector<worker::PeerRecord> records;
  for (auto at = records_.lower_bound({key, PeerId()});
       at != records_.end() && at->first.first == key;) {
    // Expired records go when somebody looks.
    if (at->second.expires <= queue_.now()) {
      at = records_.erase(at);
      continue;
    }
    if (at->second.from != node && Sees(node, at->second.from) && !rng_.Bernoulli(loss_))
      records.push_back(
          {key, at->first.second, at->second.value, at->second.expires - queue_.now()});
    ++at;
  }
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
