// What IST opens and tells its trainer, action by action.
#include "worker/core/strategy/ist.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {
namespace {

const Time kNow = Time::FromNanoseconds(1);
constexpr size_t kMembers = 4;

UnitSchema Model() {
  return UnitSchema::Of({{"layer", {8, 3}, {{.axis = 0, .group = 0}}}, {"shared", {2}, {}}})
      .value();
}

View ViewOfAll() {
  View view;
  view.grid.radices = {kMembers};
  view.config.strategy = StrategyKind::kIst;
  view.seed = 7;
  view.epoch = 3;
  for (size_t i = 0; i < kMembers; ++i)
    view.members.push_back({.id = PeerAt(i), .cell = static_cast<CellIndex>(i)});
  std::sort(view.members.begin(), view.members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  return view;
}

class IstTest : public testing::Test {
 protected:
  IstTest() : IstTest(PeerAt(1)) {}
  explicit IstTest(const PeerId& self) {
    ist_.SetUnits(Model(), 4);
    StrategyActions none;
    ist_.OnView(kNow, ViewOfAll(), self, none);
  }
  StrategyActions Tell(const Event& event) {
    StrategyActions out;
    ist_.OnEvent(kNow, event, out);
    return out;
  }
  OpenRound Open(uint64_t averaging, AveragingId units = {}) {
    return std::get<OpenRound>(Tell(PublishedEvent{AveragingId(averaging), 10, units}).at(0));
  }
  StrategyActions Decide(uint64_t averaging, RankSet contributors = RankSet::FirstRanks(kMembers)) {
    return Tell(RoundDecided{AveragingId(averaging), 0, true, 40, contributors});
  }

  Ist ist_;
};

TEST_F(IstTest, AViewBeginsWithAnAverageOfWholeModels) {
  const OpenRound open = Open(5);
  EXPECT_EQ(open.subnet, nullptr);
  EXPECT_EQ(open.from, Region::kOutbox);
  const StrategyActions out = Decide(5);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(std::get<TellUnits>(out[0]).by, AveragingId(5));
  EXPECT_EQ(std::get<TellUnits>(out[0]).sets.at(0).size(), 2U) << "8 units for 4";
  EXPECT_EQ(std::get<DeliverResult>(out[1]).region, open.to);
}

TEST_F(IstTest, TheNextRoundIsOfItsUnits) {
  (void)Open(5);
  (void)Decide(5);
  const OpenRound open = Open(6, AveragingId(5));
  ASSERT_NE(open.subnet, nullptr);
  EXPECT_EQ(open.from, Region::kOutbox);
  EXPECT_EQ(open.weight, 10);
  EXPECT_EQ(open.subnet->exchange.uncovered(), 0U);
}

TEST_F(IstTest, ASnapshotOfOtherUnitsGivesTheBaseAndNoWeight) {
  (void)Open(5);
  (void)Decide(5);
  const OpenRound open = Open(6, AveragingId(4));
  EXPECT_EQ(open.from, Region::kInboxA);
  EXPECT_EQ(open.weight, 0);
  EXPECT_NE(open.subnet, nullptr);
}

TEST_F(IstTest, AnAveragingThatFailsChangesNoUnits) {
  (void)Open(5);
  (void)Decide(5);
  const OpenRound first = Open(6, AveragingId(5));
  const StrategyActions out = Tell(RoundDecided{AveragingId(6), 0, false, 0});
  ASSERT_EQ(out.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<AbandonAveraging>(out[0]));
  const OpenRound second = Open(7, AveragingId(5));
  EXPECT_EQ(second.subnet, first.subnet);
  EXPECT_NE(second.to, first.to);
}

TEST_F(IstTest, WhoIsNotInTheValueTrainsAllAndTakesPartInWhatAllShare) {
  (void)Open(5);
  const StrategyActions out = Decide(5, RankSet::Of(0, 2, 3));
  EXPECT_TRUE(std::get<TellUnits>(out[0]).sets.empty());
  const OpenRound open = Open(6);
  EXPECT_EQ(open.from, Region::kOutbox);
  uint32_t covered = 0;
  for (size_t chunk = 0; chunk < open.subnet->chunks.size(); ++chunk)
    if (open.subnet->Covers(1, chunk)) covered += open.subnet->chunks[chunk].span.count;
  EXPECT_EQ(covered, 2U);
  // In its next value it is there, and has units.
  EXPECT_FALSE(std::get<TellUnits>(Decide(6)[0]).sets.empty());
}

// All who hold the base deal alike: also who has fetched it.
TEST_F(IstTest, ABaseThatIsTakenDealsAsOneThatWasMade) {
  (void)Open(5);
  (void)Decide(5);
  Ist other;
  other.SetUnits(Model(), 4);
  StrategyActions out;
  other.OnView(kNow, ViewOfAll(), PeerAt(1), out);
  other.OnEvent(kNow, BaseTaken{AveragingId(5), RankSet::FirstRanks(kMembers)}, out);
  other.OnEvent(kNow, PublishedEvent{AveragingId(6), 1, AveragingId(5)}, out);
  EXPECT_EQ(std::get<OpenRound>(out.back()).subnet->chunks, Open(6, AveragingId(5)).subnet->chunks);
}

TEST_F(IstTest, WithoutABaseWholeModelsAreAveraged) {
  (void)Open(5);
  (void)Decide(5);
  (void)Tell(BaseLost{});
  EXPECT_EQ(Open(6, AveragingId(5)).subnet, nullptr);
}

}  // namespace
}  // namespace crowdsurf::worker
