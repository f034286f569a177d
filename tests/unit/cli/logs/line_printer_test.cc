#include "cli/logs/line_printer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/rng.h"

namespace crowdsurf::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Lines(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  const auto keep = [&](const std::string& line) { lines.push_back(line); };
  LogLines log;
  for (const std::string& piece : pieces) log.Take(piece, keep);
  log.End(keep);
  return lines;
}

TEST(LogLinesTest, ArePutTogetherFromPieces) {
  EXPECT_THAT(Lines({"on", "e\ntwo\n", "\n", "th", "ree"}), ElementsAre("one", "two", "", "three"));
  EXPECT_THAT(Lines({"one\n"}), ElementsAre("one"));
  EXPECT_TRUE(Lines({}).empty());
  EXPECT_THAT(Lines({"from Windows\r", "\nnext\r\n"}), ElementsAre("from Windows", "next"));
}

TEST(LogLinesTest, HowTheyCameDoesNotMatter) {
  Rng rng(5);
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += static_cast<char>(rng.Bernoulli(0.1) ? '\n' : 'a' + i % 26);
  const auto whole = Lines({text});
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + rng.Uniform(40)));
      at += pieces.back().size();
    }
    EXPECT_EQ(Lines(pieces), whole) << "seed 5, round " << round;
  }
}

TEST(LogLinesTest, ALineIsBounded) {
  const auto lines = Lines({std::string(3 * kMaxLogLine + 1, 'x')});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].size(), kMaxLogLine);
  EXPECT_EQ(lines[3].size(), 1u);
}

TEST(LogLinesTest, OfAProgressBarThatNeverEndsOnlyItsLastStateIsALine) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 5000; ++i) pieces.push_back("\r" + std::to_string(i) + " of 5000");
  EXPECT_THAT(Lines(pieces), ElementsAre("4999 of 5000"));
}

TEST(LastLinesTest, CountsAsTailDoes) {
  EXPECT_EQ(LastLines("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(LastLines("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(LastLines("a\nb\n", 5), "a\nb\n");
  EXPECT_EQ(LastLines("a\nb\n", 2), "a\nb\n");
  EXPECT_EQ(LastLines("a\nb\n", -1), "a\nb\n");
  EXPECT_EQ(LastLines("a\nb\n", 0), "");
  EXPECT_EQ(LastLines("\n\n", 1), "\n");
  EXPECT_EQ(LastLines("", 3), "");
}

TEST(LinePrinterTest, AReaderThatHasSeenEnoughEndsIt) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LinePrinter named(ends[1], Prefix::kName), plain(ends[1], Prefix::kNone),
      colored(ends[1], Prefix::kColoredName);
  EXPECT_TRUE(named.Print("job-1-1", 1, "words"));
  EXPECT_TRUE(plain.Print("job-1-1", 1, "words"));
  EXPECT_TRUE(colored.Print("job-1-1", 7, "words"));
  char read_back[200];
  const ssize_t got = read(ends[0], read_back, sizeof read_back);
  EXPECT_EQ(std::string(read_back, static_cast<size_t>(got)),
            "job-1-1 | words\nwords\n\x1b[33mjob-1-1 |\x1b[0m words\n");
  close(ends[0]);
  EXPECT_FALSE(named.Print("job-1-1", 1, "words"));
  EXPECT_EQ(named.error(), EPIPE);
  EXPECT_EQ(plain.error(), 0);
  close(ends[1]);
}

TEST(LinePrinterTest, AFullDiskIsItsError) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  LinePrinter printer(full, Prefix::kNone);
  EXPECT_FALSE(printer.Print("job-1-1", 1, "words"));
  EXPECT_FALSE(printer.Print("job-1-1", 1, "words"));
  EXPECT_EQ(printer.error(), ENOSPC);
  close(full);
}

}  // namespace
}  // namespace crowdsurf::cli
