// A snapshot whose values go out while the trainer still copies it (averaging.h). Source:
// docs/averaging.md, Snapshots in parts.
#include "worker/core/averaging/averaging.h"

namespace crowdsurf::worker {
namespace {

// Between two parts of a copy. 16 MiB take some ten milliseconds over a device's bus. The others
// keep their values after two seconds (PacerConfig::min_sit_out), and may have waited for the first
// part already: until then they must have gone on without this member.
constexpr Duration kPartPatience = Seconds(1);

}  // namespace

// Chunks of the snapshot itself travel as they are. All else looks at it as a whole: changes from a
// base, gradients, units, and what neighbours mix.
bool Averaging::SendsInParts() const {
  return !HasChanges() && !Gathers() && !HasUnits() && !mixing_.on_graph();
}

// What was asked for stays asked for until Published: nothing else may be copied there meanwhile.
void Averaging::OnFilled(Time now, const Filled& filled, Actions& out) {
  const AveragingId averaging = filled.snapshot.averaging;
  if (filling_ != averaging) {
    const bool wanted = asked_ == averaging && asker_ == Asker::kAveraging &&
                        AwaitsSnapshot(averaging) && SendsInParts();
    if (!wanted) return;  // Published says what comes of it
    filling_ = averaging;
    part_at_ = now;
    filled_ = filled.elements;
    return TakeSnapshot(now, filled.snapshot, out);
  }
  part_at_ = now;
  FillUpTo(now, filled.elements, out);
}

// A trainer that stops while it copies: this agent lives and answers, so nobody else gives it up.
Time Averaging::PartDeadline() const {
  const bool used = filling_ && snapshotted_ && number_ == *filling_;
  return used ? part_at_ + kPartPatience : Time::Infinite();
}

// No longer of use where its averaging is over: it was given up, or decided without this peer.
void Averaging::FillUpTo(Time now, uint64_t elements, Actions& out) {
  if (!snapshotted_ || number_ != *filling_) return;
  filled_ = elements;
  rounds_.OnFilled(now, elements, out);
  CollectEnded(now, out);
}

// An averaging that is over has released it, or its result is added to what the outbox holds.
void Averaging::FinishFilling(Time now, Actions& out) {
  FillUpTo(now, GroupRounds::kWhole, out);
  filling_.reset();
  if (stage_ == Stage::kPublishing) RequestSnapshot(out);
  AskForOthers(out);
}

// What has gone out was sound, and is counted where it was taken in. The rest will not come.
void Averaging::LoseFilling(Time now, Actions& out) {
  log_.Warning("the trainer gave no whole snapshot", {{"averaging", filling_->value()}});
  const bool used = snapshotted_ && number_ == *filling_;
  filling_.reset();
  if (used) Depart(now, out);
  if (stage_ == Stage::kPublishing) RequestSnapshot(out);
  AskForOthers(out);
}

}  // namespace crowdsurf::worker
