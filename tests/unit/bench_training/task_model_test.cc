// The bench's models against the built-in trainer itself, and jobs of them in virtual time.
#include "bench/training/task_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bench/training/lock_step_run.h"
#include "bench/training/peers_run.h"
#include "worker/core/subnet/subnet.h"
#include "worker/core/view/graph.h"
#include "worker/trainer/data/corpus.h"

namespace crowdsurf::bench {
namespace {

constexpr uint64_t kSteps = 120;
constexpr uint64_t kSeed = 5;

DigitsWorkload SmallDigits(uint32_t workers, double alpha) {
  return DigitsWorkload(
      {.workers = workers, .alpha = alpha, .batch = 8, .hidden = {16}, .seed = kSeed});
}

StepOptions Step(double rate) {
  return {.schedule = ScheduleOf(rate, kSteps), .momentum = 0.9, .seed = kSeed};
}

std::vector<float> TrainAlone(TaskModel& model) {
  std::vector<float> x(model.elements());
  model.Start(x);
  for (uint64_t step = 0; step < kSteps; ++step) model.Step(1, x);
  return x;
}

// One worker in lock step has nobody to talk to: Baseline's Nesterov is the trainer's.
TEST(TaskModel, AloneItIsTheLockStepMethodOfOneWorker) {
  const DigitsWorkload workload = SmallDigits(1, 1);
  TaskModel model(workload.TaskOf(0), Step(0.05), 0);
  const std::vector<float> x = TrainAlone(model);

  TaskGradients gradients(workload, 1, Step(0.05));
  simulator::BaselineOptions options;
  options.graph.nodes = 1;
  options.momentum = 0.9;
  options.rate = [](uint64_t step) { return Step(0.05).schedule.RateAt(step); };
  const auto run =
      simulator::MakeBaseline<float>(simulator::BaselineKind::kDPsgd, options, gradients);
  for (uint64_t step = 0; step < kSteps; ++step) run->Step();
  for (size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], run->model(0)[k], 1e-5F);
}

TEST(TaskModel, AJoinerGoesOnInTheSchedule) {
  const DigitsWorkload workload = SmallDigits(1, 1);
  TaskModel late(workload.TaskOf(0), Step(0.05), 0, kSteps);  // the floor of the cosine
  TaskModel first(workload.TaskOf(0), Step(0.05), 0);         // the first of the warm-up
  std::vector<float> start(late.elements()), x(late.elements()), y(late.elements());
  late.Start(start);
  x = y = start;
  late.Step(1, x);
  first.Step(1, y);
  double far = 0, near = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    far = std::max(far, std::abs(static_cast<double>(y[k] - start[k])));
    near = std::max(near, std::abs(static_cast<double>(x[k] - start[k])));
  }
  const trainer::Schedule schedule = Step(0.05).schedule;
  EXPECT_NEAR(near / far, schedule.RateAt(kSteps) / schedule.RateAt(0), 1e-2);
}

// Of two of sixteen hidden units: 64 weights and a bias into each, ten weights out of each, and the
// ten biases of the classes.
TEST(TaskModel, TrainsTheUnitsThatItIsDealtAlone) {
  const DigitsWorkload workload = SmallDigits(1, 1);
  TaskModel model(workload.TaskOf(0), Step(0.05), 0);
  std::vector<float> start(model.elements());
  model.Start(start);
  const worker::UnitSchema schema = workload.TaskOf(0)->table().units();
  const worker::IndexSets two = {{schema.units().begin()->first, {3, 11}}};
  model.TrainUnits(two);
  constexpr double kOwn = 2 * (64 + 1 + 10) + 10, kAll = 16 * (64 + 1 + 10) + 10;
  EXPECT_DOUBLE_EQ(model.step_share(), kOwn / kAll);
  std::vector<float> x = start;
  for (int step = 0; step < 5; ++step) model.Step(1, x);
  size_t moved = 0;
  for (size_t k = 0; k < x.size(); ++k) moved += x[k] != start[k] ? 1 : 0;
  EXPECT_LE(moved, static_cast<size_t>(kOwn));
  EXPECT_GT(moved, static_cast<size_t>(kOwn) / 2);  // some pixels may be dark
  // With the sub-network's own values put back, all is as it was.
  const worker::Subnet subnet(schema, two);
  std::vector<float> own(subnet.size());
  subnet.Gather(std::span<const float>(start), std::span(own));
  subnet.Scatter(std::span<const float>(own), std::span(x));
  EXPECT_EQ(x, start);
  model.TrainUnits({});
  EXPECT_EQ(model.step_share(), 1);
}

