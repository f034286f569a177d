#include "operator/edge/reconcile/errands.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include "tests/support/eventually.h"

namespace crowdsurf::controller {
namespace {

TEST(ErrandsTest, WhoPostsOneDoesNotWaitAndAnExceptionEndsItAlone) {
  MetricRegistry metrics;
  Errands errands(metrics);
  std::promise<void> open;
  std::atomic<int> done{0};
  EXPECT_TRUE(errands.Post([gate = open.get_future().share()] { gate.wait(); }));
  EXPECT_TRUE(errands.Post([] { throw std::runtime_error("hostile JSON"); }));
  EXPECT_TRUE(errands.Post([&] { ++done; }));
  EXPECT_EQ(done, 0);
  open.set_value();
  EXPECT_TRUE(EventuallyHolds([&] { return done == 1; }));
  EXPECT_EQ(metrics.Value("crowdsurf_operator_exceptions_total", {{"thread", "errands"}}), 1);
}

TEST(ErrandsTest, TheyHaveABoundAndAStopDropsWhatWaits) {
  MetricRegistry metrics;
  Errands errands(metrics);
  std::promise<void> open, begun;
  std::atomic<int> done{0};
  EXPECT_TRUE(errands.Post([&, gate = open.get_future().share()] {
    begun.set_value();
    gate.wait();
  }));
  begun.get_future().wait();
  for (size_t i = 0; i < Errands::kMaxWaiting; ++i) EXPECT_TRUE(errands.Post([&] { ++done; }));
  EXPECT_FALSE(errands.Post([&] { ++done; }));
  EXPECT_EQ(metrics.Value("crowdsurf_operator_errands_refused_total"), 1);
  std::thread stop([&] { errands.Stop(); });
  EXPECT_TRUE(EventuallyHolds([&] { return errands.stopping(); }));
  open.set_value();
  stop.join();
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace crowdsurf::controller
