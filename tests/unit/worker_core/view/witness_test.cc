// The witnesses' registers: a promise is kept, or forgotten for good, and never broken
// (docs/round.md, How long a witness remembers).
#include "worker/core/view/witness.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "worker/core/round/round_plan.h"

namespace crowdsurf::worker {
namespace {

RegisterId Id(int number) {
  ByteWriter out;
  out.U32(static_cast<uint32_t>(number));
  return RegisterId::Round(*InstanceId::From(Sha256(out.bytes()).view().first(16)));
}
using Kind = WitnessAnswer::Kind;

TEST(WitnessTest, APromiseRefusesOlderBallotsAndAcceptsItsOwn) {
  WitnessTable table;
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 5).kind, Kind::kYes);
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 5).kind, Kind::kRefused);
  EXPECT_EQ(table.OnAccept(Id(1), {1, AveragingId(1), 0}, 4, {1}).kind, Kind::kRefused);
  EXPECT_EQ(table.OnAccept(Id(1), {1, AveragingId(1), 0}, 5, {2}).kind, Kind::kYes);
  const WitnessAnswer answer = table.OnOpen(Id(1), {1, AveragingId(1), 0}, 7);
  EXPECT_EQ(answer.kind, Kind::kYes);
  EXPECT_EQ(answer.record.accepted, 5);
  EXPECT_EQ(answer.record.value, Bytes{2});
}

TEST(WitnessTest, ALentRegisterIsAnsweredByItsRoundAndComesBackWithItsPromises) {
  WitnessTable table;
  table.OnOpen(Id(1), {1, AveragingId(1), 0}, 3);
  const auto record = table.Lend(Id(1), {1, AveragingId(1), 0});
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->promised, 3);
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 9).kind, Kind::kLent);
  table.Retire(Id(1), {12, 0, {}});
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 9).kind, Kind::kRefused);
}

TEST(WitnessTest, APrunedPromiseIsForgottenAndNeverMadeAnew) {
  WitnessTable table(2);
  for (int n = 1; n <= 2; ++n) {
    table.OnOpen(Id(n), {1, AveragingId(static_cast<uint64_t>(n)), 0}, 3);
  }
  EXPECT_EQ(table.OnOpen(Id(3), {1, AveragingId(3), 0}, 1).kind, Kind::kYes);
  EXPECT_EQ(table.pruned(), 1U);
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 9).kind, Kind::kForgotten);
  EXPECT_EQ(table.OnOpen(Id(2), {1, AveragingId(2), 0}, 2).kind, Kind::kRefused);
}

// Two groups of one averaging: what had to go for one says nothing of the other.
TEST(WitnessTest, APrunedRegisterForgetsNoSiblingOfItsAge) {
  WitnessTable table(2);
  table.OnOpen(Id(1), {1, AveragingId(1), 0}, 3);
  table.OnOpen(Id(2), {1, AveragingId(2), 0}, 3);
  table.OnOpen(Id(3), {1, AveragingId(3), 0}, 3);  // the first makes room
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 9).kind, Kind::kForgotten);
  EXPECT_TRUE(table.Lend(Id(4), {1, AveragingId(1), 0}).has_value())
      << "a group of the same averaging";
}

// A peer's own rounds, too, however long the view lasts.
TEST(WitnessTest, OwnRegistersMakeRoomForEachOther) {
  WitnessTable table(4);
  for (int n = 1; n <= 100; ++n) {
    ASSERT_TRUE(table.Lend(Id(n), {1, AveragingId(static_cast<uint64_t>(n)), 0}).has_value());
    table.Retire(Id(n), {1, 0, {}});
  }
  EXPECT_EQ(table.size(), 4U);
  EXPECT_EQ(table.pruned(), 96U);
  EXPECT_FALSE(table.Lend(Id(1), {1, AveragingId(1), 0}).has_value())
      << "it must not be opened again";
  EXPECT_EQ(table.OnOpen(Id(200), {1, AveragingId(98), 0}, 3).kind, Kind::kYes)
      << "another group's";
}

