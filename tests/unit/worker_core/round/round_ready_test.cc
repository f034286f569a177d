// READY is said once. Where it was lost, it is asked for.
#include <gtest/gtest.h>

#include "tests/unit/worker_core/round/round_group.h"

namespace crowdsurf::worker {
namespace {

struct ReadyGroup : RoundGroup {
  // All have opened the round. What member 0 said to member 1 is lost.
  void OpenAndLose() {
    StartAll();
    std::erase_if(wire, [](const Sent& sent) {
      return sent.from == 0 && Is<Ready>(sent.action) &&
             std::get<SendFrame>(sent.action).to == PeerAt(1);
    });
    Settle();
  }
  void Beat(int self) {
    Do(self, [](Round& r, RoundActions& out) { r.OnBeat({}, out); });
  }
  size_t Asks(int self) const {
    const RoundActions& actions = done[static_cast<size_t>(self)];
    return static_cast<size_t>(std::count_if(actions.begin(), actions.end(), Is<Ask>));
  }
};

TEST(RoundReadyTest, ALostReadyIsAskedForAtABeatAndTheRoundNeedsNoBallot) {
  ReadyGroup group;
  group.OpenAndLose();
  for (int i = 0; i < kRoundMembers; ++i) ASSERT_FALSE(group.at(i).over());
  group.Beat(0);
  group.Settle();
  EXPECT_EQ(group.Asks(1), 0U) << "one frame more a beat at most";
  group.Beat(1);
  EXPECT_EQ(group.Asks(1), 1U);
  group.Settle();
  for (int i = 0; i < kRoundMembers; ++i) {
    ASSERT_TRUE(group.at(i).over()) << i;
    EXPECT_EQ(group.at(i).outcome()->outcome, Outcome::kFast) << i;
  }
}

TEST(RoundReadyTest, AMemberThatHasNotOpenedTheRoundIsNotAsked) {
  ReadyGroup group;
  group.Do(1, [](Round& r, RoundActions& out) { r.Start(out); });
  group.Beat(1);
  EXPECT_EQ(group.Asks(1), 0U);
  // What a witness answers does not say that it has opened the round.
  group.Do(1, [](Round& r, RoundActions& out) {
    r.OnFrame(PeerAt(0), {InstanceId(), Refused{1}}, out);
  });
  group.Beat(1);
  EXPECT_EQ(group.Asks(1), 0U);
}

// A chunk says so, too: a member that chunks leave for hears no BEAT.
TEST(RoundReadyTest, AnInputSaysThatItsSenderHasOpenedTheRound) {
  ReadyGroup group;
  group.Do(1, [](Round& r, RoundActions& out) { r.Start(out); });
  group.Do(1, [](Round& r, RoundActions& out) {
    EXPECT_TRUE(r.OnInput(PeerAt(0), 0, ChunkIndex(1), 0, out));
  });
  group.Beat(1);
  EXPECT_EQ(group.Asks(1), 1U);
}

}  // namespace
}  // namespace crowdsurf::worker
