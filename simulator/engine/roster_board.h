// RosterBoard: the DHT as agents see it: signed records under watched keys, that arrive late, or
// not, and expire.
//
// Stands for the real DHT where hundreds of thousands of runs are wanted. A record put by one node
// reaches each watcher on its own, through the links (cuts and partitions hold for it too), with a
// loss of its own; what was missed comes with the owner's next heartbeat or the watcher's refresh,
// as holders do it. Readers count a record's life by their own clocks, and so do owners, and the
// board for them. Owner: one world; single sequence. Bound: one record a (key, owner).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "coordinator-free-dht/core/wire/record.h"
#include "simulator/engine/event_queue.h"
#include "simulator/engine/network.h"
#include "simulator/engine/node_clocks.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"

namespace crowdsurf::simulator {

class RosterBoard {
 public:
  using Deliver = std::function<void(int node, const std::vector<worker::PeerRecord>& records)>;

  RosterBoard(EventQueue& queue, Network& network, Rng rng, double loss, Deliver deliver)
      : queue_(queue),
        network_(network),
        rng_(rng),
        loss_(loss),
        deliver_(std::move(deliver)),
        clocks_(queue) {}

  void Put(int node, const PeerId& owner, const worker::PutRecord& record);
  // The watcher gets what is there (an empty list when there is nothing), then every change.
  void Watch(int node, const std::string& key);
  void Unwatch(int node, const std::string& key);
  void Gone(int node);  // a dead watcher
  void Heal() { loss_ = 0; }
  // `node` does not see records of `owner` (a double steward in the making).
  void Hide(int node, int owner);
  void Show(int node, int owner);  // sees them again
  NodeClocks& clocks() { return clocks_; }

 private:
  struct Record {
    int from = 0;
    dht::Record record;  // its value and times
  };
  using RecordKey = std::pair<std::string, PeerId>;
  // Its owner has not renewed it in time. By the owner's clock: one that is behind writes records
  // that look old, and who reads them hears of that clock.
  bool Ended(const Record& record) const {
    return record.record.expiry <= clocks_.JobTime(record.from);
  }
  bool Sees(int node, int owner) const {
    return network_.Reaches(owner, node) && !hidden_.contains({node, owner});
  }
  void Push(int node, const RecordKey& key);
  void Ask(int node, const std::string& key);
  void Refresh(int node, const std::string& key);
  void RefreshLater(int node, const std::string& key);
  // As the watcher takes it: with what is left of its life by its own clock, if anything is.
  void Read(int node, const RecordKey& key, const Record& record,
            std::vector<worker::PeerRecord>& out) const;
  // The records of `key` that reach the watcher now; expired ones are erased.
  std::vector<worker::PeerRecord> Collect(int node, const std::string& key);

  EventQueue& queue_;
  Network& network_;
  Rng rng_;
  double loss_;
  Deliver deliver_;
  NodeClocks clocks_;
  std::map<RecordKey, Record> records_;
  std::map<std::string, std::set<int>> watchers_;
  std::set<std::pair<int, std::string>> answered_;  // watches that had their first answer
  std::set<std::pair<int, int>> hidden_;
};

}  // namespace crowdsurf::simulator
