// How many processors this process may use.
#include "base/edge/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace crowdsurf {
namespace {

TEST(ProcessorsTest, ALimitIsRoundedUp) {
  EXPECT_EQ(ProcessorsOfLimit("200000 100000\n"), 2U);
  EXPECT_EQ(ProcessorsOfLimit("150000 100000"), 2U);
  EXPECT_EQ(ProcessorsOfLimit("1000 100000"), 1U);
  EXPECT_EQ(ProcessorsOfLimit("18446744073709551615 1"), SIZE_MAX);
}

TEST(ProcessorsTest, WhatIsNoLimitIsNone) {
  for (const char* text : {"max 100000", "", "100000", "0 100000", "100000 0", "-1 100000", "a b",
                           "1 2 3", "99999999999999999999 1"})
    EXPECT_EQ(ProcessorsOfLimit(text), std::nullopt) << text;
}

TEST(ProcessorsTest, TheLesserOfTheLimitAndTheSchedulersCounts) {
  const std::string file = testing::TempDir() + "cpu.max." + std::to_string(getpid());
  const size_t here = ProcessorsToUse(file);  // there is no such file
  EXPECT_GE(here, 1U);
  std::ofstream(file) << "100000 100000\n";
  EXPECT_EQ(ProcessorsToUse(file), 1U);
  std::ofstream(file) << "100000000 100000\n";
  EXPECT_EQ(ProcessorsToUse(file), here);
  std::filesystem::remove(file);
}

TEST(ProcessorsTest, AThreadThatMayUseOneProcessorCountsOne) {
  std::thread one([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(ProcessorsToUse("/none"), 1U);
  });
  one.join();
}

}  // namespace
}  // namespace crowdsurf
