#include "bench/ring_job.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/rng.h"
#include "bench/digit_workers.h"
#include "worker/core/strategy/a2cid2.h"

namespace crowdsurf::bench {
namespace {

constexpr size_t kLastLooks = 4;  // a hundred steps: one look is as noisy as a batch

// The job with momentum or, as gossip, without.
class Ring {
 public:
  Ring(const RingJobOptions& options, bool momentum)
      : options_(options),
        graph_(worker::MakeGraph(worker::GraphKind::kRing, options.workers).value()),
        workers_(MakeDigitWorkers(options.workers, options.learning_rate, options.seed)),
        meetings_(Rng(options.seed).Fork("meetings")) {
    const auto rates = worker::UniformRates(graph_, options.rate_com);
    constants_ = worker::AcidConstantsOf(graph_, rates).value();
    // Plain gossip: nothing is mixed, and both models move by half the difference.
    if (!momentum) {
      constants_.eta = 0;
      constants_.alpha_tilde = 0.5;
    }
    Rng phases = Rng(options.seed).Fork("phases");
    for (DigitWorker& worker : workers_) {
      const auto model = worker.model();
      sides_.push_back({std::vector<float>(model.begin(), model.end()), 0, 0,
                        phases.UniformDouble(),
                        worker::ExchangeClock(options.rate_com, 1 / options.rate_com)});
    }
    for (const double rate : rates) total_rate_ += rate;
    next_meeting_ = meetings_.Exponential(1 / total_rate_);
  }

  // Everybody's next step, and the meetings before it.
  void Step() {
    // In the order of their phases, so that meetings fall between the right steps.
    std::vector<size_t> order(workers_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return sides_[a].next_step < sides_[b].next_step; });
    for (const size_t i : order) {
      const double now = sides_[i].next_step;
      while (next_meeting_ <= now) Meet();
      MixTo(now, i);
      const auto model = workers_[i].model();
      before_.assign(model.begin(), model.end());
      workers_[i].training->Step(1);
      // A gradient step moves both models alike (docs/strategies/a2cid2.md).
      for (size_t k = 0; k < before_.size(); ++k) sides_[i].tilde[k] += model[k] - before_[k];
      sides_[i].next_step += 1;
    }
  }

  double Loss() { return MeanMetric(workers_, "heldout_loss"); }
  uint64_t exchanges() const { return exchanges_; }

 private:
  struct Side {
    std::vector<float> tilde;
    double mixed_at = 0, exchanged_at = 0, next_step = 0;
    worker::ExchangeClock clock;
  };

  void MixTo(double now, size_t i) {
    Side& side = sides_[i];
    const auto mixing =
        worker::AcidMixing::After(constants_.eta, side.clock.Units(now - side.mixed_at));
    worker::AcidMix(mixing, workers_[i].model(), std::span(side.tilde));
    side.mixed_at = now;
  }

  void Meet() {
    const double now = next_meeting_;
    next_meeting_ += meetings_.Exponential(1 / total_rate_);
    // The edges of a ring have equal rates.
    const worker::Edge edge = graph_.edges[meetings_.Uniform(graph_.edges.size())];
    std::vector<float> snapshots[2];
    const size_t ends[2] = {edge.a, edge.b};
    for (size_t e = 0; e < 2; ++e) {
      // The event form (a2cid2.h): mix up to now, then exchange snapshots.
      MixTo(now, ends[e]);
      Side& side = sides_[ends[e]];
      side.clock.OnExchange(now - side.exchanged_at);
      side.exchanged_at = now;
      const auto model = workers_[ends[e]].model();
      snapshots[e].assign(model.begin(), model.end());
    }
    for (size_t e = 0; e < 2; ++e)
      worker::AcidExchange(constants_.alpha_tilde, std::span<const float>(snapshots[e]),
                           std::span<const float>(snapshots[1 - e]), workers_[ends[e]].model(),
                           std::span(sides_[ends[e]].tilde));
    ++exchanges_;
  }

  const RingJobOptions options_;
  const worker::Graph graph_;
  std::vector<DigitWorker> workers_;
  std::vector<Side> sides_;
  worker::AcidConstants constants_;
  Rng meetings_;
  double total_rate_ = 0;
  double next_meeting_ = 0;
  uint64_t exchanges_ = 0;
  std::vector<float> before_;
};

}  // namespace

RingJobResult RunRingJob(const RingJobOptions& options) {
  RingJobResult result;
  Ring gossip(options, false);
  std::vector<double> losses;
  for (uint64_t step = 1; step <= options.steps; ++step) {
    gossip.Step();
    if (step % options.look_every == 0) losses.push_back(gossip.Loss());
  }
  // The end of gossip as the mean of its last looks.
  const size_t looks = std::min(kLastLooks, losses.size());
  for (size_t i = losses.size() - looks; i < losses.size(); ++i)
    result.gossip_loss += losses[i] / static_cast<double>(looks);
  Ring acid(options, true);
  for (uint64_t step = 1; step <= options.steps; ++step) {
    acid.Step();
    if (step % options.look_every != 0 || acid.Loss() > result.gossip_loss) continue;
    result.ratio = static_cast<double>(acid.exchanges()) / static_cast<double>(gossip.exchanges());
    return result;
  }
  // Not reached: no better than gossip.
  result.ratio = 1;
  return result;
}

}  // namespace crowdsurf::bench
