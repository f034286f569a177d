// The files of a log, against the text that was printed.
#include "operator/edge/local/kept_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/edge/files.h"
#include "base/rng.h"

namespace crowdsurf::controller {
namespace {

class KeptLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "kept_log_test" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/log"; }
  std::string Newer() const { return ReadFile(path()).value_or(""); }
  std::string Older() const { return ReadFile(path() + kOlderLog).value_or(""); }
  // As a Process does it: the end of everything is kept.
  void Print(KeptLog& log, const std::string& text) {
    printed_ += text;
    log.Append(printed_.size(), Kept(), Head());
  }
  std::string Kept() const {
    return printed_.substr(printed_.size() - std::min(printed_.size(), kKeptOutput));
  }

  std::string Head() const { return printed_.substr(0, kKeptHead); }
  std::string Beginning() const { return ReadFile(path() + kLogHead).value_or(""); }

  std::string folder_, printed_;
};

TEST_F(KeptLogTest, WhatIsPrintedIsInItAtOnce) {
  KeptLog log(path());
  log.Append(0, "", "");
  EXPECT_FALSE(std::filesystem::exists(path()));
  Print(log, "one\n");
  EXPECT_EQ(Newer(), "one\n");
  Print(log, "two\n");
  EXPECT_EQ(Newer(), "one\ntwo\n");
  EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
  EXPECT_EQ(Newer(), "one\ntwo\n");
  EXPECT_EQ(Older(), "");
}

TEST_F(KeptLogTest, ItsFilesAreBoundedAndHoldTheEnd) {
  KeptLog log(path());
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text(rng.Uniform(1000), static_cast<char>('a' + i % 26));
    text += '\n';
    Print(log, text);
    const std::string files = Older() + Newer();
    ASSERT_LE(files.size(), kKeptOutput) << "seed 3";
    ASSERT_GE(files.size(), std::min(printed_.size(), kKeptOutput / 2)) << "seed 3";
    ASSERT_TRUE(printed_.ends_with(files)) << "seed 3";
  }
  struct stat before = {}, after = {};
  ASSERT_EQ(stat(path().c_str(), &before), 0);
  EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
  EXPECT_EQ(Older() + Newer(), Kept());
  ASSERT_EQ(stat(path().c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "who follows it reads on";
}

// How a process was started stands in the first lines of its log, and is what a failure asks for.
TEST_F(KeptLogTest, TheBeginningOfALongOneStays) {
  KeptLog log(path());
  Rng rng(5);
  for (int i = 0; i < 400; ++i) {
    Print(log, std::to_string(i) + std::string(rng.Uniform(1000), '.') + "\n");
    const std::string files = Older() + Newer();
    const bool all = files.size() == printed_.size();
    ASSERT_EQ(Beginning().empty(), all) << "seed 5, " << i;
    ASSERT_TRUE(all || Beginning().starts_with(Head())) << "seed 5, " << i;
  }
  EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
  EXPECT_EQ(Beginning(), Head() + "\n[what was printed here is not kept]\n");
  EXPECT_EQ(Older() + Newer(), Kept());
}

TEST_F(KeptLogTest, OfLittleMoreThanTheEndNothingIsMissingAndNothingTwice) {
  for (const size_t more : {size_t{1}, kKeptHead / 2, kKeptHead}) {
    printed_.clear();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    KeptLog log(path());
    for (size_t i = 0; printed_.size() < kKeptOutput + more; ++i) {
      const size_t left = kKeptOutput + more - printed_.size();
      Print(log, (std::to_string(i) + "\n").substr(0, left));
    }
    EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
    std::string all = Beginning() + Older() + Newer();
    if (const size_t gap = all.find("\n[what"); gap != std::string::npos) {
      all.erase(gap, all.find("]\n", gap) + 2 - gap);
    }
    EXPECT_TRUE(all == printed_) << more;
  }
}

TEST_F(KeptLogTest, WhatCouldNotBeWrittenIsThereAfterTheEnd) {
  KeptLog log(path());
  std::filesystem::create_directories(path());  // no file can have the name
  Print(log, "one\n");
  std::filesystem::remove(path());
  Print(log, "two\n");
  EXPECT_EQ(Newer(), "two\n");
  EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
  EXPECT_EQ(Newer(), "one\ntwo\n");
}

TEST_F(KeptLogTest, MoreThanIsKeptAtOnceIsNoLine) {
  KeptLog log(path());
  Print(log, "lost");
  std::string much(3 * kKeptOutput, 'x');
  much += "end";
  Print(log, much);
  EXPECT_TRUE(Newer().ends_with("xend"));
  EXPECT_TRUE(log.Finish(Kept(), Head()).ok());
  EXPECT_EQ(Older() + Newer(), Kept());
}

TEST_F(KeptLogTest, ItIsWrittenInAProgramWithoutAStandardInput) {
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);  // the log's file gets its descriptor, 0
  KeptLog log(path());
  Print(log, "one\n");
  if (input >= 0) {
    EXPECT_EQ(dup2(input, STDIN_FILENO), STDIN_FILENO);
    close(input);
  }
  EXPECT_EQ(Newer(), "one\n");
}

TEST_F(KeptLogTest, ALinkOfItsNameIsNotFollowed) {
  std::filesystem::create_symlink(folder_ + "/elsewhere", path());
  KeptLog log(path());
  Print(log, "one\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

}  // namespace
}  // namespace crowdsurf::controller
