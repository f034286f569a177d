// A reader of a log that grows and begins anew, against everything that was printed.
#include "cli/logs/log_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/rng.h"
#include "operator/edge/local/kept_log.h"

namespace crowdsurf::cli {
namespace {

using controller::kKeptOutput;

class LogReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "log_reader_test" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    log_.emplace(folder_ + "/log");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Print(const std::string& text) {
    printed_ += text;
    log_->Append(printed_.size(), Kept(), Head());
  }
  std::string Kept() const {
    return printed_.substr(printed_.size() - std::min(printed_.size(), kKeptOutput));
  }
  std::string Head() const { return printed_.substr(0, controller::kKeptHead); }

  std::string folder_, printed_;
  std::optional<controller::KeptLog> log_;
};

TEST_F(LogReaderTest, EachByteIsReadOnce) {
  LogReader reader(folder_ + "/log");
  EXPECT_EQ(reader.Read().value(), "") << "there is no log yet";
  Rng rng(11);
  std::string read;
  for (int i = 0; i < 3000; ++i) {
    Print(std::to_string(i) + std::string(rng.Uniform(300), '.') + "\n");
    // Never more than half of what is kept between two reads.
    if (i % 50 == 49 || rng.Bernoulli(0.3)) read += reader.Read().value();
  }
  read += reader.Read().value();
  ASSERT_EQ(read.size(), printed_.size()) << "seed 11";
  EXPECT_TRUE(read == printed_) << "seed 11";
  EXPECT_TRUE(log_->Finish(Kept(), Head()).ok());
  EXPECT_EQ(reader.Read().value(), "") << "nothing is said twice";
}

TEST_F(LogReaderTest, TheFirstReadIsOfAllThatIsKept) {
  for (int i = 0; i < 20'000; ++i) Print(std::to_string(i) + "\n");
  const std::string while_it_runs = LogReader(folder_ + "/log").Read().value();
  const std::string gap = "\n[what was printed here is not kept]\n";
  const size_t begin = while_it_runs.find(gap);
  ASSERT_EQ(begin, controller::kKeptHead);
  EXPECT_TRUE(printed_.starts_with(while_it_runs.substr(0, begin)));
  const std::string end = while_it_runs.substr(begin + gap.size());
  EXPECT_GE(end.size(), kKeptOutput / 2);
  EXPECT_TRUE(printed_.ends_with(end));
  EXPECT_TRUE(log_->Finish(Kept(), Head()).ok());
  EXPECT_TRUE(LogReader(folder_ + "/log").Read().value() == Head() + gap + Kept());
}

TEST_F(LogReaderTest, AReaderThatIsTooSlowMissesTheOldestPartAndReadsOn) {
  LogReader reader(folder_ + "/log");
  Print("begin\n");
  EXPECT_EQ(reader.Read().value(), "begin\n");
  for (int i = 0; i < 20'000; ++i) Print(std::to_string(i) + "\n");
  const std::string late = reader.Read().value();
  EXPECT_TRUE(printed_.ends_with(late));
  Print("end\n");
  EXPECT_EQ(reader.Read().value(), "end\n");
}

TEST_F(LogReaderTest, WhatIsNoFileIsNoLog) {
  std::filesystem::create_directories(folder_ + "/folder");
  EXPECT_EQ(LogReader(folder_ + "/folder").Read().value_or("error"), "");
  std::filesystem::create_symlink(folder_ + "/folder", folder_ + "/link");
  EXPECT_FALSE(LogReader(folder_ + "/link").Read().ok());
}

}  // namespace
}  // namespace crowdsurf::cli
