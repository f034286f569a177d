// DrawChaos: sizes, speeds, links and faults of a job, all from one seed.
#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "simulator/chaos/chaos_scenario.h"
#include "worker/core/vector/int8_chunk.h"

namespace crowdsurf::simulator {
namespace {

using Spell = ChaosScenario::Spell;

class Draw {
 public:
  Draw(uint64_t seed, int least, int most) : rng_(Rng(seed).Fork("chaos")) {
    s_.seed = seed;
    s_.members = least + OneOf(most - least + 1);
  }

  ChaosScenario Go() {
    DrawJob();
    // Mild runs have faults under which L1 must hold (docs/simulator.md).
    s_.mild = rng_.Bernoulli(0.3);
    DrawDeaths();
    DrawJoinsAndLeaves();
    Rng fills = Rng(s_.seed).Fork("fills");
    s_.fills = fills.Bernoulli(0.5) ? fills.UniformDouble() : 0;
    DrawClocks();
    DrawFetches();
    if (!s_.mild) {
      DrawLongSteps();
      DrawLinks();
      DrawSpells();
    }
    return s_;
  }

 private:
  int OneOf(int count) { return static_cast<int>(rng_.Uniform(static_cast<uint64_t>(count))); }
  Duration Within(Duration most) {
    return Nanoseconds(
        static_cast<int64_t>(rng_.Uniform(static_cast<uint64_t>(most.nanoseconds()) + 1)));
  }
  // When a fault begins: before the links heal.
  Duration During() { return Within(s_.heal * 0.9); }
  int Nodes() const { return s_.members + static_cast<int>(s_.joins.size()); }

