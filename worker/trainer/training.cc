#include "worker/trainer/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

constexpr uint32_t kStateMagic = 0x31545343;  // the bytes "CST1"
constexpr uint64_t kMaxNotFinite = 10;        // one bad batch is passed over, ten are the model

// Paces steps: the next one starts `step_time` after this one did. When the sleep returned late,
// the next starts from when it should have: the scheduler's delay does not add up. When the step
// itself took longer, nothing is caught up.
class Pacer {
 public:
  Pacer(Duration step_time, StepClock& clock)
      : step_time_(step_time), clock_(clock), start_(clock.Now()) {}
  void EndOfStep() {
    if (step_time_ <= Duration()) return;
    const Time due = start_ + step_time_;
    const Time now = clock_.Now();
    if (now >= due) {
      start_ = now;
      return;
    }
    clock_.SleepUntil(due);
    start_ = due;
  }

 private:
  Duration step_time_;
  StepClock& clock_;
  Time start_;
};

}  // namespace

Training::Training(Task& task, const TrainingOptions& options)
    : task_(task),
      options_(options),
      parameters_(task.table().elements()),
      gradient_(task.table().elements()),
      optimizer_(options.optimizer, task.table()) {
  Restart(options.seed, options.worker);
}

void Training::Restart(uint64_t seed, std::string worker) {
  CHECK_EQ(step_, 0u);
  options_.seed = seed;
  options_.worker = std::move(worker);
  task_.Initialize(seed, parameters_);
  ForkData();
}

void Training::ForkData() {
  data_ =
      DataOrder(Rng(options_.seed).Fork("data").Fork(options_.worker).Fork(std::to_string(step_)));
}

BatchResult Training::Step(double lr_scale) {
  if (!subnet_) return StepOf({parameters_, gradient_, optimizer_}, lr_scale);
  // Anew at every step: an averaging may have changed the whole parameters since the last one.
  subnet_->Gather(parameters_);
  const BatchResult result =
      StepOf({subnet_->parameters(), subnet_->gradient(), subnet_->optimizer()}, lr_scale);
  subnet_->Scatter(parameters_);
  return result;
}

Status Training::TrainUnits(const worker::IndexSets& sets) {
  const worker::UnitSchema schema = task_.table().units();
  if (!schema.Fits(sets)) {
    return absl::InvalidArgumentError("index sets: of units that this model does not have");
  }
  const worker::IndexSets next = schema.IsWhole(sets) ? worker::IndexSets() : sets;
  if (next == units_) return absl::OkStatus();
  // It may refuse, so nothing is changed before.
  RETURN_IF_ERROR(task_.TrainUnits(next));
  units_ = next;
  subnet_ = next.empty()
                ? nullptr
                : std::make_unique<SubnetParameters>(task_.table(), next, options_.optimizer);
  // Moments of units that others train from now on would be out of date when they come back.
  optimizer_.Reset();
  data_.state.resize(0, 0);
  return absl::OkStatus();
}

BatchResult Training::StepOf(const Target& target, double lr_scale) {
  const BatchResult result = task_.Gradient(data_, target.parameters, target.gradient);
  // Gathered, it is clipped as a whole. A norm that is not finite scales nothing.
  const double norm = ClipByNorm(gathers_ ? 0 : options_.clip, target.gradient);
  const bool finite = std::isfinite(norm) && std::isfinite(result.loss);
  // The step is passed over and yet counted: the schedule goes on, and ten in a row end the loop.
  not_finite_in_a_row_ = finite ? 0 : not_finite_in_a_row_ + 1;
  if (gathers_) return result;
  if (finite)
    target.optimizer.Step(lr_scale * options_.schedule.RateAt(step_), target.gradient,
                          target.parameters);
  ++step_;
  return result;
}

void Training::Apply(std::span<const float> gradient, double lr_scale) {
  std::copy(gradient.begin(), gradient.end(), gradient_.begin());
  ClipByNorm(options_.clip, gradient_);
  optimizer_.Step(lr_scale * options_.schedule.RateAt(step_), gradient_, parameters_);
  ++step_;
}

Bytes Training::Save() const {
  ByteWriter out;
  out.U32(kStateMagic);
  out.U64(step_);
  // No parameters: they travel as the job's averaged vector, beside this state.
  optimizer_.Save(out);
  return out.Take();
}

