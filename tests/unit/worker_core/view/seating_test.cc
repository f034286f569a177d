// Seats and vacancies: who sits where is a function of the sets, in whatever order they came
// (docs/views.md).
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {
namespace {

// Members 1..3 in cells 0..2 of a 2 x 3 grid: cells 3..5 are free.
Seating ThreeOfSix() {
  View view;
  view.grid = Grid{{2, 3}};
  for (uint8_t i = 0; i < 3; ++i)
    view.members.push_back({.id = Id(static_cast<uint8_t>(i + 1)), .cell = i, .joined_unix_ms = i});
  view.witnesses = ChooseWitnesses(view.members);
  return Seating(view, HashOf(view, "job"));
}

Seat SeatOf(uint8_t peer, CellIndex cell, uint8_t steward, uint32_t sitting = 1) {
  return {.member = {.id = Id(peer), .cell = cell, .joined_unix_ms = 100 + peer},
          .steward = Id(steward),
          .steward_joined_ms = steward,
          .sitting = sitting};
}

TEST(SeatingTest, ASeatFillsAFreeCellAndAVacancyOpensOne) {
  Seating seating = ThreeOfSix();
  EXPECT_EQ(seating.FreeCell(), 3U);
  EXPECT_TRUE(seating.Add(SeatOf(9, 3, 1)));
  EXPECT_FALSE(seating.Add(SeatOf(9, 3, 1)));
  EXPECT_EQ(seating.CellOf(Id(9)), 3U);
  EXPECT_EQ(seating.FreeCell(), 4U);
  EXPECT_TRUE(seating.Add(Vacancy{Id(2), 0}));
  EXPECT_EQ(seating.FreeCell(), 1U);
  EXPECT_TRUE(seating.Vacated(Id(2)));
  EXPECT_EQ(seating.At(1), nullptr);
}

TEST(SeatingTest, OfTwoSeatsForOneCellTheOlderStewardsStands) {
  Seating seating = ThreeOfSix();
  seating.Add(SeatOf(8, 4, 2));
  seating.Add(SeatOf(9, 4, 1));
  EXPECT_EQ(seating.At(4)->id, Id(9));
  EXPECT_FALSE(seating.CellOf(Id(8)));
  seating.Add(SeatOf(7, 0, 1));  // the view's own member keeps its cell
  EXPECT_EQ(seating.At(0)->id, Id(1));
}

TEST(SeatingTest, APeerVacatedByMistakeSitsAgainWithAHigherSitting) {
  Seating seating = ThreeOfSix();
  seating.Add(Vacancy{Id(1), seating.SittingOf(Id(1))});
  EXPECT_EQ(seating.NextSitting(Id(1)), 1U);
  EXPECT_TRUE(seating.Add(SeatOf(1, 5, 2, 1)));
  EXPECT_EQ(seating.CellOf(Id(1)), 5U);
  seating.Add(Vacancy{Id(1), seating.SittingOf(Id(1))});
  EXPECT_FALSE(seating.CellOf(Id(1)));
  EXPECT_EQ(seating.NextSitting(Id(1)), 2U);
}

TEST(SeatingTest, MergeIsTheSameInEveryOrderAndSplit) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::vector<Seat> seats;
    std::vector<Vacancy> vacancies;
    for (int i = 0; i < 12; ++i) {
      const auto peer = static_cast<uint8_t>(1 + rng.Uniform(9));
      if (rng.Bernoulli(0.3))
        vacancies.push_back({Id(peer), static_cast<uint32_t>(rng.Uniform(3))});
      else
        seats.push_back(SeatOf(peer, static_cast<CellIndex>(rng.Uniform(7)),
                               static_cast<uint8_t>(1 + rng.Uniform(3)),
                               static_cast<uint32_t>(rng.Uniform(3))));
    }
    Seating all = ThreeOfSix();
    all.Merge(seats, vacancies);
    rng.Shuffle(seats);
    rng.Shuffle(vacancies);
    Seating one = ThreeOfSix();
    Seating two = ThreeOfSix();
    for (const Seat& seat : seats) (rng.Bernoulli(0.5) ? one : two).Add(seat);
    for (const Vacancy& vacancy : vacancies) (rng.Bernoulli(0.5) ? one : two).Add(vacancy);
    one.Merge({two.seats().begin(), two.seats().end()},
              {two.vacancies().begin(), two.vacancies().end()});
    ASSERT_EQ(one.occupants(), all.occupants()) << "seed " << seed;
    ASSERT_EQ(one.MinorHash(), all.MinorHash()) << "seed " << seed;
    for (const auto& [cell, member] : all.occupants()) {
      EXPECT_LT(cell, 6U);
      EXPECT_EQ(all.CellOf(member.id), cell);
    }
  }
}

TEST(SeatingTest, SeatsOutsideTheGridAreIgnored) {
  Seating seating = ThreeOfSix();
  EXPECT_FALSE(seating.Add(SeatOf(9, 6, 1)));
  EXPECT_FALSE(seating.Add(SeatOf(9, 3, 1, 0)));
}

}  // namespace
}  // namespace crowdsurf::worker
