// Learning rates of single steps against the closed forms.
#include "worker/trainer/schedule.h"

#include <cmath>

namespace crowdsurf::trainer {
namespace {

TEST(ScheduleTest, WarmsUpLinearlyThenStaysConstant) {
  const Schedule schedule{.kind = ScheduleKind::kConstant,
                          .rate = 0.5,
                          .warmup_steps = 4,
                          .total_steps = 0,
                          .floor = 0};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.RateAt(3), 0.4);
  EXPECT_DOUBLE_EQ(schedule.RateAt(4), 0.5);
  EXPECT_DOUBLE_EQ(schedule.RateAt(1'000'000), 0.5);
}

TEST(ScheduleTest, CosineIsHalfWayInTheMiddleAndAtItsFloorAtTheEnd) {
  const Schedule schedule{.kind = ScheduleKind::kCosine,
                          .rate = 2.0,
                          .warmup_steps = 10,
                          .total_steps = 110,
                          .floor = 0.1};
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 2.0);
  EXPECT_NEAR(schedule.RateAt(60), 2.0 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(schedule.RateAt(35), 2.0 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))), 1e-12);
  EXPECT_NEAR(schedule.RateAt(110), 0.2, 1e-12);
  EXPECT_NEAR(schedule.RateAt(5'000), 0.2, 1e-12);
}

TEST(ScheduleTest, NeverRisesAfterTheWarmUp) {
  const Schedule schedule{.kind = ScheduleKind::kCosine,
                          .rate = 1.0,
                          .warmup_steps = 5,
                          .total_steps = 50,
                          .floor = 0.05};
  for (uint64_t step = 5; step < 60; ++step) {
    EXPECT_LE(schedule.RateAt(step + 1), schedule.RateAt(step)) << step;
  }
}

}  // namespace
}  // namespace crowdsurf::trainer
