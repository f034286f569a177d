// The live screen as text: how wide it gets, what it shows of whom, and names that would control
// the terminal.
#include "cli/screen/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Screen Eight() {
  Screen screen;
  screen.job = "charlm";
  screen.strategy = "Moshpit";
  screen.radices = {2, 4};
  screen.wanted = 8;
  screen.training = 7;
  screen.elapsed = 75;
  screen.progress = 0.5;
  screen.seconds_left = 75;
  screen.target = "1.0M of 2.0M samples";
  screen.loss = 2.345;
  screen.samples_per_second = 12345;
  for (int i = 0; i < 8; ++i) {
    ScreenWorker worker;
    worker.name = "charlm-" + std::to_string(i) + "-1";
    worker.index = i;
    worker.state = i == 3 ? "Joining" : "Training";
    if (i != 3) worker.cell = {i / 4, i % 4};
    worker.steps_per_second = 12.5;
    worker.loss = 2.3;
    worker.steward = i == 0;
    screen.workers.push_back(worker);
  }
  return screen;
}

int Columns(const std::string& text) {
  int columns = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++columns;
    if (escape && c == 'm') escape = false;
  }
  return columns;
}

TEST(LiveViewTest, NoLineIsWiderThanTheTerminal) {
  Screen screen = Eight();
  screen.news = {std::string(300, 'x')};
  for (const int width : {40, 60, 80, 120, 200}) {
    for (const bool color : {false, true}) {
      for (const std::string& line : DrawScreen(screen, {width, color})) {
        EXPECT_LE(Columns(line), width) << line;
      }
    }
  }
}

TEST(LiveViewTest, ShowsWorkersByCellAndWhoIsOutside) {
  const std::vector<std::string> lines = DrawScreen(Eight(), {100, false});
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  EXPECT_THAT(text, HasSubstr("Moshpit 2 x 4"));
  EXPECT_THAT(text, HasSubstr("★ 0 12.5/s 2.30"));
  EXPECT_THAT(text, HasSubstr("○ 3 Joining"));
  EXPECT_THAT(text, HasSubstr("7/8 workers  12.3k samples/s  loss 2.345"));
  EXPECT_THAT(text, HasSubstr("50%  1.0M of 2.0M samples   1m 15s left"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "NO_COLOR";
}

TEST(LiveViewTest, AHugeJobDoesNotFillTheScreen) {
  Screen screen = Eight();
  screen.workers.resize(5000, screen.workers[0]);
  EXPECT_LT(DrawScreen(screen, {80, true}).size(), 80u);
}

// One line more, and the next draw cannot go back to the first.
TEST(LiveViewTest, NoMoreLinesThanTheTerminalHasRows) {
  const std::vector<std::string> ten = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  EXPECT_EQ(FitRows(ten, 10), ten);
  EXPECT_EQ(FitRows(ten, 5), (std::vector<std::string>{
                                 "0", "  (6 lines more than the terminal has)", "7", "8", "9"}));
  EXPECT_EQ(FitRows(ten, 1).size(), 3u);
  EXPECT_EQ(FitRows({}, 1).size(), 0u);
}

TEST(LiveViewTest, WordsOfAgentsControlNoTerminal) {
  Screen screen = Eight();
  screen.workers[3].state = "\x1b[2J\x1b]0;owned\x07Odd";
  screen.news = {
      "e2e-0-1 \x9b"
      "31m\r\x1b[1A"};
  for (const std::string& line : DrawScreen(screen, {100, false})) {
    EXPECT_EQ(line.find_first_of("\x1b\x07\r\x9b"), std::string::npos) << line;
  }
}

TEST(LiveViewTest, PlainLineHoldsTheSameFacts) {
  EXPECT_EQ(PlainLine(Eight()),
            "1m 15s  7/8 workers  12.3k samples/s  loss 2.345  rounds 0 (0 repaired, 0 failed)  "
            "preemptions 0  50%  1m 15s left");
}

TEST(PrintableTest, KeepsLettersAndDropsWhatControlsATerminal) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(Printable("x\x1b[2Jy\x07\x08z\x7f\r"), "x[2Jyz");
  EXPECT_EQ(Printable("a\xc2\xc2\x80\x9b"
                      "b\x9b\xc2\nc"),
            "ab\nc")
      << "what is left must not become one";
  EXPECT_EQ(Printable("\xc3\xa9 \xe2\x98\x85 \xc2\xa7"), "\xc3\xa9 \xe2\x98\x85 \xc2\xa7");
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "31mb"),
            "a31mb");
}

TEST(NumbersTest, AreShort) {
  EXPECT_EQ(Short(0), "0");
  EXPECT_EQ(Short(1.5), "1.5");
  EXPECT_EQ(Short(999), "999");
  EXPECT_EQ(Short(999960), "1.0M");
  EXPECT_EQ(Short(2.5e9), "2.5G");
  EXPECT_EQ(Span(59.6), "1m 0s");
  EXPECT_EQ(Span(3661), "1h 1m");
}

}  // namespace
}  // namespace crowdsurf::cli
