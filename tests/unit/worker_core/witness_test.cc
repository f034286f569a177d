#include "worker/core/witness.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "worker/core/round_plan.h"

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
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 5).kind, Kind::kYes);
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 5).kind, Kind::kRefused);
  EXPECT_EQ(table.OnAccept(Id(1), {1, 1, 0}, 4, {1}).kind, Kind::kRefused);
  EXPECT_EQ(table.OnAccept(Id(1), {1, 1, 0}, 5, {2}).kind, Kind::kYes);
  const WitnessAnswer answer = table.OnOpen(Id(1), {1, 1, 0}, 7);
  EXPECT_EQ(answer.kind, Kind::kYes);
  EXPECT_EQ(answer.record.accepted, 5);
  EXPECT_EQ(answer.record.value, Bytes{2});
}

TEST(WitnessTest, ALentRegisterIsAnsweredByItsRoundAndComesBackWithItsPromises) {
  WitnessTable table;
  table.OnOpen(Id(1), {1, 1, 0}, 3);
  const auto record = table.Lend(Id(1), {1, 1, 0});
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->promised, 3);
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 9).kind, Kind::kLent);
  table.Retire(Id(1), {12, 0, {}}, true);
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 9).kind, Kind::kRefused);
}

TEST(WitnessTest, APrunedPromiseIsForgottenAndNeverMadeAnew) {
  WitnessTable table(2);
  for (int n = 1; n <= 2; ++n) {
    table.OnOpen(Id(n), {1, static_cast<uint64_t>(n), 0}, 3);
    table.MarkDecided(Id(n));
  }
  EXPECT_EQ(table.OnOpen(Id(3), {1, 3, 0}, 1).kind, Kind::kYes);
  EXPECT_EQ(table.pruned(), 1U);
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 9).kind, Kind::kForgotten);
  EXPECT_EQ(table.OnOpen(Id(2), {1, 2, 0}, 2).kind, Kind::kRefused);
}

TEST(WitnessTest, UndecidedRegistersAreNotPrunedHoweverManyCome) {
  WitnessTable table(2);
  for (int n = 1; n <= 2; ++n) table.OnOpen(Id(n), {1, 1, 0}, 3);
  EXPECT_EQ(table.OnOpen(Id(3), {1, 3, 0}, 1).kind, Kind::kFull);
  EXPECT_EQ(table.full(), 1U);
  EXPECT_EQ(table.size(), 2U);
}

TEST(WitnessTest, RegistersOfViewsTwoEpochsOldAreForgotten) {
  WitnessTable table;
  table.OnOpen(Id(1), {1, 1, 0}, 3);
  table.OnOpen(Id(2), {2, 1, 0}, 3);
  table.OnEpoch(3);
  EXPECT_EQ(table.OnOpen(Id(1), {1, 1, 0}, 4).kind, Kind::kForgotten);
  EXPECT_EQ(table.OnOpen(Id(2), {2, 1, 0}, 4).kind, Kind::kYes);
}

TEST(WitnessTest, AnyTwoQuorumsMeet) {
  for (size_t n = 1; n <= 8; ++n)
    for (uint64_t a = 0; a < uint64_t{1} << n; ++a)
      for (uint64_t b = 0; b < uint64_t{1} << n; ++b)
        if (IsQuorumOf(n, a) && IsQuorumOf(n, b)) {
          ASSERT_NE(a & b, 0U);
        }
}

}  // namespace
}  // namespace crowdsurf::worker
