#include "bench/papers/subnet_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/papers/subnet_trial.h"
#include "bench/training/curve.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kSubnetTuningSeed = 7000;  // apart from the fresh ones

// Its accuracies at the end, by fresh seed, at its own best rate.
std::vector<double> AccuraciesOf(SubnetTrial trial, const std::string& key,
                                 const PapersOptions& options, Runs& runs, Figures& out) {
  const BestRate best = Tune(runs, {.spec =
                                        [&](double rate, uint64_t seed) {
                                          trial.rate = rate;
                                          trial.seed = seed;
                                          return trial.Spec();
                                        },
                                    .score = [](const Outcome& curve) { return LastLoss(curve); },
                                    .first_seed = kSubnetTuningSeed,
                                    .rates = SubnetRates(),
                                    .walk = options.length == Length::kShort});
  out.Add(key + ".rate", best.rate, best.inside ? "tuned" : "tuned; at the grid's edge");
  trial.rate = best.rate;
  std::vector<RunSpec> specs;
  const uint64_t seeds = options.length == Length::kShort ? 3 : 5;
  for (trial.seed = options.seed; trial.seed < options.seed + seeds; ++trial.seed)
    specs.push_back(trial.Spec());
  runs.Do(specs);
  std::vector<double> accuracies;
  accuracies.reserve(specs.size());
  for (const RunSpec& spec : specs) accuracies.push_back(LastAccuracy(runs.of(spec.key)));
  out.Add(key + ".accuracy", EstimateOf(accuracies).mean, "held out, percent");
  return accuracies;
}

// Points below `of`, paired by seed.
void AddPoints(const std::string& key, const std::vector<double>& of,
               const std::vector<double>& own, const std::string& anchor, Figures& out) {
  std::vector<double> points;
  for (size_t i = 0; i < of.size(); ++i) points.push_back(of[i] - own[i]);
  const Estimate estimate = EstimateOf(points);
  out.Add(key, estimate.mean, absl::StrCat(anchor, ", +- ", estimate.interval));
  out.Add(key + ".interval", estimate.interval, "");
  out.Add(key + ".worst", *std::max_element(points.begin(), points.end()), "of the seeds");
}

void CompareNetworks(const std::string& prefix, const std::vector<size_t>& hidden,
                     const PapersOptions& options, Runs& runs, Figures& out) {
  const uint64_t steps = options.length == Length::kShort ? 1000 : 4000;
  for (const uint32_t n : {2U, 4U, 8U}) {
    const std::string key = absl::StrCat(prefix, "n", n);
    const SubnetTrial local{.name = "LocalSgd", .workers = n, .hidden = hidden, .steps = steps};
    SubnetTrial subnets = local, narrow = local;
    subnets.name = "Ist";
    subnets.subnets = true;
    // As wide as a worker's share of each layer.
    for (size_t& width : narrow.hidden) width /= n;
    const auto whole = AccuraciesOf(local, key + ".localsgd", options, runs, out);
    AddPoints(key, whole, AccuraciesOf(subnets, key + ".ist", options, runs, out),
              "points below local SGD at equal steps; bound 3, aim 1", out);
    AddPoints(key + ".narrow", whole, AccuraciesOf(narrow, key + ".narrow", options, runs, out),
              "the same of a network of width / n", out);
  }
}

}  // namespace

void SubnetPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  CompareNetworks("ist.", {512}, options, runs, out);
  // An inner matrix makes it expensive.
  if (options.length == Length::kLong)
    CompareNetworks("ist.2hidden.", {512, 512}, options, runs, out);
}

}  // namespace crowdsurf::bench
