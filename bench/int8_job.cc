#include "bench/int8_job.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "bench/training/peers_run.h"
#include "simulator/descent/descent.h"

namespace crowdsurf::bench {
namespace {

constexpr int kMembers = 8;

simulator::DescentOptions BitsJob(worker::StrategyKind strategy, uint64_t seed) {
  constexpr double kEvery = 0.25, kFirst = 1, kLast = 11;  // seconds
  simulator::DescentOptions options;
  options.averaging = simulator::DescentAveraging(strategy, worker::GraphKind::kComplete);
  options.averaging.group_size = kMembers;
  options.averaging.compression = worker::WireFormat::kInt8;
  options.members = kMembers;
  options.dimensions = 2500;  // two blocks and a half: several members reduce
  options.chunk_elements = 1024;
  options.links.mean_extra_delay = Milliseconds(5);  // most deaths are in a round
  options.seed = seed;
  options.deaths = options.joins = {};
  options.victims = {};
  for (double at = kFirst; at < kLast; at += kEvery) {
    options.deaths.push_back(Seconds(at));
    // Soon after, so that the job keeps its size.
    options.joins.push_back(Seconds(at + 0.05));
  }
  options.end = Seconds(kLast + 1);
  return options;
}

// Averages of one job by averaging, and whether they are of changes.
class Averages {
 public:
  explicit Averages(Int8Bits& bits) : bits_(bits) {}

  void Compare(worker::AveragingId averaging, const std::vector<float>& average, bool changes) {
    if (average.empty()) return;
    const auto [at, fresh] = first_.try_emplace(averaging, &average);
    if (changes) of_changes_.insert(averaging);
    if (fresh) return;
    bits_.compared += of_changes_.contains(averaging);
    // The bytes, because 0 and -0 are equal as numbers.
    const size_t bytes = average.size() * sizeof(float);
    bits_.equal = bits_.equal && std::memcmp(average.data(), at->second->data(), bytes) == 0;
  }
  bool OfChanges(worker::AveragingId averaging) const { return of_changes_.contains(averaging); }

 private:
  Int8Bits& bits_;
  std::map<worker::AveragingId, const std::vector<float>*> first_;
  std::set<worker::AveragingId> of_changes_;
};

void Judge(const simulator::DescentResult& run, Int8Bits& bits) {
  Averages averages(bits);
  for (const auto& worker : run.averages)
    for (const auto& [averaging, average] : worker)
      averages.Compare(averaging, average.result, average.changes);
  for (const auto& worker : run.averages)
    for (const auto& [averaging, average] : worker)
      averages.Compare(averaging, average.fetched, false);
  std::set<worker::AveragingId> unfinished;
  for (size_t worker = 0; worker < run.averages.size(); ++worker) {
    if (!run.died[worker] || run.averages[worker].empty()) continue;
    const auto& [averaging, last] = *run.averages[worker].rbegin();
    const bool over = !last.result.empty() || !last.fetched.empty();
    if (!over && averages.OfChanges(averaging)) unfinished.insert(averaging);
  }
  bits.rounds += unfinished.size();
}

}  // namespace

Int8Bits Int8BitsOf(uint64_t seed, size_t rounds) {
  constexpr uint64_t kMostJobs = 400;
  Int8Bits bits;
  for (uint64_t job = 0; bits.rounds < rounds && job < kMostJobs; ++job) {
    const simulator::DescentOptions options =
        BitsJob(job % 2 == 0 ? worker::StrategyKind::kMoshpit : worker::StrategyKind::kAllReduce,
                seed + job);
    bits.deaths += options.deaths.size();
    Judge(simulator::RunDescent(options), bits);
  }
  // Too few are no answer.
  bits.equal = bits.equal && bits.rounds >= rounds;
  return bits;
}

double LossOnDigits(worker::WireFormat wire, uint64_t seed) {
  constexpr uint64_t kSteps = 800;
  worker::AveragingConfig averaging;
  averaging.group_size = kMembers;
  averaging.interval = 10;
  averaging.compression = wire;
  DigitsWorkload workload({.workers = kMembers, .alpha = 0, .seed = seed});
  PeersOptions options{.descent = QuietDescent(averaging, kMembers, seed),
                       .step = {.schedule = ScheduleOf(0.05, kSteps), .seed = seed},
                       .steps = kSteps};
  options.descent.end = Seconds(60);
  return RunPeers(options, workload).back().score.mean;
}

Estimate MeanOf(const std::vector<double>& samples) {
  CHECK_GE(samples.size(), size_t{2});
  const auto n = static_cast<double>(samples.size());
  Estimate mean;
  for (const double sample : samples) mean.value += sample / n;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean.value) * (sample - mean.value);
  mean.error = std::sqrt(squares / (n * (n - 1)));
  return mean;
}

}  // namespace crowdsurf::bench
