#include "simulator/descent/descent_node.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace crowdsurf::simulator {

using worker::Region;

namespace {

constexpr double kSamplesPerStep = 4;

}  // namespace

worker::Progress DescentNode::Totals() const {
  worker::Progress progress{
      trainer_.steps(), static_cast<double>(trainer_.steps()) * kSamplesPerStep, {}, {}};
  progress.gathered = static_cast<double>(trainer_.gathered());
  progress.gathered_at = trainer_.step();
  return progress;
}

void DescentNode::RequestSnapshot(worker::AveragingId averaging) {
  trainer_.Request(averaging);
  if (!trainer_.gathers()) return;
  // A trainer that waits with its share publishes at once; later, so that nothing is said to the
  // peer while it still acts.
  queue().After(Duration(), [this] {
    if (!alive() || !trainer_.holds_share()) return;
    if (const auto ticket = trainer_.Publish(At(Region::kOutbox).values)) SayPublished(*ticket);
  });
}

void DescentNode::AdoptState(Region region) {
  if (trainer_.Adopt(adopted(), At(region).values)) NextStep();
}

void DescentNode::GatherShare(const worker::TellShare& share) {
  if (trainer_.SetShare(share.samples)) NextStep();
}

void DescentNode::SayPublished(worker::AveragingId ticket) {
  const worker::Progress totals = Totals();
  averages_[ticket].steps = totals.step;
  averages_[ticket].gathered = trainer_.gathered();
  Local(worker::Published{.averaging = ticket,
                          .samples = totals.samples,
                          .step = totals.step,
                          .units = trainer_.units(),
                          .gathered = totals.gathered});
}

void DescentNode::StartTrainer() {
  if (std::exchange(running_, true)) return;
  NextStep();
}

void DescentNode::NextStep() {
  // In a bounded run the trainer rests after its steps.
  if (pace_.steps > 0 && trainer_.steps() >= pace_.steps) return;
  trainer_.TakeUnits();
  queue().After(pace_.step_time * trainer_.step_share(), [this] { StepDone(); });
}

void DescentNode::StepDone() {
  if (!alive()) return;
  const uint64_t results = trainer_.results();
  const auto ticket = trainer_.StepDone(At(Region::kOutbox).values);
  // A result that was there has been applied at this boundary.
  if (trainer_.results() != results) last_result_ = now();
  if (!trainer_.waiting()) NextStep();  // else when the result is there
  if (ticket) SayPublished(*ticket);
  if (trainer_.gathers() && trainer_.holds_share()) Local(Totals());
  RingMarks();
}

void DescentNode::GiveResult(worker::AveragingId ticket, Region region) {
  averages_[ticket].result = At(region).values;
  // Waited for (Blocking): the next step begins now.
  if (!trainer_.Deliver(ticket, At(Region::kOutbox).values, At(region).values)) return;
  last_result_ = now();
  if (trainer_.gathers()) {
    averages_[ticket].model = trainer_.model();
    At(Region::kInboxA).values = trainer_.model();
    StepTaken(ticket);
  }
  NextStep();
}

void DescentNode::Execute(const worker::Action& action) {
  if (const auto* moved = std::get_if<worker::MoveTrainer>(&action)) {
    DescentAverage& average = averages_[moved->averaging];
    const std::vector<float> result = average.result;
    ActionHost::Execute(action);
    average.result = result;
    average.fetched = At(Region::kInboxA).values;
    return;
  }
  if (const auto* kernel = std::get_if<worker::RunKernel>(&action)) {
    // The mean before the step, to be compared with the result.
    if (kernel->kernel == worker::MixKernel::kOuterStep ||
        kernel->kernel == worker::MixKernel::kOuterBegin)
      mean_ = At(kernel->regions[1]).values;
    changes_ = changes_ || kernel->kernel == worker::MixKernel::kOuterChange;
  }
  if (const auto* deliver = std::get_if<worker::Deliver>(&action)) {
    averages_[deliver->averaging].samples = deliver->samples;
    averages_[deliver->averaging].mean = std::exchange(mean_, {});
    averages_[deliver->averaging].changes = std::exchange(changes_, false);
  }
  ActionHost::Execute(action);
}

void DescentNode::ReleaseSnapshot(worker::AveragingId ticket) {
  if (trainer_.Release(ticket)) NextStep();
}

void DescentNode::Wake(const worker::WakeAt& marks) {
  mark_.reset();
  if (marks.steps > 0) mark_ = marks.steps;
  if (marks.samples > 0) {
    const auto steps = static_cast<uint64_t>(std::ceil(marks.samples / kSamplesPerStep));
    mark_ = std::min(mark_.value_or(steps), steps);
  }
  // Later, so that nothing is said to the peer while it still acts.
  queue().After(Duration(), [this] { RingMarks(); });
}

void DescentNode::RingMarks() {
  if (!mark_ || trainer_.steps() < *mark_) return;
  mark_.reset();
  Local(Totals());
}

}  // namespace crowdsurf::simulator
