// Which of two bases members go on from: the one rule of IST, gradients and Int8.
#include "worker/core/averaging/catch_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

Committed Base(uint64_t averaging, double samples, const Digest& root) {
  return {.averaging = AveragingId(averaging), .root = root, .job_samples = samples};
}

TEST(CatchUpTest, OfTwoBasesOneIsLaterAndTheOtherIsNot) {
  const Digest one = Sha256(AsBytes("one")), two = Sha256(AsBytes("two"));
  const auto [low, high] = std::minmax(one, two);
  // From the one that all take to the one that all leave.
  const std::vector<Committed> bases = {Base(8, 1, high),  Base(7, 90, high), Base(7, 80, low),
                                        Base(7, 80, high), Base(7, 80, {}),   Base(6, 99, low),
                                        Committed()};
  for (size_t i = 0; i < bases.size(); ++i)
    for (size_t k = 0; k < bases.size(); ++k)
      EXPECT_EQ(IsLater(bases[i], bases[k]), i < k) << i << " " << k;
}

}  // namespace
}  // namespace crowdsurf::worker
