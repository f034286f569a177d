// Outer memory, by what the kernel says of this process's pages.
#include "worker/edge/state/outer_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace crowdsurf::worker {
namespace {

uint64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoull(line.substr(8));
  }
  return 0;
}

TEST(OuterMemory, IsZerosAndCostsNothingBeforeItIsWritten) {
  constexpr uint64_t kElements = uint64_t{64} << 20;  // 256 MiB each
  OuterMemory memory;
  const uint64_t before = AnonymousBytes();
  ASSERT_GT(before, 0U);
  const std::span<float> spare = memory.Spare(kElements), rest = memory.Rest(kElements),
                         velocity = memory.Velocity(kElements);
  // Sanitizers keep an eighth of it beside.
  EXPECT_LT(AnonymousBytes() - before, kElements * sizeof(float) / 2);
  for (const std::span<float> each : {spare, rest, velocity}) {
    ASSERT_EQ(each.size(), kElements);
    EXPECT_EQ(each.front(), 0);
    EXPECT_EQ(each[kElements / 2], 0);
    EXPECT_EQ(each.back(), 0);
  }
  spare.back() = 1;
  EXPECT_EQ(memory.Spare(kElements).data(), spare.data());
  EXPECT_EQ(memory.Spare(kElements).back(), 1);
}

// Rounds that are over still serve from the earlier one.
TEST(OuterMemory, ASpareOfAnotherLengthLeavesTheEarlierOneAlone) {
  OuterMemory memory;
  const std::span<float> earlier = memory.Spare(1000);
  std::fill(earlier.begin(), earlier.end(), 3.0F);
  EXPECT_EQ(memory.Spare(2000).size(), 2000U);
  EXPECT_EQ(std::count(earlier.begin(), earlier.end(), 3.0F), 1000);
  EXPECT_EQ(std::count(memory.Rest(500).begin(), memory.Rest(500).end(), 0.0F), 500);
}

}  // namespace
}  // namespace crowdsurf::worker
