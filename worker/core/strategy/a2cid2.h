// A2CiD2: the continuous momentum that makes pairwise averaging on a sparse graph as fast as
// sqrt(chi1 chi2).
//
// Source: A2CiD2 (Nabli, Belilovsky, Oyallon 2023, arXiv 2306.08289), equations of section 3 in
// event form: on any event first mix by the time since the last one, then apply the event. Differs
// from the released code: (1) both ends mix first and apply opposite deltas of one difference, so
// the sum of x and the sum of x-tilde are preserved even when gradients land in between (sending
// the unmixed x drifts the mean by 0.11-0.17 sigma); (2) the clock is defined by this worker's own
// completed exchanges, so that the assumed rate is true by construction and training never waits
// for an exchange; (3) eta and alpha-tilde come from the graph's real edge rates (graph.h), not
// from rate / degree. Owner: the strategy of an agent, or the simulator. Single sequence. Nothing
// is allocated. Scalar: float in production, double in paper tests.
#pragma once

#include <cmath>
#include <span>

#include "base/check.h"
#include "worker/core/strategy/pair_strategy.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {

// exp(delta * [[-eta, eta], [eta, -eta]]) = [[keep, swap], [swap, keep]]; keep + swap = 1, a
// semigroup in delta.
struct AcidMixing {
  double keep = 1;
  double swap = 0;

  // eta >= 0, delta >= 0 in units of the exchange clock.
  static AcidMixing After(double eta, double delta) {
    const double half = -std::expm1(-2 * eta * delta) / 2;
    return {1 - half, half};
  }
};

// (x, xt) <- (keep x + swap xt, swap x + keep xt). x, xt: Scalar[n], distinct. Written with the
// difference, so that x + xt changes only by rounding.
template <class Scalar>
void AcidMix(const AcidMixing& mixing, std::span<Scalar> x, std::span<Scalar> xt) {
  CHECK_EQ(x.size(), xt.size());
  const Scalar swap = static_cast<Scalar>(mixing.swap);
  for (size_t i = 0; i < x.size(); ++i) {
    const Scalar move = swap * (xt[i] - x[i]);
    x[i] += move;
    xt[i] -= move;
  }
}

// An exchange: `mine` and `theirs` are the snapshots that crossed the wire (both ends use the same
// rounded values). x += (theirs - mine) / 2, xt += alpha_tilde (theirs - mine): the deltas of both
// ends are exact opposites.
template <class Scalar>
void AcidExchange(double alpha_tilde, std::span<const Scalar> mine, std::span<const Scalar> theirs,
                  std::span<Scalar> x, std::span<Scalar> xt) {
  CHECK_EQ(x.size(), xt.size());
  CHECK_EQ(x.size(), mine.size());
  CHECK_EQ(x.size(), theirs.size());
  const Scalar weight = static_cast<Scalar>(alpha_tilde);
  for (size_t i = 0; i < x.size(); ++i) {
    const Scalar difference = theirs[i] - mine[i];
    x[i] += Scalar(0.5) * difference;
    xt[i] += weight * difference;
  }
}

// The exchange-defined clock: one unit is `rate` times the usual interval between this worker's
// completed exchanges.
class ExchangeClock {
 public:
  // rate: this worker's exchanges in a gradient step that eta was computed for, the sum of the
  // rates of its edges, > 0. first_interval: seconds, > 0, the guess until exchanges tell (a
  // gradient step's duration / rate).
  ExchangeClock(double rate, double first_interval) : rate_(rate), interval_(first_interval) {
    CHECK_GT(rate, 0.0);
    CHECK_GT(first_interval, 0.0);
  }

  // Units between two instants, `seconds` apart, at the present rate.
  double Units(double seconds) const { return seconds / (rate_ * interval_); }

  // An exchange was completed `seconds` after the one before.
  void OnExchange(double seconds) { interval_ += kGain * (seconds - interval_); }

 private:
  // Intervals of a Poisson clock scatter by their own mean: 1/32 averages over some thirty, so the
  // unit wobbles by an eighth, and a change of the real rate is followed within a minute of steps.
  // Halved: slower to follow; doubled: eta times a noisier clock.
  static constexpr double kGain = 1.0 / 32;
  double rate_;
  double interval_;  // seconds
};

// What eta and alpha-tilde are multiplied by when messages are late. lateness: exchanges of a
// worker in the time that a message takes one way. As published they hold for exchanges in no time;
// several at once and late they amplify what they should damp: at 1 most runs diverge
// (docs/strategies/a2cid2.md). alpha-tilde takes the greater caution of both ends.
constexpr double AcidCaution(double lateness) {
  if (lateness > 0.4) return 0.5;
  return lateness > 0.05 ? 0.7 : 1;
}

// The strategy of an agent: x-tilde lies beside x, in kExtra1. What the trainer changed between two
// snapshots is added to x-tilde as well ("generic rule" of the reference), whatever its optimizer.
// Constants come from the real edge rates of this view's graph, in exchanges a gradient step, and
// are computed again at each view: O(n^3).
class A2CiD2 : public PairStrategy {
 public:
  explicit A2CiD2(Rng rng) : PairStrategy(rng) {}
  Needs needs() const override { return NeedsOf(StrategyKind::kA2CiD2); }
  const AcidConstants& constants() const { return constants_; }  // as published

 protected:
  std::optional<double> MeanInterval(const PaceTold& pace) const override;
  double exchanges_a_step() const override { return config().mixing.rate_com; }
  void OnGraph(const Topology& topology) override;
  void MoveTo(Time now, StrategyActions& out) override;
  int64_t restraint() const override;
  void Exchange(Time now, const Difference& difference, StrategyActions& out) override;

 private:
  AcidConstants constants_;
  double own_rate_ = 1;  // exchanges a gradient step: on irregular graphs not each worker's rateCom
  std::optional<ExchangeClock> clock_;
  Time moved_at_;
  Time exchanged_at_;
  mutable double step_seconds_ = 0;  // as of the last tick; 0: not known
};

}  // namespace crowdsurf::worker
