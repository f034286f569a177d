#include "worker/core/strategy/a2cid2.h"

namespace crowdsurf::worker {
namespace {

constexpr Region kTilde = Region::kExtra0;

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

void A2CiD2::MixTo(Time now, StrategyActions& out) {
  const double units = clock_->Units((now - mixed_at_).seconds());
  mixed_at_ = now;
  Run(MixKernel::kMomentum, {inbox(), kTilde}, {AcidMixing::After(constants_.eta, units).swap},
      out);
}

Region A2CiD2::Prepare(Time now, StrategyActions& out) {
  if (TakeFresh() || !clock_) {
    // The view began at consensus: x-tilde is x.
    Run(MixKernel::kCopy, {inbox(), Region::kOutbox}, {}, out);
    Run(MixKernel::kCopy, {kTilde, Region::kOutbox}, {}, out);
    clock_.emplace(own_rate_, step_seconds_ / own_rate_);
    mixed_at_ = exchanged_at_ = now;
    return inbox();
  }
  // A gradient step moves both models by the same: x-tilde takes the trainer's change.
  Run(MixKernel::kAbsorb, {kTilde, Region::kOutbox, inbox()}, {}, out);
  MixTo(now, out);
  return inbox();
}

void A2CiD2::Commit(Time now, StrategyActions& out) {
  Run(MixKernel::kDifference, {receive(), inbox()}, {static_cast<double>(config().compression)},
      out);
  // The event form (a2cid2.h): first mix up to now, then apply the exchange.
  MixTo(now, out);
  clock_->OnExchange((now - exchanged_at_).seconds());
  exchanged_at_ = now;
  Run(MixKernel::kMoveTowards, {inbox(), receive()}, {0.5}, out);
  Run(MixKernel::kMoveTowards, {kTilde, receive()}, {constants_.alpha_tilde}, out);
  out.push_back(DeliverMixed{inbox()});
}

void A2CiD2::Abandon(Time now, StrategyActions& out) {
  // What the two models have mixed so far is delivered, though nothing was exchanged.
  MixTo(now, out);
  out.push_back(DeliverMixed{inbox()});
}

}  // namespace crowdsurf::worker
