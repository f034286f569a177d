#include "operator/core/observe/agent_turns.h"

#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

const std::vector<std::string> kWorkers = {"a", "b", "c", "d"};

class AgentTurnsTest : public testing::Test {
 protected:
  std::string Next(const std::vector<std::string>& workers = kWorkers, const char* first = "b") {
    return turns_.Choose(now_, workers, first);
  }
  void Pass(int seconds) { now_ = now_ + Seconds(seconds); }

  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  AgentTurns turns_{Seconds(10)};
};

TEST_F(AgentTurnsTest, EachButTheFirstHasItsTurnAndNobodyIsAskedMoreOftenThanTheGap) {
  std::string asked;
  for (int look = 0; look < 40; ++look) {
    const std::string one = Next();
    turns_.Heard(now_, one, "same", false);
    turns_.Heard(now_, "b", "same", true);
    if (asked.empty() || asked.substr(asked.size() - 1) != one) asked += one;
    Pass(1);
  }
  EXPECT_EQ(asked, "acda") << "four in forty seconds";
}

TEST_F(AgentTurnsTest, WhoTrainsInAnotherLineageKeepsItsTurnUntilTheLinesMeet) {
  EXPECT_EQ(Next(), "a");
  turns_.Heard(now_, "b", "one", true);
  turns_.Heard(now_, "a", "other", false);
  for (int poll = 0; poll < 5; ++poll) {
    Pass(10);
    EXPECT_EQ(Next(), "a") << poll;
    turns_.Heard(now_, "b", "one", true);
    turns_.Heard(now_, "a", "other", false);
  }
  Pass(10);
  turns_.Heard(now_, "a", "one", false);
  EXPECT_EQ(Next(), "c");
}

TEST_F(AgentTurnsTest, WhoIsSilentLosesItsTurnAlsoWhereItWasInAnotherLineage) {
  EXPECT_EQ(Next(), "a");
  turns_.Heard(now_, "b", "one", true);
  turns_.Heard(now_, "a", "other", false);
  Pass(29);
  EXPECT_EQ(Next(), "a");
  Pass(1);
  EXPECT_EQ(Next(), "c");
  Pass(10);
  EXPECT_EQ(Next(), "d") << "it never answered";
}

TEST_F(AgentTurnsTest, OneThatIsGoneOrBecomesTheFirstMakesRoomAtOnce) {
  EXPECT_EQ(Next(), "a");
  EXPECT_EQ(Next({"b", "c"}), "c");
  EXPECT_EQ(Next({"b", "c"}, "c"), "b");
  EXPECT_EQ(Next({"b"}), "");
  EXPECT_EQ(Next({}), "");
}

}  // namespace
}  // namespace crowdsurf::controller
