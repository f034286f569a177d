// OnEveryTarget: a test's kernels on each instruction set of this machine.
//
// Highway chooses the best one otherwise. Tests alone; one thread.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <functional>

namespace crowdsurf::worker {

// Runs `body` once on every instruction set of this machine that Highway compiled for.
inline void OnEveryTarget(const std::function<void()>& body) {
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  ASSERT_NE(targets, 0);
  for (; targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace crowdsurf::worker
