#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "bench/papers/subnet_papers.h"
#include "bench/papers/subnet_trial.h"
#include "bench/training/curve.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kSubnetTimeTuningSeed = 8000;              // apart from the fresh ones
constexpr double kThinLink = 50e6 / 8, kFastLink = 10e9 / 8;  // bytes/s
constexpr double kPointsBelow = 2;                            // local SGD's accuracy at the end

class SubnetTimeTable {
 public:
  SubnetTimeTable(std::string prefix, std::vector<size_t> hidden, const PapersOptions& options,
                  Runs& runs, Figures& out)
      : prefix_(std::move(prefix)),
        hidden_(std::move(hidden)),
        options_(options),
        runs_(runs),
        out_(out) {
    const bool brief = options.length == Length::kShort;
    steps_ = brief ? 1000 : 4000;
    seeds_ = brief ? 3 : 5;
  }

  void Fill() {
    const SubnetTrial local = Tuned("localsgd", {.name = "LocalSgd"});
    const SubnetTrial subnets = Tuned("ist", {.name = "Ist", .subnets = true});
    const SubnetTrial all_reduce =
        Tuned("allreduce", {.name = "AllReduce", .lock_step = true, .interval = 1});
    const SubnetTrial rare = Tuned("localsgd.h50", {.name = "LocalSgd", .interval = 50});
    const SubnetTrial rare_subnets =
        Tuned("ist.h50", {.name = "Ist", .subnets = true, .interval = 50});
    Compare(".localsgd", "bound 2, aim 4", {local, subnets, local}, kThinLink);
    Compare(".allreduce", "bound 5, aim 10", {all_reduce, subnets, local}, kThinLink);
    Compare(".localsgd.h50", "both average every fifty steps", {rare, rare_subnets, local},
            kThinLink);
    Compare(".fast.localsgd", "10 Gbit/s", {local, subnets, local}, kFastLink);
    Compare(".fast.allreduce", "10 Gbit/s", {all_reduce, subnets, local}, kFastLink);
  }

 private:
  struct Sides {
    SubnetTrial theirs, ours, local;
  };

  // At its best rate, on endless links: what a rate reaches in equal steps is no matter of them.
  SubnetTrial Tuned(const std::string& name, SubnetTrial trial) {
    trial.hidden = hidden_;
    trial.steps = steps_;
    const BestRate best = Tune(runs_, {.spec =
                                           [&](double rate, uint64_t seed) {
                                             trial.rate = rate;
                                             trial.seed = seed;
                                             return trial.Spec();
                                           },
                                       .score = LastLoss,
                                       .first_seed = kSubnetTimeTuningSeed,
                                       .rates = SubnetRates(),
                                       .walk = options_.length == Length::kShort});
    trial.rate = best.rate;
    out_.Add(absl::StrCat(prefix_, ".", name, ".rate"), best.rate,
             best.inside ? "tuned" : "tuned; at the grid's edge");
    return trial;
  }

  const Outcome& Do(SubnetTrial trial, uint64_t seed, double bytes_per_second) {
    trial.seed = seed;
    trial.bytes_per_second = bytes_per_second;
    const RunSpec spec = trial.Spec();
    runs_.Do({spec});
    return runs_.of(spec.key);
  }

  // Their time to the accuracy over ours, seed by seed.
  void Compare(const std::string& name, const std::string& anchor, const Sides& sides,
               double bytes_per_second) {
    std::vector<double> ratios;
    uint64_t missed = 0;
    double accuracy = 0;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed) {
      accuracy = LastAccuracy(Do(sides.local, seed, kThinLink)) - kPointsBelow;
      const double ours = SecondsToAccuracy(Do(sides.ours, seed, bytes_per_second), accuracy);
      const double theirs = SecondsToAccuracy(Do(sides.theirs, seed, bytes_per_second), accuracy);
      // A ratio of a seed in which somebody never gets there would be no number.
      if (std::max(ours, theirs) == std::numeric_limits<double>::infinity())
        ++missed;
      else
        ratios.push_back(theirs / ours);
    }
    const std::string key = prefix_ + name;
    out_.Add(key + ".missed", static_cast<double>(missed), "seeds in which one never gets there");
    if (ratios.empty()) return;
    const Estimate ratio = EstimateOf(ratios);
    out_.Add(
        key, ratio.mean,
        absl::StrCat("times IST's time to ", accuracy, " %, +- ", ratio.interval, "; ", anchor));
    out_.Add(key + ".interval", ratio.interval, "");
    out_.Add(key + ".worst", *std::min_element(ratios.begin(), ratios.end()), "of the seeds");
  }

  const std::string prefix_;
  const std::vector<size_t> hidden_;
  const PapersOptions options_;
  Runs& runs_;
  Figures& out_;
  uint64_t steps_ = 0;
  uint64_t seeds_ = 0;
};

}  // namespace

void SubnetTimePapers(const PapersOptions& options, Runs& runs, Figures& out) {
  SubnetTimeTable("ist.time", {512}, options, runs, out).Fill();
  // An inner matrix makes it expensive.
  if (options.length == Length::kLong)
    SubnetTimeTable("ist.time.2hidden", {512, 512}, options, runs, out).Fill();
}

}  // namespace crowdsurf::bench
