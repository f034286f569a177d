// Training and its loop, on a task with a known optimum and a clock of the test.
#include "worker/trainer/training.h"

#include <cmath>
#include <limits>

namespace crowdsurf::trainer {
namespace {

// Minimises |p - target|^2 / 2 plus noise; the data stream shows in the gradient.
class QuadraticTask : public Task {
 public:
  QuadraticTask() { table_.Add("p", {4}); }
  const ParameterTable& table() const override { return table_; }
  void Initialize(uint64_t seed, std::span<float> parameters) const override {
    Rng rng(seed);
    for (float& p : parameters) p = static_cast<float>(rng.Normal());
  }
  BatchResult Gradient(DataOrder& data, std::span<const float> parameters,
                       std::span<float> gradient) override {
    double loss = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double error = static_cast<double>(parameters[i]) - 3 + 0.1 * data.rng.Normal();
      gradient[i] = broken ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(error);
      loss += error * error / 2;
    }
    return {.loss = loss, .samples = 8};
  }
  std::vector<Metric> Evaluate(std::span<const float> parameters, Evaluation how) override {
    (how == Evaluation::kFull ? full : quick) += 1;
    return {{"distance", std::abs(static_cast<double>(parameters[0]) - 3)}};
  }
  std::map<std::string, std::string> Metadata() const override { return {}; }
  bool broken = false;
  int quick = 0, full = 0;

 private:
  ParameterTable table_;
};

class FakeClock : public StepClock {
 public:
  Time Now() override { return now; }
  void SleepUntil(Time until) override {
    EXPECT_GE(until, now);
    slept.push_back(until - now);
    now = until + late;
  }
  Time now = Time::FromNanoseconds(1'000'000);
  Duration late;
  std::vector<Duration> slept;
};

class SilentSink : public ProgressSink {
 public:
  void OnProgress(const Progress& p) override { reports.push_back(p); }
  void OnMetrics(const Progress&, std::span<const Metric>, Evaluation) override {}
  std::vector<Progress> reports;
};

// Takes `work` of the clock a step, and says stop after `stop_at` steps.
class WorkingHook : public StepHook {
 public:
  WorkingHook(FakeClock& c, Duration w) : clock(c), work(w) {}
  StatusOr<StepDecision> OnStep(Training&, const BatchResult&) override {
    clock.now = clock.now + work;
    return StepDecision{.stop = ++steps == stop_at, .lr_scale = 1.0};
  }
  FakeClock& clock;
  Duration work;
  int steps = 0;
  int stop_at = 0;
};

TrainingOptions Options(const std::string& worker = "") {
  TrainingOptions options;
  options.seed = 3;
  options.worker = worker;
  options.schedule.rate = 0.05;
  return options;
}

const int kNoInterrupt = 0;

std::vector<float> After(Training& training, int steps) {
  for (int i = 0; i < steps; ++i) training.Step(1.0);
  return {training.parameters().begin(), training.parameters().end()};
}

TEST(TrainingTest, EqualSeedAndWorkerGiveEqualBits) {
  QuadraticTask task;
  Training a(task, Options("w-1")), b(task, Options("w-1"));
  EXPECT_EQ(After(a, 50), After(b, 50));
}

TEST(TrainingTest, WorkersStartEqualAndSeeDifferentData) {
  QuadraticTask task;
  Training a(task, Options("w-1")), b(task, Options("w-2"));
  EXPECT_EQ(After(a, 0), After(b, 0));
  EXPECT_NE(After(a, 1), After(b, 1));
}

TEST(TrainingTest, AJoinerTakesOverMomentsAndStepsButNotTheDataOrder) {
  QuadraticTask task;
  Training donor(task, Options("w-1")), joiner(task, Options("w-2"));
  After(donor, 20);
  ASSERT_TRUE(joiner.Load(donor.Save()).ok());
  std::copy(donor.parameters().begin(), donor.parameters().end(), joiner.parameters().begin());
  EXPECT_EQ(joiner.step(), 20u);
  EXPECT_EQ(joiner.Save(), donor.Save());
  EXPECT_NE(After(donor, 1), After(joiner, 1));
}

TEST(TrainingTest, ARestartedWorkerDoesNotRepeatItsData) {
  QuadraticTask task;
  Training first(task, Options("w-1"));
  const std::vector<float> start = After(first, 0);
  const std::vector<float> once = After(first, 1);
  Training again(task, Options("w-1"));
  again.Step(1.0);
  Training restored(task, Options("w-1"));
  ASSERT_TRUE(restored.Load(again.Save()).ok());
  std::copy(start.begin(), start.end(), restored.parameters().begin());
  EXPECT_NE(After(restored, 1), once);
}

TEST(TrainingTest, StateThatIsNotOneIsRefused) {
  QuadraticTask task;
  Training training(task, Options());
  const Bytes good = training.Save();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(training.Load(ByteView(good).first(length)).ok()) << length;
  }
  Bytes other = good;
  other[0] ^= 1;
  EXPECT_FALSE(training.Load(other).ok());
}

