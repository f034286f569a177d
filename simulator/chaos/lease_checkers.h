// LeaseCheckers: watches from outside which samples the workers of a job train, and which of them
// the committed average has in it, in all its chunks.
//
// It knows every batch that a trainer has trained, every snapshot, and the snapshots inside every
// delivered average (origins.h), and nothing of claims. From these it keeps its own account, and
// holds the ledgers that are delivered against it. Statements: lease, lost, retrained, notice
// (violations.h). Owner: one world; single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/chaos/lease_trainer.h"
#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"
#include "worker/core/port/actions.h"
#include "worker/core/shard/lease_ledger.h"

namespace crowdsurf::simulator {

class LeaseCheckers {
 public:
  enum class End : uint8_t { kLives, kDied, kLeft };

  LeaseCheckers(Violations& violations, const worker::DataSpec& data)
      : violations_(violations), data_(data) {}

  // `done`: batches that the trainer had trained when the snapshot was taken.
  void OnSnapshot(int node, SnapshotId snapshot, size_t done);
  void OnWeighed(SnapshotId snapshot, double weight);
  // An average with these snapshots in all its chunks took the place of what `node` had published.
  void OnDelivered(int node, const worker::Deliver& deliver, const std::set<SnapshotId>& inside,
                   const std::map<int, const LeaseTrainer*>& trainers);
  // A committed average took the place of all that it has trained.
  void OnAdopted(int node, size_t done) { settled_[node] = done; }
  // At the end of the run, nodes by number: each sample that was ever trained.
  void CheckEnd(const std::map<int, std::pair<const LeaseTrainer*, End>>& nodes, Time now);

  uint64_t committed() const { return committed_.size(); }
  uint64_t retrained() const { return retrained_; }  // samples whose first result died
  uint64_t epochs() const { return epochs_; }        // that are committed as a whole

 private:
  using Sample = std::pair<uint64_t, uint64_t>;  // epoch, position
  struct Snapshot {
    int node = 0;
    size_t done = 0;
    double weight = 0;
  };
  void Commit(const Snapshot& snapshot, const LeaseTrainer& trainer);
  void CheckLedger(const worker::Deliver& deliver);
  void CheckWhole();

  Violations& violations_;
  const worker::DataSpec data_;
  std::map<SnapshotId, Snapshot> snapshots_;
  std::map<int, size_t> settled_;    // of a node's batches: committed, or discarded
  std::map<Sample, int> committed_;  // by the node that trained it
  worker::AveragingId newest_;
  worker::LeaseLedger ledger_;  // of the newest delivery
  uint64_t retrained_ = 0;
  uint64_t epochs_ = 0;
};

}  // namespace crowdsurf::simulator
