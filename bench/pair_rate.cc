#include "bench/pair_rate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "simulator/descent/descent.h"

namespace crowdsurf::bench {
namespace {

constexpr uint32_t kNumbers = 32;
constexpr Duration kStep = Milliseconds(20);
// The job's members are together long before.
constexpr uint64_t kDisturbedAt = 500;

// A trainer that learns nothing, and once is disturbed.
class DisturbedModel : public simulator::DescentModel {
 public:
  explicit DisturbedModel(Rng rng) : rng_(rng) {}
  size_t elements() const override { return kNumbers; }
  void Start(std::span<float> x) const override { std::fill(x.begin(), x.end(), 0.0F); }
  void Step(double, std::span<float> x) override {
    if (++steps_ != kDisturbedAt) return;
    for (float& number : x) number += static_cast<float>(rng_.Normal());
  }

 private:
  Rng rng_;
  uint64_t steps_ = 0;
};

struct Crowd {
  double squares = 0;  // of the distances to the mean
  double mean = 0;     // of all numbers
};
Crowd CrowdOf(const simulator::DescentLook& look) {
  Crowd crowd;
  const auto n = static_cast<double>(look.living.size());
  for (uint32_t k = 0; k < kNumbers; ++k) {
    double sum = 0;
    for (const auto& worker : look.living) sum += worker.model[k];
    for (const auto& worker : look.living) {
      const double off = worker.model[k] - sum / n;
      crowd.squares += off * off;
    }
    crowd.mean += sum / n / kNumbers;
  }
  return crowd;
}

}  // namespace

PairRateResult RunPairRate(const PairRateOptions& options) {
  simulator::DescentOptions descent;
  descent.averaging = simulator::DescentAveraging(options.strategy, worker::GraphKind::kRing);
  descent.averaging.overlap = worker::Overlap::kDelayed;
  // Gossip's cadence is an interval of 1 / rate steps, A2CiD2's is rate_com.
  descent.averaging.interval = 1 / options.rate;
  descent.averaging.mixing.gossip = worker::GossipMode::kPairs;
  descent.averaging.mixing.rate_com = options.rate;
  descent.members = options.workers;
  descent.seed = options.seed;
  descent.deaths = {};
  descent.victims = {};
  descent.joins = {};
  descent.max_events = UINT64_MAX;  // the end is one
  descent.chunk_elements = kNumbers / 2;
  descent.links = {.min_delay = kStep * options.latency, .mean_extra_delay = {}};
  const Rng root = Rng(options.seed).Fork("pair rate");
  descent.worker = [&](int node) {
    return simulator::DescentWorker{
        std::make_unique<DisturbedModel>(root.Fork(std::to_string(node))), kStep};
  };
  // Twice a step.
  descent.look_every = kStep * 0.5;
  descent.end = kStep * static_cast<double>(kDisturbedAt + options.steps);

  PairRateResult result;
  std::optional<Crowd> begin;
  double begin_steps = 0, begin_ends = 0;
  bool reached = false;
  const auto n = static_cast<double>(options.workers);
  descent.on_look = [&](const simulator::DescentLook& look) {
    const bool all = look.living.size() == static_cast<size_t>(options.workers) &&
                     std::all_of(look.living.begin(), look.living.end(),
                                 [](const auto& worker) { return worker.steps >= kDisturbedAt; });
    if (!all) return;
    const Crowd crowd = CrowdOf(look);
    const auto steps = static_cast<double>(look.steps) / n;
    const auto ends = static_cast<double>(look.pair_ends);
    if (!begin) {
      begin = crowd;
      begin_steps = steps;
      begin_ends = ends;
    }
    result.drift = std::abs(crowd.mean - begin->mean);
    if (!reached) result.steps = steps - begin_steps;
    reached = reached || crowd.squares < options.target * begin->squares;
    result.reached = (ends - begin_ends) / n / std::max(1.0, (steps - begin_steps) * options.rate);
  };
  simulator::RunDescent(descent);
  return result;
}

}  // namespace crowdsurf::bench