TEST(Judge, OfAModelThatIsNotFiniteIsTheWorst) {
  DigitsWorkload workload = SmallDigits(1, 1);
  std::vector<float> good(workload.TaskOf(0)->table().elements()), bad(good);
  workload.TaskOf(0)->Initialize(kSeed, good);
  bad[3] = std::nanf("");
  const Score score = workload.Judge({good, bad});
  EXPECT_EQ(score.worst, kDiverged);
  EXPECT_EQ(score.worst_accuracy, 0);
  EXPECT_GT(score.mean, kDiverged / 2);
  EXPECT_LT(score.mean, kDiverged / 2 + 5);
}

// A sentence over and over is learned by two GRUs that average every step.
TEST(TextWorkload, TwoLearnASentence) {
  std::string text;
  while (text.size() < 20'000) text += "the crowd picks them up when somebody falls in a pit. ";
  TextWorkload workload(trainer::MakeCorpus(text, kSeed).value());
  LockStepOptions options;
  options.kind = simulator::BaselineKind::kAllReduce;
  options.baseline.graph.nodes = 2;
  options.step = Step(0.2);
  options.step.clip = 1;
  options.steps = kSteps;
  options.look_every = kSteps / 4;
  const LockStepResult result = RunLockStep(options, workload);
  ASSERT_EQ(result.looks.size(), 4U);
  EXPECT_EQ(result.looks.back().steps, kSteps);
  EXPECT_LT(result.score.mean, 1.5);  // bits; letters by how often they come need about four
  EXPECT_GT(result.looks.front().score.mean, result.score.mean + 0.5);
  EXPECT_GT(workload.flops_a_step(), 1e6);
}

// Production cores with real gradients: eight workers that have one class or two learn them all.
TEST(Peers, RelaySumLearnsWhatNoWorkerHas) {
  DigitsWorkload workload = SmallDigits(8, 0.01);
  PeersOptions options;
  options.descent = QuietDescent(simulator::DescentAveraging(worker::StrategyKind::kRelaySum,
                                                             worker::GraphKind::kDoubleBinaryTree),
                                 8, kSeed);
  options.step = Step(0.05);
  options.steps = kSteps;
  options.flops_per_second = workload.flops_a_step() / 0.02;
  options.descent.look_every = Seconds(1);
  options.descent.end = Seconds(60);
  const std::vector<Glance> glances = RunPeers(options, workload);
  ASSERT_FALSE(glances.empty());
  EXPECT_EQ(glances.back().steps, 8.0 * kSteps);
  EXPECT_EQ(glances.back().living, 8);
  EXPECT_GT(glances.back().score.worst_accuracy, 60);

  TaskModel alone(workload.TaskOf(0), Step(0.05), 0);
  const std::vector<float> x = TrainAlone(alone);
  EXPECT_LT(workload.Judge({x}).accuracy, 40);
}

// Production cores deal the units and put the models together: the whole one learns.
TEST(Peers, SubNetworksLearnTogether) {
  const auto run = [](worker::StrategyKind strategy) {
    DigitsWorkload workload({.workers = 4, .alpha = 0, .batch = 8, .hidden = {128}, .seed = kSeed});
    PeersOptions options;
    options.descent =
        QuietDescent(simulator::DescentAveraging(strategy, worker::GraphKind::kComplete), 4, kSeed);
    options.descent.averaging.interval = 10;
    options.step = Step(0.1);
    options.step.momentum = 0;
    options.steps = 4 * kSteps;
    options.step.schedule = ScheduleOf(0.1, options.steps);
    options.flops_per_second = workload.flops_a_step() / 0.5;
    options.descent.look_every = Seconds(300);
    options.descent.end = Seconds(1000);
    options.judge_averages = true;
    return RunPeers(options, workload).back();
  };
  const Glance subnets = run(worker::StrategyKind::kIst);
  const Glance whole = run(worker::StrategyKind::kAllReduce);
  EXPECT_EQ(subnets.steps, 16.0 * kSteps);
  EXPECT_GT(subnets.score.worst_accuracy, 75);
  // One hidden layer: about half of a ring's bytes (docs/strategies/subnet.md).
  EXPECT_NEAR(subnets.bytes / whole.bytes, 0.5, 0.05);
}

TEST(Peers, TwoRunsOfASeedAreTheSame) {
  const auto run = [] {
    DigitsWorkload workload = SmallDigits(4, 0.1);
    PeersOptions options;
    options.descent = QuietDescent(
        simulator::DescentAveraging(worker::StrategyKind::kMoshpit, worker::GraphKind::kComplete),
        4, kSeed);
    options.descent.links.bytes_per_second = 1e7;
    options.step = Step(0.05);
    options.steps = 40;
    options.flops_per_second = workload.flops_a_step() / 0.02;
    options.descent.end = Seconds(20);
    return RunPeers(options, workload).back();
  };
  const Glance one = run(), other = run();
  EXPECT_EQ(one.score.mean, other.score.mean);
  EXPECT_EQ(one.bytes, other.bytes);
  EXPECT_EQ(one.steps, 160.0);
}

}  // namespace
}  // namespace crowdsurf::bench
