#include "worker/core/strategy/a2cid2.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace crowdsurf::worker {
namespace {

constexpr Region kTilde = Region::kExtra1;

}  // namespace

void A2CiD2::OnGraph(const Topology& topology) {
  clock_.reset();
  // Without constants of a graph: plain gossip, in which both models move alike.
  constants_ = {.chi1 = 0, .chi2 = 0, .eta = 0, .alpha_tilde = 0.5};
  const Graph& graph = topology.graphs[0];
  if (graph.nodes < 2) return;
  const std::vector<double> rates = ProposalRates(graph, config().mixing.rate_com);
  own_rate_ = 0;
  for (size_t e = 0; e < rates.size(); ++e) {
    if (graph.edges[e].a == topology.self || graph.edges[e].b == topology.self)
      own_rate_ += rates[e];
  }
  const auto constants = AcidConstantsOf(graph, rates);
  if (constants.ok()) constants_ = *constants;
}

std::optional<double> A2CiD2::MeanInterval(const PaceTold& pace) const {
  if (pace.step_seconds <= 0) return std::nullopt;
  step_seconds_ = pace.step_seconds;
  return pace.step_seconds / config().mixing.rate_com;
}

void A2CiD2::MoveTo(Time now, StrategyActions& out) {
  const Time since = std::exchange(moved_at_, now);
  if (!clock_) {
    // The momentum begins when it is known how long a step takes.
    if (step_seconds_ > 0) clock_.emplace(own_rate_, step_seconds_ / own_rate_);
    exchanged_at_ = now;
    return;
  }
  if (now == since) return;
  const double eta = constants_.eta * AcidCaution(lateness());
  const double units = clock_->Units((now - since).seconds());
  Run(MixKernel::kMomentum, {kModel, kTilde}, {AcidMixing::After(eta, units).swap}, out);
}

int64_t A2CiD2::restraint() const { return std::lround(1000 * (1 - AcidCaution(lateness()))); }

// The event form (a2cid2.h): first mix up to now, then apply the exchange.
void A2CiD2::Exchange(Time now, const Difference& difference, StrategyActions& out) {
  PairStrategy::Exchange(now, difference, out);
  if (clock_) clock_->OnExchange((now - exchanged_at_).seconds());
  exchanged_at_ = now;
  // Never less than what x itself moves by: that is gossip.
  const double caution = 1 - static_cast<double>(difference.restraint) / 1000;
  const double weight = std::max(0.5, constants_.alpha_tilde * caution);
  Run(MixKernel::kMoveTowards, {kTilde, difference.region}, {weight * difference.sign}, out);
}

}  // namespace crowdsurf::worker
