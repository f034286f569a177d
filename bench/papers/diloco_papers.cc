#include "bench/papers/diloco_papers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/papers/power_papers.h"
#include "bench/training/lock_step_run.h"
#include "bench/training/peers_run.h"
#include "bench/training/tuning.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kDiLoCoTuningSeed = 6000;  // apart from the fresh ones
constexpr int kDiLoCoWorkers = 8;
constexpr double kDiLoCoInterval = 100;  // steps
constexpr double kDiLoCoStepSeconds = 0.5;
// As the paper has them: Nesterov, .7, .9.
constexpr worker::OuterOptimizer kDiLoCoOuter = {worker::OuterKind::kNesterov, 0.7, 0.9};

struct DiLoCoArm {
  const char* name;
  int workers = kDiLoCoWorkers;
  double interval = kDiLoCoInterval;
  bool outer = false;
};
constexpr DiLoCoArm kEveryStep = {"every", kDiLoCoWorkers, 1};
constexpr DiLoCoArm kDiLoCo = {"h100", kDiLoCoWorkers, kDiLoCoInterval, true};
constexpr DiLoCoArm kLocalSgd = {"h100.localsgd"};
constexpr DiLoCoArm kAlone = {"h100.alone", 1, kDiLoCoInterval, true};

// A factor of two apart, the same for all: an outer step is several times what workers have moved,
// and wants lower ones than RateGrid has.
std::vector<double> DiLoCoRates() {
  std::vector<double> rates = {RateGrid().front() / 4, RateGrid().front() / 2};
  for (const double rate : RateGrid()) rates.push_back(rate);
  return rates;
}

// What is trained: the classifier, or the language model on a text.
struct DiLoCoModel {
  std::string prefix;     // of the keys
  std::string text = {};  // empty: the classifier
  double clip = 0;

  std::unique_ptr<Workload> MakeWorkload(uint64_t seed) const {
    if (text.empty())
      return std::make_unique<DigitsWorkload>(
          DigitsOptions{.alpha = 0, .examples = kManyExamples, .seed = seed});
    auto corpus = trainer::MakeCorpus(text, kSplitSeed);
    CHECK(corpus.ok());  // the program has looked at it
    return std::make_unique<TextWorkload>(*std::move(corpus));
  }
};

class DiLoCoTable {
 public:
  DiLoCoTable(DiLoCoModel model, const PapersOptions& options, Runs& runs, Figures& out)
      : model_(std::move(model)), options_(options), runs_(runs), out_(out) {
    const bool brief = options.length == Length::kShort;
    // An interval is a step longer, because the request travels: 2,020 steps are twenty.
    steps_ = brief ? 2040 : 4080;
    seeds_ = brief ? 3 : 5;
    text_ = model_.text.empty() ? "" : absl::StrCat("/text ", BriefOf(model_.text));
  }

  void Fill() {
    const std::vector<double> every = LossesOf(kEveryStep);
    for (const DiLoCoArm& arm : {kDiLoCo, kLocalSgd, kAlone}) {
      const std::vector<double> losses = LossesOf(arm);
      std::vector<double> over;
      // Paired by seed: both have the same first parameters and batches.
      for (size_t i = 0; i < losses.size(); ++i) over.push_back(100 * (losses[i] / every[i] - 1));
      const Estimate percent = EstimateOf(over);
      const std::string key = absl::StrCat(model_.prefix, ".", arm.name);
      out_.Add(key, percent.mean,
               absl::StrCat("percent over every-step averaging's loss, +- ", percent.interval,
                            arm.outer && arm.workers > 1 ? "; bound 2, aim .5" : ""));
      out_.Add(key + ".interval", percent.interval, "");
      out_.Add(key + ".worst", *std::max_element(over.begin(), over.end()), "of the seeds");
    }
  }

