// Gradients: when a member has its share of a step, the step itself, and a member that missed one
// (averaging.h). Source: docs/gradients.md.
#include <algorithm>
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

bool Averaging::Gathers() const { return AveragesGradients(config_.averaging); }

// Of the parameters that this peer has: what was gathered before a step is dropped with it.
bool Averaging::HasShare() const {
  return progress_.gathered > 0 && progress_.gathered_at == committed_.averaging &&
         progress_.gathered >= static_cast<double>(Share());
}

uint64_t Averaging::Share() const {
  uint64_t live = 0;
  for (const auto& [cell, member] : seating_.occupants())
    if (!down_.contains(member.id)) ++live;
  live = std::max<uint64_t>(live, 1);
  return (seating_.view().config.global_batch + live - 1) / live;
}

void Averaging::TellOfShare(Actions& out) {
  const uint64_t share = Share();
  if (std::exchange(told_share_, share) != share) out.push_back(TellShare{share});
}

// The parameters of a trainer that goes on lie in their place, and the host hashes them. Those of a
// new one are the job's first.
void Averaging::HoldStep(const TrainerRegistered& trainer) {
  committed_ = {.averaging = trainer.step, .root = {}, .job_samples = trainer.job_samples};
  overwritten_ = trainer.step.is_zero();
  hashing_ = !overwritten_;
  told_share_ = 0;
  Learn(committed_);
  next_ = std::max(next_, trainer.step + 1);
}

// The others have had their shares for long: the step begins without the rest.
bool Averaging::IsLate(Time now, size_t due, size_t live) {
  if (2 * due < live) return false;
  if (half_due_.first != next_ || half_due_.second.unset()) half_due_ = {next_, now};
  if (now - half_due_.second < kSharePatience) return false;
  half_due_.second = now;  // where the averaging is held back, it is tried again
  return true;
}

// The trainer makes the step, and its parameters take the base's place. It sees inboxes alone.
bool Averaging::FinishGradient(Time now, Region mean, Actions& out) {
  if (mean != Region::kInboxB) {
    rounds_.OnOverwritten(now, Region::kInboxB, out);
    out.push_back(RunKernel{.kernel = MixKernel::kCopy,
                            .range = {0, trainer_->elements},
                            .regions = {Region::kInboxB, mean},
                            .scalars = {}});
  }
  rounds_.OnOverwritten(now, Region::kInboxA, out);
  return true;
}

void Averaging::OnFetchedStep(Time now, const StateFetched& fetched, Actions& out) {
  if (fetched.ok) {
    committed_ = catch_up_.OnAdopted(fetched);
    committed_region_ = Region::kInboxA;
    committed_.root = Digest();  // as the host hashes it, once the trainer has taken it
    overwritten_ = false;
    hashing_ = true;
    Learn(committed_);
    next_ = std::max(next_, committed_.averaging + 1);
    rounds_.SetMin(next_);
    metrics_.outer_catch_ups->Add();
    log_.Info("state of a step taken", {{"averaging", committed_.averaging.value()}});
  } else {
    catch_up_.OnFetched(fetched, AveragingId());
  }
  const auto waits = std::exchange(waits_, std::nullopt);
  if (waits && Ready() && idle() && *waits >= next_) return TakePart(now, *waits, out);
  CheckDue(now, out);
}

}  // namespace crowdsurf::worker