  void DrawJob() {
    s_.group_size = static_cast<uint16_t>(2 + OneOf(5));
    // Float32 twice: half of the jobs lose nothing to compression.
    const worker::WireFormat wires[] = {worker::WireFormat::kFloat32, worker::WireFormat::kFloat32,
                                        worker::WireFormat::kFloat16,
                                        worker::WireFormat::kBFloat16};
    s_.wire = wires[OneOf(4)];
    // Few values in small chunks: many chunks a round, and few bytes to compute with.
    s_.trainer.elements = 1 + static_cast<uint32_t>(OneOf(8));
    s_.chunk_elements = 1 + static_cast<size_t>(OneOf(3));
    s_.trainer.step_time = Milliseconds(20 + OneOf(60));
    s_.interval_steps = 3 + OneOf(10);
    s_.speed_spread = rng_.Bernoulli(0.5) ? rng_.UniformDouble() : 0;
    s_.trainer.refuse = rng_.Bernoulli(0.1) ? 0.05 : 0;
    s_.fold_time = Within(Microseconds(500));
    s_.start_spread = rng_.Bernoulli(0.3) ? Seconds(1) : Milliseconds(50);
    s_.links.min_delay = Microseconds(50 + OneOf(500));
    s_.links.mean_extra_delay = Microseconds(OneOf(1'000));
    s_.detection = Within(Milliseconds(30));
  }

  // Members that are late by a long step, and taken for absent: so not in mild runs. Averagings
  // come as often as with short steps.
  void DrawLongSteps() {
    Rng steps = Rng(s_.seed).Fork("steps");
    if (!steps.Bernoulli(0.1)) return;
    s_.trainer.step_time = kLongStep + Milliseconds(static_cast<int64_t>(steps.Uniform(1901)));
    s_.interval_steps = static_cast<double>(1 + steps.Uniform(2));
  }

  void DrawDeaths() {
    if (rng_.Bernoulli(0.25)) return;
    // A mild run keeps a majority; others may lose half of the members and more.
    const int most = s_.mild ? (s_.members - 1) / 2 : (s_.members + 1) / 2;
    if (most == 0) return;
    std::vector<int> nodes(static_cast<size_t>(s_.members));
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<int>(i);
    rng_.Shuffle(nodes);
    const Duration wave = During();
    // In a wave all die at one moment.
    const bool together = rng_.Bernoulli(0.3);
    for (int i = 0; i <= OneOf(most); ++i) {
      ChaosScenario::Death death{.node = nodes[static_cast<size_t>(i)]};
      if (rng_.Bernoulli(0.5))
        death.at = together ? wave : During();
      else
        // Between any two of its actions; a small number is in its first rounds.
        death.after_actions = rng_.Uniform(rng_.Bernoulli(0.5) ? 300 : 3'000);
      death.silent = !s_.mild && rng_.Bernoulli(0.3);
      s_.deaths.push_back(death);
    }
  }

  void DrawJoinsAndLeaves() {
    if (rng_.Bernoulli(0.5))
      for (int i = OneOf(3); i >= 0; --i) s_.joins.push_back(During());
    if (rng_.Bernoulli(0.2)) s_.leaves.push_back({During(), Duration(), OneOf(s_.members)});
  }

  // A quarter of a state comes in up to several averages of the others.
  void DrawFetches() {
    Rng fetches = Rng(s_.seed).Fork("fetches");
    if (fetches.Bernoulli(0.5))
      s_.fetch_part = Milliseconds(static_cast<int64_t>(1 + fetches.Uniform(200)));
  }

  // One clock in a quarter of the jobs, by up to five seconds: five lives of a record.
  void DrawClocks() {
    Rng clocks = Rng(s_.seed).Fork("clocks");
    if (!clocks.Bernoulli(0.25)) return;
    const int node = static_cast<int>(clocks.Uniform(static_cast<uint64_t>(Nodes())));
    s_.skews.push_back({node, Seconds(10 * clocks.UniformDouble() - 5)});
    // In half of them rounds are further apart than a record lives, and nobody speaks in between.
    if (clocks.Bernoulli(0.5))
      s_.interval_steps =
          std::ceil(3 * s_.heartbeat.seconds() / s_.trainer.step_time.seconds()) * 2;
  }

  void DrawLinks() {
    s_.links.in_order = rng_.Bernoulli(0.7);
    if (rng_.Bernoulli(0.3)) s_.links.loss = 0.03 * rng_.UniformDouble();
    if (rng_.Bernoulli(0.3)) s_.links.duplicate = 0.1 * rng_.UniformDouble();
    if (rng_.Bernoulli(0.3)) {
      s_.links.slow = 0.02 * rng_.UniformDouble();
      s_.links.slow_factor = 10 + rng_.UniformDouble() * 200;
    }
    if (rng_.Bernoulli(0.3)) s_.record_loss = 0.5 * rng_.UniformDouble();
  }

  // With `chance`, one to `most` of them.
  std::vector<Spell> Some(double chance, int most, Duration longest) {
    std::vector<Spell> spells;
    if (!rng_.Bernoulli(chance)) return spells;
    for (int i = OneOf(most); i >= 0; --i)
      spells.push_back({During(), Within(longest), OneOf(Nodes()), OneOf(Nodes())});
    return spells;
  }

  // Each with an even chance.
  std::set<int> SomeNodes() {
    constexpr int kAtOnce = 30;  // nodes, by the bits of one number
    std::set<int> some;
    for (int first = 0; first < Nodes(); first += kAtOnce) {
      const int count = std::min(kAtOnce, Nodes() - first);
      const int bits = OneOf(1 << count);
      for (int i = 0; i < count; ++i)
        if (bits >> i & 1) some.insert(first + i);
    }
    return some;
  }

  void DrawSpells() {
    s_.freezes = Some(0.3, 3, Seconds(2));
    s_.cuts = Some(0.3, 4, Seconds(2));
    s_.suspicions = Some(0.4, 6, Milliseconds(1));
    s_.hidden = Some(0.3, 4, Seconds(2));
    for (const Spell& spell : Some(0.25, 2, Seconds(2)))
      s_.partitions.push_back({spell.at, spell.length, {}});
    for (ChaosScenario::Partition& partition : s_.partitions) partition.side = SomeNodes();
    // A hard reset is told only of somebody dead, most of the time: it is what branches are made
    // of.
    for (Spell& spell : s_.suspicions)
      if (rng_.Bernoulli(0.7)) spell.length = Duration();
  }

  Rng rng_;
  ChaosScenario s_;
};

}  // namespace

worker::OuterOptimizer DrawOuter(uint64_t seed) {
  Rng rng = Rng(seed).Fork("outer");
  const bool nesterov = rng.Bernoulli(0.5);
  worker::OuterOptimizer outer;
  outer.kind = nesterov ? worker::OuterKind::kNesterov : worker::OuterKind::kSgd;
  outer.learning_rate = 0.3 + 0.7 * rng.UniformDouble();
  outer.momentum = rng.Bernoulli(0.3) ? 0 : 0.9 * rng.UniformDouble();
  return outer;
}

void DrawIst(ChaosScenario& scenario) {
  Rng rng = Rng(scenario.seed).Fork("ist");
  // Fewer units than members, too.
  const uint64_t first = 1 + rng.Uniform(5), second = 1 + rng.Uniform(4);
  scenario.ist = true;
  scenario.units =
      worker::UnitSchema::Of(
          {{"first", {first, 2}, {{.axis = 0, .group = 0}}},
           {"between", {second, first}, {{.axis = 0, .group = 1}, {.axis = 1, .group = 0}}},
           {"bias", {second}, {{.axis = 0, .group = 1}}},
           {"shared", {2}, {}}})
          .value();
  scenario.trainer.elements = static_cast<uint32_t>(scenario.units.elements());
  // A member that missed an averaging takes its base at a step boundary. Where steps are long and
  // each ends with an averaging, it is a base behind for ever (docs/round.md, Known).
  if (scenario.trainer.step_time >= kLongStep)
    scenario.interval_steps = std::max(scenario.interval_steps, 4.0);
}

void DrawOneRound(ChaosScenario& scenario) {
  Rng rng = Rng(scenario.seed).Fork("one round");
  scenario.one_round = true;
  // Small, so that most grids have several axes.
  scenario.group_size = static_cast<uint16_t>(2 + rng.Uniform(2));
  if (rng.Bernoulli(0.3)) scenario.weighting = worker::Weighting::kEqual;
}

void DrawInt8(ChaosScenario& scenario) {
  Rng rng = Rng(scenario.seed).Fork("int8");
  scenario.wire = worker::WireFormat::kInt8;
  scenario.group_size = 64;  // one group of all
  // Two blocks, so that two members reduce; most have one, which costs less to watch.
  if (rng.Bernoulli(0.2))
    scenario.trainer.elements = static_cast<uint32_t>(worker::kInt8Block + 1 + rng.Uniform(8));
}

ChaosScenario DrawChaos(uint64_t seed, int min_members, int max_members) {
  return Draw(seed, min_members, max_members).Go();
}

}  // namespace crowdsurf::simulator