 private:
  RunSpec SpecOf(const DiLoCoArm& arm, double rate, uint64_t seed) {
    // The key has all that the outcome depends on, the text too.
    return {absl::StrCat(model_.prefix, "/", arm.name, text_, "/rate ", rate, "/seed ", seed,
                         "/steps ", steps_),
            [this, arm, rate, seed] { return Run(arm, rate, seed); }};
  }

  Outcome Run(const DiLoCoArm& arm, double rate, uint64_t seed) const {
    const std::unique_ptr<Workload> workload = model_.MakeWorkload(seed);
    const StepOptions step{.schedule = ScheduleOf(rate, steps_), .clip = model_.clip, .seed = seed};
    if (arm.interval == 1) return RunEveryStep(step, *workload);
    worker::AveragingConfig config =
        simulator::DescentAveraging(worker::StrategyKind::kAllReduce, worker::GraphKind::kComplete);
    config.interval = arm.interval;
    if (arm.outer) config.outer = kDiLoCoOuter;
    PeersOptions peers;
    peers.descent = QuietDescent(config, arm.workers, seed);
    const double nominal = kDiLoCoStepSeconds * static_cast<double>(steps_);
    peers.descent.end = Seconds(4 * nominal);
    peers.descent.look_every = Seconds(nominal / 4);
    peers.step = step;
    peers.steps = steps_;
    // A step takes its nominal time, whatever the model costs.
    peers.flops_per_second = workload->flops_a_step() / kDiLoCoStepSeconds;
    peers.judged = 1;
    peers.judge_averages = true;
    return OutcomeOf(RunPeers(peers, *workload).back().score);
  }

  // In lock step: equal arithmetic, and no frames to simulate.
  Outcome RunEveryStep(const StepOptions& step, Workload& workload) const {
    LockStepOptions options{simulator::BaselineKind::kAllReduce, {}, step, steps_};
    options.baseline.graph.nodes = kDiLoCoWorkers;
    return OutcomeOf(RunLockStep(options, workload).score);
  }
  static Outcome OutcomeOf(const Score& score) {
    return {{"loss", score.mean}, {"accuracy", score.accuracy}};
  }

  // Of the fresh seeds, at the arm's own rate.
  std::vector<double> LossesOf(const DiLoCoArm& arm) {
    const BestRate best =
        Tune(runs_, {.spec = [&](double rate, uint64_t seed) { return SpecOf(arm, rate, seed); },
                     .score = [](const Outcome& outcome) { return outcome.at("loss"); },
                     .first_seed = kDiLoCoTuningSeed,
                     .rates = DiLoCoRates(),
                     .walk = options_.length == Length::kShort});
    const std::string key = absl::StrCat(model_.prefix, ".", arm.name);
    out_.Add(key + ".rate", best.rate, best.inside ? "tuned" : "tuned; at the grid's edge");
    std::vector<RunSpec> specs;
    for (uint64_t seed = options_.seed; seed < options_.seed + seeds_; ++seed)
      specs.push_back(SpecOf(arm, best.rate, seed));
    runs_.Do(specs);
    std::vector<double> losses;
    losses.reserve(specs.size());
    for (const RunSpec& spec : specs) losses.push_back(runs_.value(spec.key, "loss"));
    const Estimate loss = EstimateOf(losses);
    out_.Add(key + ".loss", loss.mean, absl::StrCat("held out, +- ", loss.interval));
    return losses;
  }

  const DiLoCoModel model_;
  const PapersOptions options_;
  Runs& runs_;
  Figures& out_;
  uint64_t steps_ = 0;
  uint64_t seeds_ = 0;
  std::string text_;  // of the keys of runs
};

}  // namespace

void DiLoCoPapers(const PapersOptions& options, Runs& runs, Figures& out) {
  DiLoCoTable({.prefix = "diloco"}, options, runs, out).Fill();
  // Hours: a step of it takes ten times as long.
  if (options.length == Length::kShort || options.text.empty()) return;
  DiLoCoTable({.prefix = "diloco.text", .text = options.text, .clip = 1}, options, runs, out)
      .Fill();
}

}  // namespace crowdsurf::bench
