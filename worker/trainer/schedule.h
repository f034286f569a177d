// Schedule: the learning rate of a step, as a pure function. Any thread.
//
// Linear warm-up, then constant or half a cosine down to a floor (SGDR without restarts, arXiv
// 1608.03983, 5). Steps count from 0 and are the job's, not the process's: who joins takes over the
// donor's count and does not warm up again.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace crowdsurf::trainer {

enum class ScheduleKind { kConstant, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double rate = 0.001;        // the highest
  uint64_t warmup_steps = 0;  // step k of these has (k + 1) / (warmup_steps + 1) of the rate
  uint64_t total_steps = 0;   // where the cosine ends; from there on the floor. kCosine needs > 0
  double floor = 0.05;        // share of `rate`, 0..1

  double RateAt(uint64_t step) const;
};

// "constant", "cosine".
std::optional<ScheduleKind> ScheduleKindNamed(std::string_view name);

}  // namespace crowdsurf::trainer
