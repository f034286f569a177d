// The job's first parameters: those of the first view's only member, for all others (averaging.h).
//
// They count as an average of no samples, made before the view. Source: docs/views.md, First
// parameters.
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// For the copy of a model by its trainer, and its hash. Gigabytes take seconds; one that is silent
// for longer keeps all other workers waiting.
constexpr Duration kFirstPatience = Seconds(20);

}  // namespace

bool Averaging::ReserveFirst() {
  if (!trainer_ || asked_ || !idle() || job_.job_samples > 0) return false;
  first_ = {.stage = FirstStage::kReserved, .number = next_, .until = {}};
  next_ = next_ + 1;
  return true;
}

// In the view that it was reserved for; of any other view it is not the first member.
void Averaging::AskForFirst(Time now, Actions& out) {
  if (first_.stage != FirstStage::kReserved) return DropFirst();
  first_.stage = FirstStage::kAsked;
  first_.until = now + kFirstPatience;
  hashing_ = true;  // no averaging begins before
  asked_ = first_.number;
  asker_ = Asker::kFirst;
  out.push_back(RequestPublish{first_.number});
}

void Averaging::DropFirst() {
  if (gives_first()) hashing_ = false;
  first_ = {};
}

void Averaging::FailFirst(Time now, Actions& out) {
  if (!gives_first()) return;
  log_.Warning("the trainer gave no first parameters: each worker starts from its own", {});
  metrics_.first_none->Add();
  DropFirst();
  CheckDue(now, out);
}

void Averaging::OnFirstSnapshot(Time now, const Published& published, Actions& out) {
  if (asks_for_first() && trainer_ && seated_) {
    first_.stage = FirstStage::kHashing;
    rounds_.OnOverwritten(now, Region::kInboxA, out);
    out.push_back(RunKernel{.kernel = MixKernel::kCopy,
                            .range = {0, trainer_->elements},
                            .regions = {Region::kInboxA, Region::kOutbox},
                            .scalars = {}});
    out.push_back(OfferState{first_.number});
  }
  out.push_back(ReleaseOutbox{published.averaging});
  if (stage_ == Stage::kPublishing) RequestSnapshot(out);
  AskForOthers(out);
}

void Averaging::OnFirstHashed(Time now, const StateHashed& hashed, Actions& out) {
  if (hashed.root.none()) return FailFirst(now, out);
  const AveragingId number = first_.number;
  DropFirst();
  OnHolds({.averaging = number, .root = hashed.root, .job_samples = 0});
  metrics_.first_given->Add();
  log_.Info("first parameters given", {{"averaging", number.value()}});
  CheckDue(now, out);
}

}  // namespace crowdsurf::worker
