#include "worker/trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace crowdsurf::trainer {

double Schedule::RateAt(uint64_t step) const {
  if (step < warmup_steps) {
    // From a share above 0, so that the first step moves, too.
    return rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  // A cosine that would end within the warm-up has no step left to fall in.
  if (kind == ScheduleKind::kConstant || total_steps <= warmup_steps) return rate;
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                        static_cast<double>(total_steps - warmup_steps));
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return rate * (floor + (1 - floor) * cosine);
}

std::optional<ScheduleKind> ScheduleKindNamed(std::string_view name) {
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "cosine") return ScheduleKind::kCosine;
  return std::nullopt;
}

}  // namespace crowdsurf::trainer
