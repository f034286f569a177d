#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "simulator/lock_step/convergence.h"
#include "worker/core/strategy/a2cid2.h"

namespace crowdsurf::simulator {
namespace {

struct Worker {
  double x = 0, xt = 0;
  double mixed_at = 0;  // time of the last event
  double exchanged_at = 0;
  worker::ExchangeClock clock{1.0, 1.0};
};

void MixTo(double now, double eta, Worker& w) {
  const auto mixing = worker::AcidMixing::After(eta, w.clock.Units(now - w.mixed_at));
  worker::AcidMix(mixing, std::span(&w.x, 1), std::span(&w.xt, 1));
  w.mixed_at = now;
}

void Exchange(double now, const worker::AcidConstants& constants, Worker& a, Worker& b) {
  // The event form (a2cid2.h): mix up to now, then exchange.
  for (Worker* w : {&a, &b}) {
    MixTo(now, constants.eta, *w);
    w->clock.OnExchange(now - w->exchanged_at);
    w->exchanged_at = now;
  }
  // Both ends go by the values before the exchange.
  const double snapshot_a = a.x, snapshot_b = b.x;
  worker::AcidExchange(constants.alpha_tilde, std::span<const double>(&snapshot_a, 1),
                       std::span<const double>(&snapshot_b, 1), std::span(&a.x, 1),
                       std::span(&a.xt, 1));
  worker::AcidExchange(constants.alpha_tilde, std::span<const double>(&snapshot_b, 1),
                       std::span<const double>(&snapshot_a, 1), std::span(&b.x, 1),
                       std::span(&b.xt, 1));
}

// Squared distance to the mean with everybody mixed to `now` (unsynchronised x would show a
// spurious spread).
double Spread(double now, double eta, const std::vector<Worker>& workers) {
  double sum = 0, squares = 0;
  for (Worker w : workers) {
    MixTo(now, eta, w);
    sum += w.x;
    squares += w.x * w.x;
  }
  return squares - sum * sum / static_cast<double>(workers.size());
}

double Invariant(const std::vector<Worker>& workers) {
  double sum = 0;
  for (const Worker& w : workers) sum += w.x + w.xt;
  return sum;
}

}  // namespace

ConsensusResult RunConsensus(const ConsensusOptions& options) {
  const worker::Graph graph = worker::MakeGraph(options.kind, options.n).value();
  const std::vector<double> rates = worker::UniformRates(graph, 1.0);
  worker::AcidConstants constants = worker::AcidConstantsOf(graph, rates).value();
  if (!options.momentum) {
    constants.eta = 0;
    constants.alpha_tilde = 0.5;
  }
  const Rng root(options.seed);
  // Streams of their own: with and without momentum the same exchanges happen.
  Rng values = root.Fork("values"), arrivals = root.Fork("arrivals"), edges = root.Fork("edges");
  std::vector<Worker> workers(options.n);
  for (Worker& w : workers) w.x = w.xt = values.Normal();
  double total_rate = 0;
  std::vector<double> cumulative;
  cumulative.reserve(rates.size());
  for (const double rate : rates) cumulative.push_back(total_rate += rate);

  const double before = Invariant(workers);
  const double initial = Spread(0, 0, workers);
  ConsensusResult result;
  uint64_t exchanges = 0;
  double now = 0;
  for (double next_look = 0.5; now < options.time_limit;) {
    now += arrivals.Exponential(1.0 / total_rate);
    // Looking costs as much as n exchanges, so not after each.
    if (now >= next_look) {
      next_look += 0.5;
      if (Spread(now, constants.eta, workers) < options.target * initial) {
        result.reached = true;
        break;
      }
    }
    // Poisson clocks of all edges in one: an edge is drawn by its share of the rate.
    const double draw = edges.UniformDouble() * total_rate;
    size_t e = 0;
    while (e + 1 < cumulative.size() && cumulative[e] <= draw) ++e;
    Exchange(now, constants, workers[graph.edges[e].a], workers[graph.edges[e].b]);
    ++exchanges;
  }
  // An exchange has two ends.
  result.exchanges = 2.0 * static_cast<double>(exchanges) / options.n;
  result.invariant_drift = std::abs(Invariant(workers) - before) / options.n;
  return result;
}

}  // namespace crowdsurf::simulator
