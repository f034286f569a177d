#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report.h"
#include "cli/screen/chart.h"
#include "cli/screen/live_view.h"

namespace crowdsurf::cli {
namespace {

using nlohmann::json;
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

ReportInput Input() {
  ReportInput input;
  input.job = "charlm";
  input.strategy = "Moshpit";
  input.outcome = "Succeeded";
  input.replicas = 2;
  input.seed = 7;
  input.launched = 1000;
  for (int i = 0; i < 20; ++i) {
    input.points.push_back({1000.0 + i, 2, i * 100.0, 100, 4 - i * 0.1, 0.02, 0.05});
  }
  input.lives = {{"charlm-0-1", 0, 1, 1000, 1001, std::nullopt, 1010, std::nullopt, false},
                 {"charlm-0-2", 0, 2, 1010, 1012, std::nullopt, std::nullopt, std::nullopt, true},
                 {"charlm-1-1", 1, 1, 1000, 1001, std::nullopt, std::nullopt, std::nullopt, false}};
  input.figures.goodput = 0.9;
  input.heldout = 2.5;
  input.sample = "A <b>fortune</b> & \"more\"";
  return input;
}

TEST(ReportTest, JsonHasTheKeysThatTheIssueNames) {
  const json report = ReportJson(Input());
  for (const char* pointer :
       {"/goodput", "/samples", "/heldout_bits_per_char", "/trigram_bits_per_char",
        "/rounds/completed", "/rounds/failed", "/rounds/failed_by_peer_loss", "/rounds/repaired",
        "/rounds/hash_mismatches", "/preemptions", "/replacement_seconds/p50",
        "/replacement_seconds/p95", "/averaging_stall_ratio", "/workers/min", "/workers/max",
        "/start_seconds", "/seed", "/samples_per_second", "/duration_seconds"}) {
    EXPECT_TRUE(report.contains(json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(report["goodput"], 0.9);
  EXPECT_TRUE(report["trigram_bits_per_char"].is_null()) << "not measured is null, not zero";
}

TEST(ReportTest, PageIsSelfContainedEscapedAndReadableWithoutEyes) {
  const std::string page = ReportHtml(Input());
  EXPECT_THAT(page, HasSubstr("A &lt;b&gt;fortune&lt;/b&gt; &amp; &quot;more&quot;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  size_t charts = 0, described = 0;
  for (size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1))
    ++charts;
  for (size_t at = page.find("<desc"); at != std::string::npos; at = page.find("<desc", at + 1)) {
    ++described;
  }
  EXPECT_EQ(charts, 4u);
  EXPECT_EQ(described, charts);
  EXPECT_THAT(page, HasSubstr("charlm-0-1 was taken after 10s"));
}

// The four that the report promises: membership, loss, throughput, round times; each has its line.
TEST(ReportTest, EachOfItsFourChartsIsThereWithItsData) {
  const std::string page = ReportHtml(Input());
  const auto chart = [&](const std::string& title) {
    const size_t begin = page.find("<figcaption>" + title + "</figcaption>");
    if (begin == std::string::npos) return std::string();
    return page.substr(begin, page.find("</figure>", begin) - begin);
  };
  const std::string membership = chart("Who trained when");
  EXPECT_THAT(membership, HasSubstr("2 workers over 19s; 1 times a worker was taken"));
  for (const char* worker :
       {"worker 0", "worker 1", "charlm-0-2 trains, with its peers&#39; state"}) {
    EXPECT_THAT(membership, HasSubstr(worker));
  }
  const std::string loss = chart("Loss of the workers, mean");
  EXPECT_THAT(loss, HasSubstr("Training loss from 4.000 to 2.100"));
  EXPECT_THAT(chart("Samples a second, all workers"), HasSubstr("<polyline class=\"line one\""));
  const std::string rounds = chart("Seconds a round takes");
  EXPECT_THAT(rounds, HasSubstr("Median from 0.020 to 0.020 seconds, 95th percentile from 0.050"));
  for (const char* line : {"<polyline class=\"line one\"", "<polyline class=\"line two\""}) {
    EXPECT_THAT(rounds, HasSubstr(line));
  }
  EXPECT_THAT(loss, Not(HasSubstr("line two"))) << "one line, of the mean";
}

TEST(ReportTest, AnEmptyRunStillHasAPage) {
  ReportInput input;
  input.job = "x";
  input.outcome = "Failed";
  input.message = "no such file";
  EXPECT_THAT(ReportHtml(input), HasSubstr("no such file"));
  EXPECT_THAT(ReportHtml(input), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace crowdsurf::cli
