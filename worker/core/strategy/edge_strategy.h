// EdgeStrategy: what RelaySum and Gossip (neighbours) share: every interval, send along the edges
// of a graph and average with what they brought last.
//
// Owner: Mixing, single sequence. At each step of it: a snapshot y of the trainer, a message to
// each neighbour, an average of y and the edges' memory into the inbox, delivered at once: nobody
// waits for a message of this step, neither for its arrival nor for its leaving. Messages leave
// from a copy of y (kSpare), and one that is still on its way out goes on with the newest y, so a
// slow link has the newest there is and never holds the trainer up. Back-pressure: no snapshot is
// averaged while an edge lags behind by more than maxLag steps (a silent edge is waited for no
// longer than kLagPatience: its last message goes on counting until the view is renewed). Source:
// docs/strategies. Memory: the copy, and one per edge, of the part of the vector that travels on
// it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/strategy/mixing_interval.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/view/topology.h"

namespace crowdsurf::worker {

class EdgeStrategy : public Strategy {
 public:
  void SetVector(uint64_t elements, const EdgeMailbox& edges) override {
    elements_ = elements;
    edges_ = &edges;
  }
  void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) override;
  void OnEvent(Time now, const Event& event, StrategyActions& out) override;

 protected:
  virtual EdgeSum edge_sum() const = 0;  // of its messages
  virtual GraphUse graph_use() const = 0;
  virtual WireFormat wire() const = 0;
  virtual void OnGraph(const Topology& topology) = 0;
  // The outbox holds y; the inbox holds the previous average, or y itself at the first step.
  virtual void Average(StrategyActions& out) = 0;
  virtual void OnAveraged(StrategyActions&) {}
  virtual void OnCounted(const AgesCounted&, StrategyActions&) {}

  const AveragingConfig& config() const { return config_; }
  const EdgeMailbox& edges() const { return *edges_; }
  Region inbox() const { return inbox_; }
  uint32_t members() const { return members_; }
  uint64_t elements() const { return elements_; }
  uint64_t sequence() const { return sequence_; }  // of the last snapshot, from 1 on
  // Elements that travel with `tag`.
  Extent PartOf(MixTag tag) const;
  // visit(range, chunk) for runs of chunks of `tag` whose edges hold equal counts; `chunk` is one
  // of the run. Without edges: one run of everything, chunk 0.
  template <class Visit>
  void ForEachRun(MixTag tag, Visit&& visit) const;

 private:
  enum class Stage : uint8_t { kWaiting, kAsked, kLagging };
  void AskWhenDue(Time now, StrategyActions& out);
  void OnSnapshot(Time now, const SnapshotTaken& snapshot, StrategyActions& out);
  void Finish(Time now, StrategyActions& out);
  bool Lags() const;
  bool SameCounts(MixTag tag, uint32_t a, uint32_t b) const;

  AveragingConfig config_;
  uint64_t elements_ = 0;
  const EdgeMailbox* edges_ = nullptr;
  uint32_t members_ = 1;
  size_t parts_ = 1;
  std::set<PeerId> down_;

  Region inbox_ = Region::kInboxB;
  bool started_ = false;
  bool fresh_ = false;
  Stage stage_ = Stage::kWaiting;
  uint64_t sequence_ = 0;
  Time patient_until_;
  MixingInterval interval_;
};

template <class Visit>
void EdgeStrategy::ForEachRun(MixTag tag, Visit&& visit) const {
  const Extent part = PartOf(tag);
  if (part.count == 0) return;
  const uint32_t chunks = edges_->ChunksOf(part);
  for (uint32_t from = 0; from < chunks;) {
    uint32_t to = from + 1;
    while (to < chunks && SameCounts(tag, from, to)) ++to;
    const Extent first = edges_->RangeOf(part, from), last = edges_->RangeOf(part, to - 1);
    visit(Extent{first.begin, last.begin + last.count - first.begin}, from);
    from = to;
  }
}

}  // namespace crowdsurf::worker
