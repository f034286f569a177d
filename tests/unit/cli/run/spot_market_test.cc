// Whom the spot market takes when, by a rate and by a trace, on a clock of the test.
#include "cli/run/spot_market.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace crowdsurf::cli {
namespace {

using ::testing::HasSubstr;

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);
const std::vector<std::string> kNodes = {"n1", "n2", "n3", "n4"};

std::vector<std::string> Names(const std::vector<MarketMove>& moves) {
  std::vector<std::string> names;
  names.reserve(moves.size());
  for (const MarketMove& move : moves) names.push_back((move.add ? "+" : "-") + move.node);
  return names;
}

TEST(SpotMarketTest, ARateTakesOneEverySoOftenAndTheSameOnesForTheSameSeed) {
  std::vector<std::string> taken[2];
  for (auto& run : taken) {
    SpotMarket market({.every = Seconds(5), .seed = 7});
    EXPECT_TRUE(market.next().infinite()) << "not before it opens";
    market.Open(kStart);
    for (int second = 0; second < 60; ++second) {
      for (const std::string& name : Names(market.Moves(kStart + Seconds(second), kNodes))) {
        run.push_back(name);
      }
    }
  }
  EXPECT_EQ(taken[0].size(), 11u);  // at 5, 10, ... 55 s
  EXPECT_EQ(taken[0], taken[1]);
  EXPECT_GT(std::set<std::string>(taken[0].begin(), taken[0].end()).size(), 1u);
}

TEST(SpotMarketTest, TakesSeveralAllOrNobody) {
  SpotMarket three({.every = Seconds(1), .count = 3});
  three.Open(kStart);
  EXPECT_EQ(three.Moves(kStart + Seconds(1), kNodes).size(), 3u);
  SpotMarket all({.every = Seconds(1), .count = 0});
  all.Open(kStart);
  EXPECT_EQ(all.Moves(kStart + Seconds(1), kNodes).size(), 4u);
  EXPECT_TRUE(all.Moves(kStart + Seconds(2), {}).empty());
}

TEST(SpotMarketTest, AStallDoesNotBecomeAMassacre) {
  SpotMarket market({.every = Seconds(1)});
  market.Open(kStart);
  EXPECT_EQ(market.Moves(kStart + Seconds(30), kNodes).size(), 1u);
  EXPECT_EQ(market.next(), kStart + Seconds(31));
}

TEST(SpotMarketTest, ReplaysATraceAtASpeed) {
  auto trace = ParseTrace("0,add,n1\n0,add,n2\n# a comment\n\n2000,remove,n1\r\n1000,add,n3\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  SpotMarket market({.trace = *trace, .speed = 10});
  market.Open(kStart);
  EXPECT_THAT(Names(market.Moves(kStart, {})), ::testing::ElementsAre("+n1", "+n2"));
  EXPECT_EQ(market.next(), kStart + Milliseconds(100));
  EXPECT_THAT(Names(market.Moves(kStart + Milliseconds(250), {})),
              ::testing::ElementsAre("+n3", "-n1"));
  EXPECT_TRUE(market.next().infinite());
}

TEST(SpotMarketTest, AByteOrderMarkIsNoPartOfATrace) {
  const auto trace = ParseTrace(
      "\xEF\xBB\xBF"
      "0,add,a\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->size(), 1u);
  EXPECT_EQ(std::string(ParseTrace("0,\x1b[2J,a\n").status().message()).find('\x1b'),
            std::string::npos);
}

TEST(SpotMarketTest, SaysWhichLineOfATraceIsWrong) {
  const auto problem = [](std::string_view csv) {
    return std::string(ParseTrace(csv).status().message());
  };
  EXPECT_THAT(problem("0,add,n1\nx,add,n2\n"),
              HasSubstr("line 2: does not begin with milliseconds"));
  EXPECT_THAT(problem("0,steal,n1\n"), HasSubstr("line 1: steal is not add or remove"));
  EXPECT_THAT(problem("0,add\n"), HasSubstr("line 1"));
  EXPECT_THAT(problem("0,add,\n"), HasSubstr("names no node"));
  EXPECT_THAT(problem(""), HasSubstr("no event"));
}

}  // namespace
}  // namespace crowdsurf::cli
