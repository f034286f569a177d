// A job whose machines are taken in batches, as a spot market does it, over links with a long tail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

constexpr Duration kMarket = Seconds(45);

// When some agent was given each averaging that nobody had been given before it.
class FirstDeliveries : public LogSink {
 public:
  void Write(LogLevel, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    if (message != "averaging delivered") return;
    const uint64_t number = std::stoull(fields.begin()->value);
    if (number <= last_) return;
    last_ = number;
    at_.push_back(std::atof(std::string(module).c_str()));  // it begins with the virtual time
  }

  // The longest time without a new one, in seconds, while the market takes machines.
  double LongestPause() const {
    double longest = 0;
    for (size_t i = 1; i < at_.size() && at_[i - 1] < kMarket.seconds(); ++i)
      longest = std::max(longest, at_[i] - at_[i - 1]);
    return longest;
  }
  size_t count() const { return at_.size(); }

 private:
  uint64_t last_ = 0;
  std::vector<double> at_;
};

// Twelve workers in groups of four, an averaging each .7 s. Links add 10 ms and a tail of 10 ms.
ChaosScenario Job(uint64_t seed) {
  ChaosScenario job;
  job.seed = seed;
  job.members = 12;
  job.group_size = 4;
  job.trainer.elements = 24;
  job.trainer.step_time = Milliseconds(100);
  job.interval_steps = 7;
  job.links.min_delay = Milliseconds(10);
  job.links.mean_extra_delay = Milliseconds(10);
  job.heartbeat = Milliseconds(500);
  job.heal = kMarket;
  return job;
}

// Every .5 to 2 s one to four machines are taken without notice; each is replaced after a second.
void TakeMachines(ChaosScenario& job) {
  Rng rng = Rng(job.seed).Fork("market");
  std::vector<std::pair<Duration, int>> machines;  // since when, the node
  for (int node = 0; node < job.members; ++node) machines.emplace_back(Duration(), node);
  int next = job.members;
  for (Duration at = Seconds(2); at < kMarket - Seconds(2);
       at = at + Milliseconds(500 + static_cast<int64_t>(rng.Uniform(1500)))) {
    for (uint64_t taken = 1 + rng.Uniform(4); taken > 0; --taken) {
      const size_t i = rng.Uniform(machines.size());
      if (machines[i].first >= at) continue;  // not there yet
      ChaosScenario::Death death;
      death.node = machines[i].second;
      death.at = at;
      job.deaths.push_back(death);
      job.joins.push_back(at + Seconds(1));
      machines[i] = {at + Seconds(1), next++};
    }
  }
}

// Of a view most of whose witnesses are gone, rounds that need a ballot are never decided: they
// lasted as long as their members' patience, up to 8 s.
TEST(SpotMarket, AveragesGoOnWhileMachinesAreTaken) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ChaosScenario job = Job(seed);
    TakeMachines(job);
    FirstDeliveries deliveries;
    job.log = &deliveries;
    const ChaosReport report = RunChaos(job);
    EXPECT_TRUE(report.violations.none());
    EXPECT_LE(deliveries.LongestPause(), 3);
    EXPECT_GE(deliveries.count(), 40u);
  }
}

// Each ballot costs its round two round trips, and here nobody dies.
TEST(SpotMarket, LinksWithALongTailNeedFewBallots) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const ChaosReport report = RunChaos(Job(seed));
    EXPECT_TRUE(report.violations.none());
    EXPECT_GE(report.delivered, 12 * 40u);
    EXPECT_LE(report.repaired, report.delivered / 5);
  }
}

}  // namespace
}  // namespace crowdsurf::simulator
