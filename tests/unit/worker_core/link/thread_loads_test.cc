// Which thread takes the next connection.
#include "worker/core/link/thread_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

TEST(ThreadLoadsTest, TheOneWithTheFewestTakesItAndOfThoseTheFirst) {
  ThreadLoads loads(3);
  EXPECT_EQ(loads.Place(), 0U);
  EXPECT_EQ(loads.Place(), 1U);
  EXPECT_EQ(loads.Place(), 2U);
  EXPECT_EQ(loads.Place(), 0U);
  loads.Leave(1);
  EXPECT_EQ(loads.Place(), 1U);
  EXPECT_EQ(loads.Place(), 1U);
}

// Whatever comes and goes: what is placed goes to a thread that has the fewest, so loads that only
// grow differ by one.
TEST(ThreadLoadsTest, NoThreadIsPassedOver) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Rng rng(kSeed);
  for (const size_t threads : {1U, 2U, 5U}) {
    ThreadLoads loads(threads);
    std::vector<size_t> own(threads, 0);
    for (int i = 0; i < 2000; ++i) {
      const size_t at = rng.Uniform(threads);
      if (i < 1000 || own[at] == 0 || rng.Uniform(2) == 0) {
        const size_t least = *std::min_element(own.begin(), own.end());
        const size_t placed = loads.Place();
        ASSERT_EQ(own.at(placed)++, least);
      } else {
        loads.Leave(at);
        --own[at];
      }
      ASSERT_EQ(loads.loads(), own);
      const auto [low, high] = std::minmax_element(own.begin(), own.end());
      if (i < 1000) {
        ASSERT_LE(*high - *low, 1U);
      }
    }
  }
}

TEST(ThreadLoadsDeathTest, NobodyLeavesAThreadThatHasNone) {
  ThreadLoads loads(2);
  EXPECT_DEATH(loads.Leave(1), "");
  EXPECT_DEATH(ThreadLoads(0), "");
}

}  // namespace
}  // namespace crowdsurf::worker
