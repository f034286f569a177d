// PairStrategy: what Gossip (pairs) and A2CiD2 share: a neighbour at random, at random times.
//
// Owner: Mixing, single sequence. A worker begins exchanges at the ticks of a Poisson clock of its
// own (exponential intervals of twice the mean between exchanges, for each exchange has two ends)
// with a neighbour drawn uniformly. Its model x lies in a region of its own (kExtra0), so an
// exchange waits for no trainer: what the trainer has changed since the last result that it was
// given (L, which stays in the inbox) is added to x at snapshots, and x is delivered there. A
// snapshot is asked for after each exchange. Exchanges that are rare, in steps, ask for one before,
// at both ends, or what is exchanged would be an interval old. Where messages take longer than the
// mean interval, exchanges are made so much rarer, and the owner is told. Each view begins at
// consensus (mixing.h), so nothing is kept across views. Source: docs/strategies/gossip.md; AD-PSGD
// (Lian et al. 2018), A2CiD2 (Nabli et al. 2023). Differs: no central matcher and no bipartite
// graph (pair_exchange.h).
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
  static constexpr Region kModel = Region::kExtra0;  // x

  // Seconds between this worker's exchanges that are wanted; nullopt: not known yet.
  virtual std::optional<double> MeanInterval(const PaceTold& pace) const = 0;
  // Exchanges a step that the configuration asks for, as far as it says so; else 1.
  virtual double exchanges_a_step() const = 0;
  virtual void OnGraph(const Topology& topology) = 0;
  // The models as they are now: what moves by time has moved. Pre: they are there.
  virtual void MoveTo(Time /*now*/, StrategyActions& /*out*/) {}
  // What this worker asks of exchanges, in thousandths that are left out of their weights.
  virtual int64_t restraint() const { return 0; }
  // The other end moves by the opposite: `sign` and `restraint` are all that tells the ends apart
  // and what they have in common.
  struct Difference {
    Region region;
    double sign;
    int64_t restraint;
  };
  // An exchange moves x by half of the difference.
  virtual void Exchange(Time now, const Difference& difference, StrategyActions& out);

  // Models that the trainer's changes go to, x first: kExtra0 and on.
  size_t models() const { return needs().extra_regions; }
  const AveragingConfig& config() const { return config_; }
  // Mean one-way latency of own exchanges over the mean interval between exchanges, as they are
  // wanted; 0 until one was measured.
  double lateness() const { return lateness_; }
  void Run(MixKernel kernel, std::vector<Region> regions, std::vector<double> scalars,
           StrategyActions& out) const {
    out.push_back(RunKernel{kernel, {0, elements_}, std::move(regions), std::move(scalars)});
  }

 private:
  void DrawNext(Time now, StrategyActions& out);
  void OnTick(Time now, StrategyActions& out);
  void WhenFresh(Time now, StrategyActions& out);
  void Ask(StrategyActions& out);
  void OnSnapshot(Time now, StrategyActions& out);
  void OnReplied(Time now, const PairReplied& replied, StrategyActions& out);

  Rng rng_;
  AveragingConfig config_;
  uint64_t elements_ = 0;
  std::vector<PeerId> neighbours_;
  std::set<PeerId> down_;  // neighbours found dead in this view
  Region inbox_ = Region::kInboxB;
  std::optional<PaceTold> pace_;
  bool begun_ = false;     // x is there
  bool asked_ = false;     // for a snapshot
  bool delivers_ = false;  // what the last event has ordered ends with a delivery of x
  Time fresh_at_;          // x has what the trainer had then
  double latency_ = 0;     // seconds, one way
  double lateness_ = 0;
  Time next_ = Time::Infinite();
};

}  // namespace crowdsurf::worker
