// PairStrategy: what Gossip (pairs) and A2CiD2 share: a neighbour at random, at random times.
//
// Owner: Mixing, single sequence. A worker proposes at the ticks of a Poisson clock of its own
// (exponential intervals of twice the mean between exchanges, for each exchange has two ends) to a
// neighbour drawn uniformly; a tick that finds it in an exchange, or a BUSY partner, is skipped.
// Training never waits: a snapshot is averaged, and the change is added later. Source: AD-PSGD
// (Lian et al. 2018), A2CiD2 (Nabli et al. 2023). Differs: no central matcher and no bipartite
// graph (pair_exchange.h). Each view begins at consensus (mixing.h), so nothing is kept across
// views.
#pragma once

#include <set>
#include <vector>

#include "base/rng.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/view/topology.h"

namespace crowdsurf::worker {

class PairStrategy : public Strategy {
 public:
  explicit PairStrategy(Rng rng) : rng_(rng) {}
  void SetVector(uint64_t elements, const EdgeMailbox&) override { elements_ = elements; }
  void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) override;
  void OnEvent(Time now, const Event& event, StrategyActions& out) override;

 protected:
  // Seconds between this worker's exchanges that are wanted; nullopt: not known yet.
  virtual std::optional<double> MeanInterval(const PaceTold& pace) const = 0;
  virtual void OnGraph(const Topology& topology) = 0;
  virtual Region receive() const = 0;
  // The snapshot is in the outbox: kernels, and the region that is sent. It stays until Commit or
  // Abandon.
  virtual Region Prepare(Time now, StrategyActions& out) = 0;
  virtual void Commit(Time now, StrategyActions& out) = 0;   // the partner's is in receive()
  virtual void Abandon(Time now, StrategyActions& out) = 0;  // no exchange after all

  const AveragingConfig& config() const { return config_; }
  Extent all() const { return {0, elements_}; }
  Region inbox() const { return inbox_; }
  // True once after the view opened: nothing of this view lies in the inbox yet.
  bool TakeFresh() { return std::exchange(fresh_, false); }
  void Run(MixKernel kernel, std::vector<Region> regions, std::vector<double> scalars,
           StrategyActions& out) const {
    out.push_back(RunKernel{kernel, all(), std::move(regions), std::move(scalars)});
  }

 private:
  void OnTick(Time now, StrategyActions& out);
  void DrawNext(Time now, StrategyActions& out);

  Rng rng_;
  AveragingConfig config_;
  uint64_t elements_ = 0;
  std::vector<PeerId> neighbours_;
  std::set<PeerId> down_;  // neighbours found dead in this view
  Region inbox_ = Region::kInboxB;
  std::optional<PaceTold> pace_;
  bool started_ = false;
  bool fresh_ = false;
  bool proposing_ = false;
  bool prepared_ = false;
  Time next_ = Time::Infinite();
};

}  // namespace crowdsurf::worker