Status Training::Load(ByteView bytes) {
  ByteReader in(bytes);
  const uint32_t magic = in.U32();
  const uint64_t step = in.U64();
  if (!in.ok() || magic != kStateMagic) {
    return absl::InvalidArgumentError("training state: not one, or cut short");
  }
  // It changes nothing when it fails, and nothing is changed before it.
  RETURN_IF_ERROR(optimizer_.Load(in));
  if (subnet_) subnet_->optimizer().Reset();
  step_ = step;
  ForkData();
  return absl::OkStatus();
}

namespace {

// The loop's bookkeeping: what has been done, and the mean loss since the last report.
class Tally {
 public:
  Tally(StepClock& clock, ProgressSink& sink) : clock_(clock), sink_(sink), start_(clock.Now()) {}

  void Count(const Training& training, const BatchResult& batch) {
    progress_.step = training.step();
    ++progress_.own_steps;
    progress_.samples += batch.samples;
    loss_sum_ += batch.loss;
    ++loss_count_;
  }
  Duration elapsed() { return clock_.Now() - start_; }
  uint64_t own_steps() const { return progress_.own_steps; }
  const Progress& Update() {
    progress_.seconds = elapsed().seconds();
    if (loss_count_ > 0) progress_.loss = loss_sum_ / static_cast<double>(loss_count_);
    return progress_;
  }
  void Report() {
    sink_.OnProgress(Update());
    loss_sum_ = 0;
    loss_count_ = 0;
  }

 private:
  StepClock& clock_;
  ProgressSink& sink_;
  Time start_;
  Progress progress_;
  double loss_sum_ = 0;
  uint64_t loss_count_ = 0;
};

bool IsDue(uint64_t every, uint64_t count) { return every > 0 && count % every == 0; }

}  // namespace

StatusOr<LoopResult> RunTraining(Training& training, const LoopOptions& options,
                                 const LoopCompany& with) {
  StepHook& hook = with.hook;
  ProgressSink& sink = with.sink;
  LoopResult result;
  ASSIGN_OR_RETURN(const StepDecision first, hook.Start(training));
  result.stopped = first.stop;
  if (options.on_start) options.on_start();
  double lr_scale = first.lr_scale;
  // Its clock starts after the hook let us begin: waiting for the agent is no time of training.
  Tally tally(with.clock, sink);
  Pacer pacer(options.step_time, with.clock);
  const auto goes_on = [&] {
    if (*with.interrupt != 0) result.interrupted = true;
    return !result.interrupted && !result.stopped &&
           (options.steps == 0 || tally.own_steps() < options.steps) &&
           tally.elapsed() < options.duration;
  };
  while (goes_on()) {
    const BatchResult batch = training.Step(lr_scale);
    if (training.not_finite_in_a_row() >= kMaxNotFinite) {
      return absl::DataLossError(absl::StrCat("training: the gradient was not finite ",
                                              kMaxNotFinite, " steps in a row at step ",
                                              training.step(), "; try a lower --lr"));
    }
    tally.Count(training, batch);
    ASSIGN_OR_RETURN(const StepDecision decision, hook.OnStep(training, batch));
    result.stopped = decision.stop;
    lr_scale = decision.lr_scale;
    if (IsDue(options.report_every, tally.own_steps())) tally.Report();
    if (IsDue(options.evaluate_every, tally.own_steps())) {
      const auto metrics = training.task().Evaluate(training.parameters(), Evaluation::kQuick);
      hook.OnMetrics(metrics);
      sink.OnMetrics(tally.Update(), metrics, Evaluation::kQuick);
    }
    // What ends does not sleep first.
    if (!result.stopped) pacer.EndOfStep();
  }
  result.progress = tally.Update();
  // An interrupted process is about to be killed: it evaluates nothing.
  if (!result.interrupted) {
    result.metrics = training.task().Evaluate(training.parameters(), options.at_end);
    hook.OnMetrics(result.metrics);
    sink.OnMetrics(result.progress, result.metrics, options.at_end);
  }
  if (result.stopped) hook.OnStopped();
  return result;
}

}  // namespace crowdsurf::trainer
