// Gossip: plain averaging with neighbours, nobody waits for everybody.
//
// GossipPairs. Source: AD-PSGD (Lian et al. 2018): two members average their models, at random
// times. Differs: no bipartite graph (pair_exchange.h), both ends move by one rounded difference,
// so that the sum over both is preserved whatever the wire format. One exchange per interval on
// average.
// GossipNeighbours. Source: D-PSGD (Lian et al. 2017) with Metropolis weights, x_i = sum W_ij y_j.
// Differs: no lock-step: the last model of each neighbour stands in for a late one
// (edge_mailbox.h), so the mean is kept only in expectation, and a member that never spoke in this
// view leaves its weight with us. One step per interval. Memory: one copy, or one per neighbour.
#pragma once

#include "worker/core/strategy/edge_strategy.h"
#include "worker/core/strategy/pair_strategy.h"

namespace crowdsurf::worker {

class GossipPairs : public PairStrategy {
 public:
  explicit GossipPairs(Rng rng) : PairStrategy(rng) {}
  Needs needs() const override { return NeedsOf(StrategyKind::kGossip); }

 protected:
  std::optional<double> MeanInterval(const PaceTold& pace) const override;
  double exchanges_a_step() const override;
  void OnGraph(const Topology&) override {}
};

class GossipNeighbours : public EdgeStrategy {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kGossip, GossipMode::kNeighbours); }

 protected:
  EdgeSum edge_sum() const override { return EdgeSum::kOwn; }
  GraphUse graph_use() const override { return GraphUse::kGraph; }
  WireFormat wire() const override { return config().compression; }
  void OnGraph(const Topology& topology) override;
  void Average(StrategyActions& out) override;

 private:
  std::vector<double> weights_;  // of each link
};

}  // namespace crowdsurf::worker