TEST(TrainingTest, AGradientThatIsNotFiniteChangesNothing) {
  QuadraticTask task;
  Training training(task, Options());
  const std::vector<float> before = After(training, 5);
  task.broken = true;
  EXPECT_EQ(After(training, 3), before);
  EXPECT_EQ(training.not_finite_in_a_row(), 3u);
  task.broken = false;
  EXPECT_NE(After(training, 1), before);
  EXPECT_EQ(training.not_finite_in_a_row(), 0u);
}

TEST(RunTrainingTest, LearnsReportsAndEvaluatesWhenAsked) {
  QuadraticTask task;
  Training training(task, Options());
  FakeClock clock;
  SilentSink sink;
  StepHook alone;
  LoopOptions loop;
  loop.steps = 300;
  loop.report_every = 100;
  loop.evaluate_every = 60;
  const auto result = RunTraining(training, loop, {alone, clock, sink, &kNoInterrupt});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->progress.own_steps, 300u);
  EXPECT_EQ(result->progress.samples, 2400u);
  EXPECT_EQ(sink.reports.size(), 3u);
  EXPECT_LT(sink.reports[2].loss, sink.reports[0].loss / 10);
  EXPECT_EQ(task.quick, 5);
  EXPECT_EQ(task.full, 1);
  EXPECT_LT(result->metrics[0].value, 0.2);
}

// A gradient that comes back as it was given is a plain step.
TEST(TrainingTest, AGatheredGradientAppliedIsAStep) {
  QuadraticTask task, other;
  Training plain(task, Options("a")), gathers(other, Options("a"));
  gathers.GatherOnly();
  for (int i = 0; i < 5; ++i) {
    plain.Step(1);
    gathers.Step(1);
    EXPECT_EQ(gathers.step(), plain.step() - 1) << "a gradient is no step";
    const std::vector<float> gradient(gathers.gradient().begin(), gathers.gradient().end());
    gathers.Apply(gradient, 1);
    EXPECT_TRUE(std::ranges::equal(gathers.parameters(), plain.parameters()));
  }
  EXPECT_EQ(gathers.Save(), plain.Save());
}

TEST(RunTrainingTest, TenBrokenGradientsInARowAreAnError) {
  QuadraticTask task;
  task.broken = true;
  Training training(task, Options());
  FakeClock clock;
  SilentSink sink;
  StepHook alone;
  const auto result = RunTraining(training, {}, {alone, clock, sink, &kNoInterrupt});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(training.step(), 10u);
}

TEST(RunTrainingTest, TheHookStopsTheLoopAndAnInterruptSkipsTheEvaluation) {
  QuadraticTask task;
  FakeClock clock;
  SilentSink sink;
  Training training(task, Options());
  WorkingHook hook(clock, Milliseconds(1));
  hook.stop_at = 7;
  const auto stopped = RunTraining(training, {}, {hook, clock, sink, &kNoInterrupt});
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->progress.own_steps, 7u);
  EXPECT_EQ(task.full, 1);
  const int interrupt = 15;
  const auto ended = RunTraining(training, {}, {hook, clock, sink, &interrupt});
  EXPECT_TRUE(ended->interrupted);
  EXPECT_EQ(ended->progress.own_steps, 0u);
  EXPECT_EQ(task.full, 1);
}

// The loop's own steps take no time on the fake clock; the hook's work does.
std::pair<FakeClock, double> Pace(Duration work, Duration late) {
  QuadraticTask task;
  FakeClock clock;
  clock.late = late;
  SilentSink sink;
  Training training(task, Options());
  WorkingHook hook(clock, work);
  LoopOptions loop;
  loop.steps = 100;
  loop.evaluate_every = 0;
  loop.step_time = Milliseconds(100);
  const Time start = clock.now;
  EXPECT_TRUE(RunTraining(training, loop, {hook, clock, sink, &kNoInterrupt}).ok());
  return {clock, (clock.now - start).seconds()};
}

TEST(RunTrainingTest, ShortStepsAreStretchedToTheStepTime) {
  const auto [clock, seconds] = Pace(Milliseconds(30), Duration());
  EXPECT_EQ(clock.slept.size(), 100u);
  EXPECT_EQ(clock.slept[0], Milliseconds(70));
  EXPECT_NEAR(seconds, 10, 1e-9);
}

TEST(RunTrainingTest, LateWakeUpsDoNotAddUp) {
  const auto [clock, seconds] = Pace(Milliseconds(30), Milliseconds(3));
  EXPECT_NEAR(seconds, 10.003, 1e-9);
}

TEST(RunTrainingTest, LongStepsAreNotSleptAfterAndNotCaughtUp) {
  const auto [clock, seconds] = Pace(Milliseconds(130), Duration());
  EXPECT_EQ(clock.slept.size(), 0u);
  EXPECT_NEAR(seconds, 13, 1e-9);
}

TEST(RunTrainingTest, EndsWhenItsTimeIsOver) {
  QuadraticTask task;
  FakeClock clock;
  SilentSink sink;
  Training training(task, Options());
  WorkingHook hook(clock, Milliseconds(100));
  LoopOptions loop;
  loop.duration = Seconds(1.95);
  const auto result = RunTraining(training, loop, {hook, clock, sink, &kNoInterrupt});
  EXPECT_EQ(result->progress.own_steps, 20u);
}

}  // namespace
}  // namespace crowdsurf::trainer
