// DrawLeases: a job that draws leases, and loses one worker after the other.
#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "simulator/chaos/chaos_scenario.h"

namespace crowdsurf::simulator {
namespace {

constexpr double kWithNotice = 0.25;        // of the departures
constexpr double kSilent = 0.2;             // of the deaths
constexpr Duration kNewcomer = Seconds(1);  // it is neither killed nor asked to leave before

struct Node {
  int number = 0;
  Duration since;
};

}  // namespace

ChaosScenario DrawLeases(uint64_t seed, int departures) {
  Rng rng = Rng(seed).Fork("leases");
  const auto up_to = [&](int64_t most) {
    return static_cast<int64_t>(rng.Uniform(static_cast<uint64_t>(most) + 1));
  };
  ChaosScenario s;
  s.seed = seed;
  // Many and slowly enough that a quorum of the witnesses lives: branches count apart.
  s.members = static_cast<int>(6 + up_to(4));
  // One group, so that an averaging decides one value (docs/shard.md).
  s.group_size = 64;
  s.trainer.step_time = Milliseconds(10 + up_to(30));
  s.speed_spread = rng.UniformDouble();
  s.interval_steps = static_cast<double>(4 + up_to(12));
  s.data = {.samples = 500 + static_cast<uint64_t>(up_to(2000)),
            .unit = static_cast<uint32_t>(1 + up_to(7)),
            .seed = seed};
  s.links.mean_extra_delay = Microseconds(up_to(1000));
  std::vector<Node> living;
  for (int node = 0; node < s.members; ++node) living.push_back({node, Duration()});
  int next = s.members;
  Duration at = Seconds(1);
  for (int i = 0; i < departures; ++i) {
    at = at + Milliseconds(300 + up_to(700));
    size_t who = rng.Uniform(living.size());
    while (living[who].since + kNewcomer > at) who = (who + 1) % living.size();
    if (rng.Bernoulli(kWithNotice))
      s.leaves.push_back({.at = at, .length = {}, .node = living[who].number});
    else
      s.deaths.push_back({.node = living[who].number, .at = at, .silent = rng.Bernoulli(kSilent)});
    const Duration joins = at + Milliseconds(up_to(300));
    s.joins.push_back(joins);
    living[who] = {next++, joins};
  }
  s.heal = at + Seconds(4);
  return s;
}

}  // namespace crowdsurf::simulator
