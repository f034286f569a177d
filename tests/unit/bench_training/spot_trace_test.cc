#include "bench/training/spot_trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace crowdsurf::bench {
namespace {

TEST(SpotTrace, NumbersNodesInTheOrderTheyCome) {
  const auto trace = ParseSpotTrace(
      "0,add,a\n0,add,b\n10000,remove,a\n20000,add,c\n20000,add,a\n40000,remove,a\n", 10);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->members, 2);
  EXPECT_EQ(trace->joins, (std::vector<Duration>{Seconds(2), Seconds(2)}));
  EXPECT_EQ(trace->deaths, (std::vector<Duration>{Seconds(1), Seconds(4)}));
  EXPECT_EQ(trace->victims, (std::vector<int>{0, 3}));  // `a` came again as another
  EXPECT_EQ(trace->length, Seconds(4));
  EXPECT_DOUBLE_EQ(trace->mean_living, (2 + 1 + 3 + 3) / 4.0);
}

TEST(SpotTrace, SaysWhichLineIsWrong) {
  const auto said = [](const std::string& text) {
    return std::string(ParseSpotTrace(text, 1).status().message());
  };
  EXPECT_EQ(said(""), "the trace has no nodes");
  EXPECT_EQ(said("0,add\n"), "line 1 is not `milliseconds,add|remove,node`");
  EXPECT_EQ(said("0,add,a\n-1,add,b\n"), "line 2 is not `milliseconds,add|remove,node`");
  EXPECT_EQ(said("5,add,a\n4,add,b\n"), "line 2 is before the line above it");
  EXPECT_EQ(said("0,add,a\n0,add,a\n"), "line 2 adds a node that is there");
  EXPECT_EQ(said("0,add,a\n\n1,remove,b\n"), "line 3 removes a node that is not there");
  EXPECT_EQ(said("0,move,a\n"), "line 1 neither adds nor removes");
}

}  // namespace
}  // namespace crowdsurf::bench
