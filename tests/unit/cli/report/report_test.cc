// The report as JSON and as a page: its keys, its four charts, and what a reader without a network
// or without eyes gets.
#include "cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

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
  for (const char* pointer : {"/goodput",
                              "/samples",
                              "/heldout_bits_per_char",
                              "/trigram_bits_per_char",
                              "/rounds/completed",
                              "/rounds/failed",
                              "/rounds/failed_by_peer_loss",
                              "/rounds/repaired",
                              "/rounds/hash_mismatches",
                              "/apart_seconds",
                              "/preemptions",
                              "/replacement_seconds/p50",
                              "/replacement_seconds/p95",
                              "/averaging_stall_ratio",
                              "/averaging_seconds/number",
                              "/averaging_seconds/whole",
                              "/averaging_seconds/wait_trainer",
                              "/averaging_seconds/wait_peers",
                              "/averaging_seconds/send",
                              "/averaging_seconds/receive",
                              "/averaging_seconds/fold",
                              "/averaging_seconds/copy",
                              "/workers/min",
                              "/workers/max",
                              "/start_seconds",
                              "/tensors",
                              "/seed",
                              "/samples_per_second",
                              "/duration_seconds"}) {
    EXPECT_TRUE(report.contains(json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(report["goodput"], 0.9);
  EXPECT_TRUE(report["trigram_bits_per_char"].is_null()) << "not measured is null, not zero";
}

TEST(ReportTest, TheMeanAveragingIsThereWithItsParts) {
  ReportInput input = Input();
  EXPECT_TRUE(ReportJson(input)["averaging_seconds"]["whole"].is_null());
  EXPECT_THAT(ReportHtml(input), HasSubstr("none was timed"));
  input.figures.averagings = {4, 8, {1, 2, 3, 4, 0.2, 0.1}};
  const json seconds = ReportJson(input)["averaging_seconds"];
  EXPECT_EQ(seconds["number"], 4);
  EXPECT_EQ(seconds["whole"], 2.0);
  EXPECT_EQ(seconds["receive"], 1.0);
  EXPECT_EQ(seconds["copy"], 0.025);
  EXPECT_THAT(ReportHtml(input),
              HasSubstr("2.000 s: waited 0.250 s for the trainer and 0.500 s for others; sent "
                        "0.750 s, received 1.000 s, folded 0.0500 s, copied 0.0250 s"));
}

TEST(ReportTest, WhetherTensorsAreEncryptedIsSaid) {
  ReportInput input = Input();
  EXPECT_EQ(ReportJson(input)["tensors"], "encrypted");
  EXPECT_THAT(ReportHtml(input), HasSubstr("encrypted (mutual TLS)"));
  input.tensors_in_clear = true;
  EXPECT_EQ(ReportJson(input)["tensors"], "in the clear");
  EXPECT_THAT(ReportHtml(input), HasSubstr("in the clear (tls.mode: Disabled)"));
}

TEST(ReportTest, JsonSaysWhyAWorkerFailed) {
  ReportInput input = Input();
  EXPECT_TRUE(ReportJson(input)["failure"].is_null());
  EXPECT_TRUE(ReportJson(input)["message"].is_null());
  input.failure = "charlm-0-1 ExitCode: ValueError: no labels";
  EXPECT_EQ(ReportJson(input)["failure"], input.failure);
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
