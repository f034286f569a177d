// Chunks that no honest member sends, in the middle of a round of honest ones: each is counted by
// its reason, and what the round decides is what it decides without them.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/worker_core/round/round_group.h"

namespace crowdsurf::worker {
namespace {

constexpr Ballot kOther = 8;
const ChunkIndex kNone(99);  // beyond the vector

size_t Refused(Round& round, FrameRefusal reason) {
  const auto& refused = round.counts().refused;
  const auto it = refused.find(reason);
  return it == refused.end() ? 0 : it->second;
}

// Gives `call` to member `self` of the group: it is refused as `reason`, once.
template <class Call>
void ExpectRefused(RoundGroup& group, int self, FrameRefusal reason, Call call) {
  const size_t before = Refused(group.at(self), reason);
  RoundActions out;
  call(group.at(self), out);
  EXPECT_EQ(Refused(group.at(self), reason), before + 1);
  EXPECT_TRUE(out.empty());
}

void SendBadInputs(RoundGroup& group, int self, const RoundGroup::Sent& sent) {
  const auto& input = std::get<SendInput>(sent.action);
  const PeerId from = PeerAt(static_cast<size_t>(sent.from)), stranger = PeerAt(9);
  const auto expect = [&](FrameRefusal reason, const PeerId& who, ChunkIndex chunk,
                          Ballot assigned) {
    ExpectRefused(group, self, reason, [&](Round& round, RoundActions& out) {
      EXPECT_FALSE(round.OnInput(who, sent.from, chunk, assigned, out));
    });
  };
  expect(FrameRefusal::kInputStranger, stranger, input.chunk, input.assigned);
  expect(FrameRefusal::kInputStranger, from, kNone, input.assigned);
}

void SendBadResults(RoundGroup& group, int self, const RoundGroup::Sent& sent) {
  const auto& result = std::get<SendResult>(sent.action);
  const PeerId from = PeerAt(static_cast<size_t>(sent.from)), stranger = PeerAt(9);
  const PeerId other = PeerAt(static_cast<size_t>(3 - self - sent.from));  // not the owner
  const ChunkValue value{result.assigned, result.mask, result.hash};
  const auto expect = [&](FrameRefusal reason, const PeerId& who, ChunkIndex chunk,
                          const ChunkValue& what) {
    ExpectRefused(group, self, reason,
                  [&](Round& round, RoundActions& out) { round.OnResult(who, chunk, what, out); });
  };
  expect(FrameRefusal::kResultStranger, stranger, result.chunk, value);
  expect(FrameRefusal::kResultStranger, from, kNone, value);
  expect(FrameRefusal::kResultStranger, from, result.chunk, {result.assigned, {}, result.hash});
  expect(FrameRefusal::kResultSuperseded, from, result.chunk, {kOther, result.mask, result.hash});
  expect(FrameRefusal::kResultUnplanned, other, result.chunk, value);
}

// Before each chunk come the bad ones, and after it the same once more.
TEST(RoundBadChunksTest, EachIsCountedAndTheDecisionStays) {
  RoundGroup honest, disturbed;
  honest.StartAll();
  honest.Settle();
  disturbed.StartAll();
  std::vector<RoundGroup::Sent> again;
  size_t inputs = 0, results = 0;
  while (!disturbed.wire.empty()) {
    const RoundGroup::Sent sent = disturbed.wire.front();
    disturbed.wire.erase(disturbed.wire.begin());
    const auto* input = std::get_if<SendInput>(&sent.action);
    const auto* result = std::get_if<SendResult>(&sent.action);
    const PeerId to = input != nullptr ? input->to : result != nullptr ? result->to : PeerId();
    const int self = to.none() ? -1 : to.bytes()[0] - 1;
    if (self >= 0 && disturbed.at(self).over()) continue;
    if (input != nullptr) SendBadInputs(disturbed, self, sent), ++inputs;
    if (result != nullptr) SendBadResults(disturbed, self, sent), ++results;
    disturbed.Deliver(sent, nullptr);
    if (self < 0) continue;
    // Repeated at once: it is in, or the chunk is done with.
    const auto total = [&] {
      size_t sum = 0;
      for (const auto& [reason, count] : disturbed.at(self).counts().refused) sum += count;
      return sum;
    };
    const size_t before = total();
    disturbed.Deliver(sent, nullptr);
    EXPECT_EQ(total(), before + 1);
    again.push_back(sent);
  }
  EXPECT_GT(inputs, 0U);
  EXPECT_GT(results, 0U);
  for (int i = 0; i < kRoundMembers; ++i) {
    ASSERT_TRUE(disturbed.at(i).over());
    EXPECT_EQ(disturbed.at(i).outcome()->outcome, Outcome::kFast);
    EXPECT_EQ(disturbed.at(i).outcome()->root, honest.at(i).outcome()->root);
    EXPECT_EQ(disturbed.at(i).outcome()->stake.weight, honest.at(i).outcome()->stake.weight);
    EXPECT_EQ(disturbed.Count<FoldChunk>(i), 1U);
  }
  // Replayed when all is over.
  for (const RoundGroup::Sent& sent : again) {
    const auto* input = std::get_if<SendInput>(&sent.action);
    const int self =
        (input != nullptr ? input->to : std::get<SendResult>(sent.action).to).bytes()[0] - 1;
    const FrameRefusal reason =
        input != nullptr ? FrameRefusal::kInputLate : FrameRefusal::kResultLate;
    const size_t before = Refused(disturbed.at(self), reason);
    disturbed.Deliver(sent, nullptr);
    EXPECT_EQ(Refused(disturbed.at(self), reason), before + 1);
  }
}

TEST(RoundBadChunksTest, WeightsThatAreNoneMakeNoStake) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double bad :
       {-1.0, -1e-300, kInfinite, -kInfinite, std::numeric_limits<double>::quiet_NaN()}) {
    Stake stake;
    EXPECT_TRUE(IsValid(stake));
    stake.weight = bad;
    EXPECT_FALSE(IsValid(stake)) << bad;
    stake.weight = 1;
    stake.samples = bad;
    EXPECT_FALSE(IsValid(stake)) << bad;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
