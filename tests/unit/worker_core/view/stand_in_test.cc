// Averagings over grids with holes, against the weighted mean of all members.
#include "worker/core/view/stand_in.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

// An averaging in lock step over values of type T: every round every group takes the weighted mean
// of its contributors in rank order.
template <class T>
struct LockStep {
  Grid grid;
  std::vector<bool> seated;
  std::vector<T> value;
  std::vector<double> weight;
  std::vector<size_t> level;

  LockStep(size_t members, size_t max_group, Rng& rng) : grid(FitGrid(members, max_group)) {
    const size_t cells = grid.cells();
    std::vector<CellIndex> order(cells);
    std::iota(order.begin(), order.end(), 0);
    rng.Shuffle(order);
    seated.assign(cells, false);
    for (size_t i = 0; i < members; ++i) seated[order[i]] = true;
    value.resize(cells);
    weight.resize(cells);
    level.assign(cells, 0);
    for (size_t c = 0; c < cells; ++c) {
      value[c] = static_cast<T>(rng.Normal());
      weight[c] = rng.UniformDouble() + 0.1;
    }
  }

  double Mean() const {
    double sum = 0, total = 0;
    for (size_t c = 0; c < value.size(); ++c) {
      if (!seated[c]) continue;
      sum += weight[c] * static_cast<double>(value[c]);
      total += weight[c];
    }
    return sum / total;
  }

  void Round(size_t t, bool stand_ins = true) {
    auto next = value;
    auto next_weight = weight;
    auto next_level = level;
    const auto holds = [&](CellIndex c) { return seated[c] && level[c] == t; };
    for (CellIndex first = 0; first < grid.cells(); ++first) {
      const auto group = GroupCells(grid, first, t);
      if (group.front() != first) continue;
      T sum = 0;
      double total = 0;
      const auto contributors = Contributors(grid, first, t, holds);
      for (size_t rank = 0; rank < group.size(); ++rank) {
        const auto from = contributors[rank];
        if (!from || (!stand_ins && *from != group[rank])) continue;
        sum += static_cast<T>(weight[*from]) * value[*from];
        total += weight[*from];
      }
      for (const CellIndex c : group) {
        if (!holds(c)) continue;
        next[c] = static_cast<T>(static_cast<double>(sum) / total);
        next_weight[c] = total;
        next_level[c] = t + 1;
      }
    }
    value = next;
    weight = next_weight;
    level = next_level;
  }

  double WorstError(double mean) const {
    double worst = 0;
    for (size_t c = 0; c < value.size(); ++c)
      if (seated[c]) worst = std::max(worst, std::abs(static_cast<double>(value[c]) - mean));
    return worst;
  }
};

TEST(StandInTest, EveryMemberCountIsExactAfterAllAxesWithRandomHolesAndWeights) {
  for (size_t members = 2; members <= 1100; members += members < 70 ? 1 : 37) {
    for (size_t m : {2U, 4U, 8U, 32U, 64U}) {
      Rng rng(members * 100 + m);
      LockStep<double> all(members, m, rng);
      const double mean = all.Mean();
      for (size_t t = 0; t < all.grid.axes(); ++t) all.Round(t);
      ASSERT_LT(all.WorstError(mean), 1e-12) << members << " in groups of " << m;
    }
  }
}

TEST(StandInTest, Float32StaysWithinAMillionthOnTwoAndThreeAxes) {
  for (const auto& [members, m] : std::vector<std::pair<size_t, size_t>>{
           {23, 4}, {60, 4}, {500, 8}, {100, 10}, {521, 32}, {900, 32}}) {
    Rng rng(members);
    LockStep<float> all(members, m, rng);
    const double mean = all.Mean();
    for (size_t t = 0; t < all.grid.axes(); ++t) all.Round(t);
    EXPECT_LT(all.WorstError(mean), 1e-6) << members;
  }
}

TEST(StandInTest, WithoutStandInsHolesMakeTheMeanWrong) {  // the planted fault: the test can fail
  Rng rng(5);
  LockStep<double> all(23, 4, rng);
  const double mean = all.Mean();
  for (size_t t = 0; t < all.grid.axes(); ++t) all.Round(t, false);
  EXPECT_GT(all.WorstError(mean), 1e-3);
}

Seating SeatingOf(const Grid& grid, const std::set<CellIndex>& taken) {
  View view;
  view.grid = grid;
  for (const CellIndex cell : taken) view.members.push_back({.id = PeerAt(cell), .cell = cell});
  view.witnesses = ChooseWitnesses(view.members);
  return Seating(view, HashOf(view, "job"));
}

TEST(StandInTest, DutiesCoverExactlyTheSlicesThatThePlansName) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const Grid grid{{2, 3, 4}};
    std::set<CellIndex> taken;
    for (CellIndex c = 0; c < grid.cells(); ++c)
      if (rng.Bernoulli(0.6)) taken.insert(c);
    if (taken.empty()) continue;
    const Seating seating = SeatingOf(grid, taken);
    for (size_t round = 0; round < grid.axes(); ++round) {
      std::set<std::tuple<CellIndex, PeerId, size_t, size_t>> planned, taken_on;
      for (CellIndex hole = 0; hole < grid.cells(); ++hole) {
        if (taken.contains(hole)) continue;
        for (const auto& cell : PlanGroup(seating, hole, round, StandIns::kSpeak)) {
          if (cell.cell != hole) continue;
          for (size_t j = 0; j < cell.speakers.size(); ++j)
            planned.insert({hole, cell.speakers[j], j, cell.speakers.size()});
        }
      }
      for (const CellIndex self : taken) {
        for (const SpeakerDuty& duty : DutiesOf(seating, self, round)) {
          EXPECT_TRUE(AgreeFrom(grid, self, duty.hole, round));
          const auto group = GroupCells(grid, self, round);
          EXPECT_EQ(std::count(group.begin(), group.end(), duty.hole), 0);
          taken_on.insert({duty.hole, seating.At(self)->id, duty.slice, duty.slices});
        }
      }
      EXPECT_EQ(planned, taken_on) << "seed " << seed << " round " << round;
    }
  }
}

TEST(StandInTest, TheOwnGroupOfTheLastRoundSpeaksFirst) {
  const Grid grid{{2, 2, 3}};
  // Hole at (0,0,0): its class in round 2 is every cell (*,*,0); its own group of round 1 is
  // (0,*,0).
  const auto everybody = [](CellIndex) { return true; };
  const auto holders = Holders(grid, 0, 2, everybody, 8);
  EXPECT_EQ(holders, (std::vector<CellIndex>{3, 6, 9}));
  EXPECT_TRUE(Holders(grid, 0, 0, everybody, 8).empty());
  EXPECT_EQ(CatchUpDonor(grid, 0, 1, everybody), 6U);
  EXPECT_FALSE(CatchUpDonor(grid, 0, 1, [](CellIndex) { return false; }));
}

TEST(StandInTest, WithoutStandInsThePlanHasNoSpeakers) {
  const Seating seating = SeatingOf(Grid{{2, 2}}, {0, 1, 2});
  for (const auto& cell : PlanGroup(seating, 1, 1, StandIns::kNone))
    EXPECT_TRUE(cell.speakers.empty());
  EXPECT_FALSE(PlanGroup(seating, 1, 0, StandIns::kSpeak).back().member);
}

}  // namespace
}  // namespace crowdsurf::worker
