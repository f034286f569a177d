// PeerCheckers: watches a whole job from outside: views, snapshots, deliveries, sample counts.
//
// Beside RoundCheckers, which watches single instances. It knows every snapshot and what went into
// every delivered value, and recomputes means and counts from them. Statements: view, samples,
// twice, S1, S5, S7, resent (violations.h). Owner: one world; single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_summary.h"

namespace crowdsurf::simulator {

class PeerCheckers {
 public:
  // What the job's count has in it. kSnapshots: what is new in those behind the vector. kLeases:
  // the job deals data; then the samples of a snapshot that some chunks lack do not count. kTotals:
  // where neighbours mix, trainers' last reports, whose times are not known here; so nobody may
  // have more in the count than it had trained when the round began. kApart: in averagings of
  // their own, which TurnCheckers watch.
  enum class Counts : uint8_t { kSnapshots, kLeases, kTotals, kApart };
  PeerCheckers(Violations& violations, Origins& origins, worker::WireFormat wire, Counts counts)
      : violations_(violations), origins_(origins), wire_(wire), counts_(counts) {}

  SnapshotId NewSnapshot(int node, double samples_total);
  // The snapshot's values as they stand in the outbox.
  void OnPublished(SnapshotId snapshot, const std::vector<float>& values);
  // A round opens on the snapshot itself, with the weight that the core gives it.
  void OnWeighed(SnapshotId snapshot, double weight);
  void OnMessage(int node, const worker::Message& message, const std::string& job);
  void OnDeliver(int node, const worker::Deliver& deliver, const RegionBuffer& region);
  void OnGroupMean(int node, const RegionBuffer& region);
  // An averaging that counts samples only is over there; `behind`: what stands behind its value.
  void OnCounted(int node, const worker::JobCounted& counted, OriginId behind);
  // A view was seen decided: of one parent there is one successor, branches apart.
  void OnView(const worker::View& view, const worker::ViewHash& hash);

  uint64_t delivered() const { return delivered_; }
  uint64_t exact() const { return exact_; }  // deliveries recomputed to the last bit that can be
  uint64_t counts_checked() const { return counts_checked_; }  // deliveries whose count was
  uint64_t described() const { return described_; }  // deliveries with hashes of their values
  uint64_t branches() const { return branches_.size(); }

 private:
  struct Snapshot {
    int node = 0;
    double samples_total = 0;
    double fresh = 0;                    // samples since the node's snapshot before
    std::optional<SnapshotId> previous;  // of the node
    double weight = 0;
    std::vector<float> values;
  };
  // What a lineage of averagings has counted up to here, by snapshot: the samples that were fresh
  // in it.
  using Counted = std::vector<bool>;

  void CheckHashes(int node, const worker::Deliver& deliver, const RegionBuffer& region);
  void CheckMean(int node, const RegionBuffer& region);
  // The final weight, where all elements have the same snapshots in them.
  void CheckWeight(int node, const worker::Deliver& deliver, const std::set<SnapshotId>& inside);
  void CheckCount(int node, const worker::Deliver& deliver, const std::set<SnapshotId>& inside);
  double WeightOf(const std::set<SnapshotId>& snapshots) const;
  bool Count(SnapshotId snapshot, Counted& counted) const;
  bool CountTotal(SnapshotId snapshot, Counted& counted) const;
  void Add(std::string_view statement, int node, const std::string& what);

  Violations& violations_;
  Origins& origins_;
  const worker::WireFormat wire_;
  const Counts counts_;
  std::vector<Snapshot> snapshots_;
  std::map<int, SnapshotId> last_of_;  // by node
  std::map<worker::ViewHash, std::set<worker::ViewHash>> successors_;
  std::set<worker::ViewHash> branches_;
  std::map<worker::InstanceId, worker::ViewHash> views_of_;
  std::map<double, std::vector<Counted>> counted_at_;      // by job-wide count: what led to it
  std::set<std::pair<worker::AveragingId, double>> told_;  // counts, by averaging
  uint64_t delivered_ = 0;
  uint64_t exact_ = 0;
  uint64_t counts_checked_ = 0;
  uint64_t described_ = 0;
};

}  // namespace crowdsurf::simulator
