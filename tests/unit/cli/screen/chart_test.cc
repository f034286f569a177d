// Charts read back as SVG: labels inside the drawing, ticks over the whole range.
#include "cli/screen/chart.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace crowdsurf::cli {
namespace {

// Of a 12-unit sans-serif font, generously: its widest usual one has 7.2 units a character.
constexpr double kCharacter = 8;

TEST(ChartTest, LabelsOfSixtyFourWorkersBeginInsideTheDrawing) {
  Timeline timeline;
  timeline.id = "t";
  for (int row = 0; row < 64; ++row) timeline.rows.push_back("worker " + std::to_string(row));
  const std::string svg = Draw(timeline);
  const std::regex label(R"re(<text x="([0-9.]+)" y="[0-9.]+" text-anchor="end">([^<]*)</text>)re");
  int seen = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it, ++seen) {
    const double right = std::stod((*it)[1]);
    EXPECT_GE(right - kCharacter * static_cast<double>((*it)[2].length()), 0) << (*it)[2];
  }
  EXPECT_EQ(seen, 64);
}

TEST(ChartTest, TicksAreRoundAndCoverTheRange) {
  for (const auto& [low, high] : {std::pair(0.0, 1.0),
                                  {0.0, 37.0},
                                  {1.7, 4.4},
                                  {0.0, 123456.0},
                                  {0.0, 0.0021},
                                  {-3.0, 7.0}}) {
    const std::vector<double> ticks = RoundTicks(low, high, 5);
    EXPECT_LE(ticks.front(), low + 1e-12);
    EXPECT_GE(ticks.back(), high - 1e-12);
    EXPECT_GE(ticks.size(), 2u);
    EXPECT_LE(ticks.size(), 8u);
  }
}

}  // namespace
}  // namespace crowdsurf::cli