TEST(WitnessTest, TheBytesOfValuesAreBounded) {
  WitnessTable table(100, 50);
  const auto accept = [&](int n, uint64_t averaging, size_t bytes) {
    return table.OnAccept(Id(n), {1, AveragingId(averaging), 0}, 1, Bytes(bytes)).kind;
  };
  EXPECT_EQ(accept(1, 1, 30), Kind::kYes);
  EXPECT_EQ(accept(2, 2, 30), Kind::kYes);
  EXPECT_EQ(table.bytes(), 30U);
  EXPECT_EQ(accept(1, 1, 30), Kind::kForgotten);
  EXPECT_EQ(accept(3, 2, 30), Kind::kFull) << "nothing older can go";
  EXPECT_EQ(table.OnOpen(Id(3), {1, AveragingId(2), 0}, 1).kind, Kind::kYes)
      << "and nothing was accepted";
  EXPECT_EQ(accept(4, 9, 51), Kind::kFull);
  EXPECT_LE(table.bytes(), 50U);
}

// Ids of what made room are bounded as well: then the oldest averaging goes as a whole.
TEST(WitnessTest, WhatWasPrunedIsNeverPromisedAnewHoweverMuchItIs) {
  WitnessTable table(1);
  const int most = static_cast<int>(WitnessTable::kMaxForgotten) + 100;
  for (int n = 1; n <= most; ++n)
    ASSERT_EQ(table.OnOpen(Id(n), {1, AveragingId(static_cast<uint64_t>(n)), 0}, 3).kind,
              Kind::kYes);
  EXPECT_EQ(table.pruned(), static_cast<uint64_t>(most - 1));
  for (int n = 1; n < most; n += 7)
    ASSERT_EQ(table.OnOpen(Id(n), {1, AveragingId(static_cast<uint64_t>(n)), 0}, 9).kind,
              Kind::kForgotten);
}

TEST(WitnessTest, RegistersOfOneAveragingDoNotMakeRoomForEachOther) {
  WitnessTable table(2);
  for (int n = 1; n <= 2; ++n) table.OnOpen(Id(n), {1, AveragingId(1), 0}, 3);
  EXPECT_EQ(table.OnOpen(Id(3), {1, AveragingId(1), 0}, 1).kind, Kind::kFull);
  EXPECT_EQ(table.full(), 1U);
  EXPECT_EQ(table.size(), 2U);
}

TEST(WitnessTest, RegistersOfViewsTwoEpochsOldAreForgotten) {
  WitnessTable table;
  table.OnOpen(Id(1), {1, AveragingId(1), 0}, 3);
  table.OnOpen(Id(2), {2, AveragingId(1), 0}, 3);
  table.OnEpoch(3);
  EXPECT_EQ(table.OnOpen(Id(1), {1, AveragingId(1), 0}, 4).kind, Kind::kForgotten);
  EXPECT_EQ(table.OnOpen(Id(2), {2, AveragingId(1), 0}, 4).kind, Kind::kYes);
}

TEST(WitnessTest, AnyTwoQuorumsMeet) {
  for (size_t n = 1; n <= 8; ++n)
    for (uint64_t a = 0; a < uint64_t{1} << n; ++a)
      for (uint64_t b = 0; b < uint64_t{1} << n; ++b)
        if (IsQuorumOf(n, a) && IsQuorumOf(n, b)) {
          ASSERT_NE(a & b, 0U);
        }
}

// What was pruned is remembered one by one only so far. Of older averagings nothing is known any
// more, so a register that nobody asked for yet is forgotten with them.
TEST(WitnessTest, BelowTheFloorAlsoAnUnknownRegisterIsForgotten) {
  WitnessTable table(1);
  const int floor = 50, most = static_cast<int>(WitnessTable::kMaxForgotten) + floor + 1;
  for (int n = 1; n <= most; ++n)
    table.OnOpen(Id(n), {1, AveragingId(static_cast<uint64_t>(n)), 0}, 3);
  const AveragingId last(static_cast<uint64_t>(floor));
  EXPECT_EQ(table.OnOpen(Id(-1), {1, last, 0}, 9).kind, Kind::kForgotten);
  EXPECT_FALSE(table.Lend(Id(-2), {1, last, 0}).has_value());
  EXPECT_TRUE(table.Lend(Id(-3), {1, last + 1, 0}).has_value());
  EXPECT_TRUE(table.Lend(Id(-4), {2, last, 0}).has_value()) << "another view's";
}

TEST(WitnessTest, APromiseInTheParentViewStillHolds) {
  WitnessTable table;
  table.OnOpen(Id(1), {2, AveragingId(1), 0}, 3);
  table.OnEpoch(3);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.OnOpen(Id(1), {2, AveragingId(1), 0}, 2).kind, Kind::kRefused);
  table.OnEpoch(4);
  EXPECT_EQ(table.size(), 0U);
}

}  // namespace
}  // namespace crowdsurf::worker
