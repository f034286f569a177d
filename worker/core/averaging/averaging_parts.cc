#include "worker/core/averaging/averaging_parts.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

bool IsWork(AveragingPart part) {
  return part != AveragingPart::kWaitTrainer && part != AveragingPart::kWaitPeers;
}

}  // namespace

void AveragingParts::Begin(Time now, AveragingPart work) {
  CHECK(IsWork(work));
  Advance(now);
  ++going_on_[static_cast<size_t>(work)];
}

void AveragingParts::End(Time now, AveragingPart work) {
  Advance(now);
  CHECK_GT(going_on_[static_cast<size_t>(work)], 0);
  --going_on_[static_cast<size_t>(work)];
}

void AveragingParts::OnAsked(Time now, AveragingId averaging) {
  Advance(now);
  averaging_ = averaging;
  published_ = false;
  times_ = {};
}

void AveragingParts::OnPublished(Time now, AveragingId averaging) {
  Advance(now);
  if (averaging_ == averaging) published_ = true;
}

std::optional<AveragingTimes> AveragingParts::OnDelivered(Time now, AveragingId averaging) {
  Advance(now);
  if (averaging_ != averaging || !published_) return std::nullopt;
  averaging_.reset();
  return times_;
}

// The time since the last word belongs to what went on then.
void AveragingParts::Advance(Time now) {
  const Duration passed = at_.unset() ? Duration() : std::max(Duration(), now - at_);
  at_ = std::max(at_, now);
  if (!averaging_) return;
  times_.whole = times_.whole + passed;
  bool works = false;
  for (size_t part = 0; part < going_on_.size(); ++part) {
    if (going_on_[part] == 0) continue;
    works = true;
    times_.parts[part] = times_.parts[part] + passed;
  }
  if (works) return;
  const auto wait = published_ ? AveragingPart::kWaitPeers : AveragingPart::kWaitTrainer;
  Duration& waited = times_.parts[static_cast<size_t>(wait)];
  waited = waited + passed;
}

}  // namespace crowdsurf::worker
