#include "bench/training/runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace crowdsurf::bench {
namespace {

class RunsTest : public testing::Test {
 protected:
  RunsTest() {
    path_ = (std::filesystem::path(testing::TempDir()) /
             (std::string("runs_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".jsonl"))
                .string();
    std::filesystem::remove(path_);
  }
  ~RunsTest() override { std::filesystem::remove(path_); }

  Runs Open(const std::string& stamp = "one", unsigned threads = 1) {
    return Runs::Open(path_, stamp, threads).value();
  }
  std::vector<RunSpec> Specs(int count) {
    std::vector<RunSpec> specs;
    specs.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      specs.push_back({"run " + std::to_string(i), [this, i]() -> Outcome {
                         ++started_;
                         return {{"value", i + 0.1}};
                       }});
    return specs;
  }

  std::string path_;
  std::atomic<int> started_{0};
};

TEST_F(RunsTest, GoesOnWhereItWasStopped) {
  {
    Runs runs = Open();
    runs.Do(Specs(2));
    EXPECT_EQ(runs.made(), 2U);
  }
  Runs runs = Open();
  runs.Do(Specs(3));
  EXPECT_EQ(started_, 3);
  EXPECT_EQ(runs.made(), 1U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(runs.value("run " + std::to_string(i), "value"), i + 0.1);
}

TEST_F(RunsTest, RunsOfAnotherProgramAreMadeAgain) {
  Open("one").Do(Specs(2));
  Open("two").Do(Specs(2));
  EXPECT_EQ(started_, 4);
}

// Killed while it wrote.
TEST_F(RunsTest, HalfALineIsNoRun) {
  Open().Do(Specs(2));
  std::string text;
  std::getline(std::ifstream(path_), text, '\0');
  std::ofstream(path_, std::ios::trunc) << text.substr(0, text.size() - 20);
  Open().Do(Specs(2));
  EXPECT_EQ(started_, 3);
  Open().Do(Specs(2));  // what was written behind the half line
  EXPECT_EQ(started_, 3);
}

TEST_F(RunsTest, ThreadsRunEachOnce) {
  Runs runs = Open("one", 4);
  runs.Do(Specs(50));
  EXPECT_EQ(started_, 50);
  EXPECT_EQ(runs.made(), 50U);
  EXPECT_EQ(runs.value("run 49", "value"), 49.1);
}

TEST_F(RunsTest, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_FALSE(Runs::Open("/proc/none/runs.jsonl", "one", 1).ok());
}

}  // namespace
}  // namespace crowdsurf::bench
