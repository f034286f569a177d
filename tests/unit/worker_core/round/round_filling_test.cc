// Rounds of which a member's input comes in parts. Its own values are counted by what it sends.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/round/round_group.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {
namespace {

constexpr int kChunks = 9;  // of each member three: 0, 3, 6 are those of member 0

// Member 0 has the input of the first `chunks` chunks, the others have all.
RoundGroup FilledUpTo(size_t chunks) {
  return RoundGroup(
      [chunks](RoundSpec& spec) {
        if (spec.self == 0) spec.filled = chunks;
      },
      kChunks);
}

void Fill(RoundGroup& group, size_t chunks) {
  group.Do(0, [chunks](Round& r, RoundActions& out) { r.OnFilled(chunks, out); });
}

std::vector<uint32_t> SentBy(const RoundGroup& group, int self) {
  std::vector<uint32_t> chunks;
  for (const RoundAction& action : group.done[static_cast<size_t>(self)])
    if (const auto* input = std::get_if<SendInput>(&action)) chunks.push_back(input->chunk.value());
  return chunks;
}

TEST(RoundFillingTest, AChunkIsNeitherSentNorFoldedBeforeItsInputIsThere) {
  RoundGroup group = FilledUpTo(0);
  group.StartAll();
  group.Settle();
  for (size_t filled = 0; filled <= kChunks; ++filled) {
    Fill(group, filled);
    group.Settle();
    size_t others = 0, own = 0;
    for (size_t c = 0; c < filled; ++c) ++(c % kRoundMembers == 0 ? own : others);
    EXPECT_EQ(SentBy(group, 0).size(), others) << filled;
    for (const uint32_t chunk : SentBy(group, 0)) EXPECT_LT(chunk, filled);
    EXPECT_EQ(group.Count<FoldChunk>(0), own) << filled;
    EXPECT_EQ(group.at(0).over(), filled == kChunks) << filled;
  }
  for (int i = 0; i < kRoundMembers; ++i) {
    ASSERT_TRUE(group.at(i).outcome().has_value());
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kFast);
    EXPECT_EQ(group.at(i).outcome()->stake.weight, 1 + 2 + 3);
    for (const ChunkValue& slot : group.at(i).slots()) EXPECT_EQ(slot.mask.size(), 3U);
  }
}

TEST(RoundFillingTest, LessThanBeforeChangesNothing) {
  RoundGroup group = FilledUpTo(5);
  group.StartAll();
  group.Settle();
  const uint64_t before = group.at(0).Fingerprint();
  const uint64_t progress = group.at(0).progress();
  for (const size_t chunks : {0, 3, 5}) Fill(group, chunks);
  EXPECT_EQ(group.at(0).Fingerprint(), before);
  EXPECT_EQ(group.at(0).progress(), progress);
  Fill(group, 6);
  EXPECT_NE(group.at(0).Fingerprint(), before);
  EXPECT_GT(group.at(0).progress(), progress);
}

TEST(RoundFillingTest, WhatIsAskedForBeforeItIsThereIsSentOnceItIs) {
  RoundGroup group = FilledUpTo(1);
  group.StartAll();
  group.Settle();
  group.Do(0, [](Round& r, RoundActions& out) {
    r.OnFrame(PeerAt(1), {InstanceId(), Ask{0, 0, {ChunkIndex(1), ChunkIndex(4)}}}, out);
  });
  EXPECT_TRUE(SentBy(group, 0).empty());
  Fill(group, 2);
  EXPECT_EQ(SentBy(group, 0), std::vector<uint32_t>{1});
  Fill(group, kChunks);
  group.Settle();
  EXPECT_EQ(SentBy(group, 0).size(), 6U) << "each of the others' chunks once";
  EXPECT_EQ(group.at(2).outcome()->outcome, Outcome::kFast);
}

// What the others have of it stays in their sums; the rest goes on without it.
TEST(RoundFillingTest, WhoLeavesBeforeAllIsThereIsInTheChunksThatItHasSent) {
  RoundGroup group = FilledUpTo(3);
  group.StartAll();
  group.Settle();
  group.Do(0, [](Round& r, RoundActions& out) { r.OnLeave(out); });
  group.Settle();
  for (int i = 1; i < kRoundMembers; ++i) {
    group.Suspect(i, 0);
    group.Settle();
  }
  for (int i = 1; i < kRoundMembers; ++i) {
    ASSERT_TRUE(group.at(i).outcome().has_value());
    EXPECT_TRUE(Applied(group.at(i).outcome()->outcome));
    for (size_t c = 0; c < kChunks; ++c) {
      const bool own = c % kRoundMembers == 0;  // its own results may be lost with it
      if (own) continue;
      EXPECT_EQ(group.at(i).slots()[c].mask.Contains(0), c < 3) << c;
    }
  }
  EXPECT_FALSE(Applied(group.at(0).outcome()->outcome));
}

}  // namespace
}  // namespace crowdsurf::worker
