// The rounds that Moshpit opens over a grid, action by action, in the order of docs/averaging.md.
#include "worker/core/strategy/moshpit.h"
#include "worker/core/strategy/strategy_factory.h"
#include "worker/core/view/view.h"

#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

const Time kNow = Time::FromNanoseconds(1);

View ViewWith(std::vector<uint16_t> radices, RoundsMode rounds = RoundsMode::kAll) {
  View view;
  view.grid.radices = std::move(radices);
  view.config.rounds = rounds;
  return view;
}

TEST(MoshpitTest, OneTripVisitsEveryAxisAndCarriesTheWeight) {
  Moshpit moshpit;
  StrategyActions out;
  moshpit.OnView(kNow, ViewWith({2, 3, 4}), PeerId(), out);
  moshpit.OnEvent(kNow, PublishedEvent{AveragingId(5), 10}, out);
  Region from = Region::kOutbox;
  double weight = 10;
  for (size_t axis = 0; axis < 3; ++axis) {
    ASSERT_EQ(out.size(), 1U);
    const auto open = std::get<OpenRound>(out[0]);
    EXPECT_EQ(open.axis, axis);
    EXPECT_EQ(open.from, from);
    EXPECT_NE(open.to, from);
    EXPECT_NE(open.to, Region::kOutbox);
    EXPECT_EQ(open.weight, weight);
    from = open.to;
    weight *= 3;
    out.clear();
    moshpit.OnEvent(kNow, RoundDecided{AveragingId(5), axis, true, weight}, out);
  }
  ASSERT_EQ(out.size(), 1U);
  const auto deliver = std::get<DeliverResult>(out[0]);
  EXPECT_EQ(deliver.region, from);
  EXPECT_EQ(deliver.weight, 270);
}

TEST(MoshpitTest, TheNextAveragingDoesNotOverwriteTheDeliveredOneFirst) {
  Moshpit moshpit;
  StrategyActions out;
  moshpit.OnView(kNow, ViewWith({4}), PeerId(), out);
  Region last = Region::kOutbox;
  for (uint64_t k = 1; k <= 4; ++k) {
    out.clear();
    moshpit.OnEvent(kNow, PublishedEvent{AveragingId(k), 1}, out);
    EXPECT_NE(std::get<OpenRound>(out[0]).to, last);
    moshpit.OnEvent(kNow, RoundDecided{AveragingId(k), 0, true, 4}, out);
    last = std::get<DeliverResult>(out[1]).region;
  }
}

TEST(MoshpitTest, ALostRoundAbandonsTheAveragingAndTheNextOneStartsAnew) {
  Moshpit moshpit;
  StrategyActions out;
  moshpit.OnView(kNow, ViewWith({2, 2}), PeerId(), out);
  moshpit.OnEvent(kNow, PublishedEvent{AveragingId(1), 1}, out);
  moshpit.OnEvent(kNow, RoundDecided{AveragingId(1), 0, false, 0}, out);
  EXPECT_EQ(std::get<AbandonAveraging>(out.back()).averaging, AveragingId(1));
  moshpit.OnEvent(kNow, RoundDecided{AveragingId(1), 1, true, 9}, out);  // too late: nothing
  EXPECT_EQ(out.size(), 2U);
  moshpit.OnEvent(kNow, PublishedEvent{AveragingId(2), 3}, out);
  EXPECT_EQ(std::get<OpenRound>(out.back()).from, Region::kOutbox);
  EXPECT_EQ(std::get<OpenRound>(out.back()).weight, 3);
}

// What it opens for averaging `k` until it delivers; every round is applied.
std::vector<OpenRound> TripOf(Moshpit& moshpit, uint64_t k) {
  std::vector<OpenRound> opened;
  StrategyActions out;
  moshpit.OnEvent(kNow, PublishedEvent{AveragingId(k), 1}, out);
  while (const auto* open = std::get_if<OpenRound>(&out.back())) {
    opened.push_back(*open);
    moshpit.OnEvent(kNow, RoundDecided{AveragingId(k), opened.back().axis, true, 2}, out);
  }
  EXPECT_TRUE(std::holds_alternative<DeliverResult>(out.back()));
  return opened;
}

TEST(MoshpitTest, AxesTakeTurnsBetweenAveragingsThatCount) {
  Moshpit moshpit;
  StrategyActions out;
  View view = ViewWith({2, 3, 4}, RoundsMode::kOne);
  view.first_averaging = AveragingId(7);
  moshpit.OnView(kNow, view, PeerId(), out);
  EXPECT_EQ(TripOf(moshpit, 7).size(), 3U);  // the view's first is whole
  for (uint64_t turn = 0; turn < 6; ++turn) {
    const auto round = TripOf(moshpit, 8 + 2 * turn);
    ASSERT_EQ(round.size(), 1U);
    EXPECT_EQ(round[0].axis, turn % 3);
    EXPECT_EQ(round[0].from, Region::kOutbox);
    EXPECT_EQ(TripOf(moshpit, 9 + 2 * turn).size(), 3U);
  }
}

// Newcomers fetch the average that the view began with.
TEST(MoshpitTest, SingleRoundsLeaveTheWholeAverageAlone) {
  Moshpit moshpit;
  StrategyActions out;
  moshpit.OnView(kNow, ViewWith({2, 2}, RoundsMode::kOne), PeerId(), out);
  const Region whole = TripOf(moshpit, 0).back().to;
  for (uint64_t k = 1; k < 8; k += 2) EXPECT_NE(TripOf(moshpit, k).back().to, whole);
}

TEST(MoshpitTest, WithOneAxisEveryAveragingIsWhole) {
  View view = ViewWith({4}, RoundsMode::kOne);
  EXPECT_FALSE(Turns(view).taken());
  view.grid.radices = {2, 2};
  EXPECT_TRUE(Turns(view).taken());
  view.config.rounds = RoundsMode::kAll;
  EXPECT_FALSE(Turns(view).taken());
  view.config.rounds = RoundsMode::kOne;
  view.config.strategy = StrategyKind::kGossip;  // its views begin with a whole average
  EXPECT_FALSE(Turns(view).taken());
}

TEST(MoshpitTest, ANewViewAbandonsWhatIsUnderWay) {
  Moshpit moshpit;
  StrategyActions out;
  moshpit.OnView(kNow, ViewWith({2, 2}), PeerId(), out);
  EXPECT_TRUE(out.empty());
  moshpit.OnEvent(kNow, PublishedEvent{AveragingId(1), 1}, out);
  moshpit.OnView(kNow, ViewWith({3}), PeerId(), out);
  EXPECT_EQ(std::get<AbandonAveraging>(out.back()).averaging, AveragingId(1));
}

TEST(StrategyTest, EachKindIsMade) {
  for (const StrategyKind kind : {StrategyKind::kMoshpit, StrategyKind::kAllReduce,
                                  StrategyKind::kPowerGossip, StrategyKind::kIst}) {
    EXPECT_TRUE(IsBuilt(kind));
    EXPECT_NE(MakeStrategy(kind, Rng(1)), nullptr);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
