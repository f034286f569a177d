// A worker that trains a sub-network alone, against steps computed by hand on the whole model.
#include <gtest/gtest.h>

#include <cmath>

#include "worker/trainer/training.h"

namespace crowdsurf::trainer {
namespace {

constexpr size_t kHidden[] = {6, 5};

DigitTask Digits() {
  const trainer::Digits digits =
      MakeDigits({.train = 100, .held_out = 20, .noise = 0.4, .seed = 1});
  return DigitTask(digits.train, digits.held_out, {.hidden = {6, 5}, .batch = 4});
}

CharTask Text() {
  std::string text;
  Rng rng(1);
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + rng.Uniform(5));
  return CharTask(*MakeCorpus(text, 1), {.hidden = 6, .batch = 2, .window = 8});
}

TrainingOptions Options(OptimizerOptions optimizer) {
  TrainingOptions options;
  options.seed = 3;
  options.worker = "digits-0";
  options.optimizer = optimizer;
  options.schedule.rate = 0.01;
  return options;
}

const OptimizerOptions kAdam{};
const OptimizerOptions kSgd{.kind = OptimizerKind::kSgd, .momentum = 0};
const OptimizerOptions kMomentum{.kind = OptimizerKind::kSgd, .momentum = 0.9};

std::vector<float> Values(const Training& training) {
  return {training.parameters().begin(), training.parameters().end()};
}

worker::IndexSets AllUnits() { return {{0, {0, 1, 2, 3, 4, 5}}, {1, {0, 1, 2, 3, 4}}}; }
worker::IndexSets SomeUnits() { return {{0, {1, 4}}, {1, {0, 2, 3}}}; }

// One member has all units: it is plain training, to the bit, whatever the optimizer keeps.
TEST(SubnetTraining, AllUnitsAreTheWholeModelToTheBit) {
  for (const OptimizerOptions& optimizer : {kAdam, kSgd, kMomentum}) {
    DigitTask one = Digits(), other = Digits();
    Training plain(one, Options(optimizer)), alone(other, Options(optimizer));
    for (int step = 0; step < 30; ++step) {
      ASSERT_TRUE(alone.TrainUnits(AllUnits()).ok());
      plain.Step(1.0);
      alone.Step(1.0);
    }
    EXPECT_EQ(Values(alone), Values(plain));
    EXPECT_EQ(alone.Save(), plain.Save());
  }
}

// The whole model whose columns of absent units are zero and whose others are scaled has the
// sub-network's loss and gradient (mlp_model_test.cc); here: what a step of SGD does with them.
TEST(SubnetTraining, AStepMovesTheSubnetByItsGradientAndNothingElse) {
  DigitTask task = Digits();
  Training training(task, Options(kSgd));
  const std::vector<float> before = Values(training);
  ASSERT_TRUE(training.TrainUnits(SomeUnits()).ok());
  DataOrder data(Rng(3).Fork("data").Fork("digits-0").Fork("0"));

  std::vector<float> masked = before, factor(before.size(), 1.0f);
  std::vector<bool> covered(before.size(), true);
  const auto sets = SomeUnits();
  for (const TensorSpec& t : task.table().tensors()) {
    for (const worker::UnitAxis& cut : t.units) {
      const size_t cols = t.shape.size() > 1 ? t.shape[1] : 1;
      for (size_t i = 0; i < t.elements(); ++i) {
        const size_t unit = cut.axis == 0 ? i / cols : i % cols;
        const bool active = std::ranges::count(sets.at(cut.group), unit) > 0;
        covered[t.offset + i] = covered[t.offset + i] && active;
        if (cut.axis == 0) continue;
        factor[t.offset + i] = active ? static_cast<float>(kHidden[cut.group]) /
                                            static_cast<float>(sets.at(cut.group).size())
                                      : 0;
        masked[t.offset + i] *= factor[t.offset + i];
      }
    }
  }
  DigitTask whole = Digits();
  std::vector<float> gradient(before.size());
  const BatchResult expected = whole.Gradient(data, masked, gradient);
  double norm = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = covered[i] ? gradient[i] * factor[i] : 0;
    norm += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  }
  const double clip = std::min(1.0, 1 / std::sqrt(norm));
  const BatchResult result = training.Step(1.0);
  EXPECT_NEAR(result.loss, expected.loss, 1e-6);
  size_t moved = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto step = static_cast<float>(0.01 * clip) * gradient[i];
    EXPECT_NEAR(training.parameters()[i], before[i] - step, 1e-6) << i;
    if (!covered[i]) {
      EXPECT_EQ(training.parameters()[i], before[i]) << i;
    }
    moved += training.parameters()[i] != before[i] ? 1 : 0;
  }
  EXPECT_GT(moved, 50u);
}

// With bias correction Adam's first step is the learning rate times the gradient's sign, whatever
// came before. So this sees a moment, or a step count, that a new partition left.
TEST(SubnetTraining, OtherUnitsBeginWithoutMoments) {
  DigitTask task = Digits();
  Training training(task, Options(kAdam));
  for (int step = 0; step < 20; ++step) training.Step(1.0);
  for (const worker::IndexSets& sets : {SomeUnits(), {{0, {1, 5}}, {1, {1, 2}}}, AllUnits()}) {
    ASSERT_TRUE(training.TrainUnits(sets).ok());
    const std::vector<float> before = Values(training);
    training.Step(1.0);
    size_t whole_steps = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double moved = std::abs(training.parameters()[i] - before[i]);
      EXPECT_LT(moved, 0.0101) << i;
      whole_steps += moved > 0.0099 ? 1 : 0;
    }
    EXPECT_GE(whole_steps, 10u) << "the biases of the ten classes, at least";
    for (int step = 0; step < 5; ++step) training.Step(1.0);
  }
}

TEST(SubnetTraining, EqualUnitsKeepTheirMoments) {
  DigitTask one = Digits(), other = Digits();
  Training once(one, Options(kMomentum)), again(other, Options(kMomentum));
  ASSERT_TRUE(once.TrainUnits(SomeUnits()).ok());
  for (int step = 0; step < 10; ++step) {
    ASSERT_TRUE(again.TrainUnits(SomeUnits()).ok());
    once.Step(1.0);
    again.Step(1.0);
  }
  EXPECT_EQ(Values(again), Values(once));
}

// The parameters are the trainer's to change at a step boundary: a result of the agent counts.
TEST(SubnetTraining, AStepStartsFromTheParametersAsTheyAre) {
  DigitTask one = Digits(), other = Digits();
  Training changed(one, Options(kSgd)), plain(other, Options(kSgd));
  for (Training* training : {&changed, &plain}) ASSERT_TRUE(training->TrainUnits(SomeUnits()).ok());
  const size_t bias = changed.task().table().Find("dense2.bias")->offset;
  changed.Step(1.0);
  plain.Step(1.0);
  changed.parameters()[bias] += 2.0f;
  EXPECT_NE(changed.Step(1.0).loss, plain.Step(1.0).loss);
  EXPECT_GT(changed.parameters()[bias], plain.parameters()[bias] + 1.0f);
}

TEST(SubnetTraining, UnitsThatTheModelDoesNotHaveAreRefused) {
  DigitTask task = Digits();
  Training training(task, Options(kSgd));
  EXPECT_FALSE(training.TrainUnits({{0, {6}}}).ok());
  EXPECT_FALSE(training.TrainUnits({{2, {0}}}).ok());
  EXPECT_FALSE(training.TrainUnits({{0, {}}}).ok());
}

// A state of another sub-network means nothing to this one: windows go on, with states of zero.
TEST(SubnetTraining, TextWindowsGoOnWithAStateOfTheNewUnits) {
  CharTask task = Text();
  Training training(task, Options(kAdam));
  const size_t recurrent = task.table().Find("gru.recurrent.weight")->offset;
  for (const worker::IndexSets& sets :
       {worker::IndexSets{{0, {0, 5}}}, {{0, {1, 2, 3}}}, {{0, {0, 1, 2, 3, 4, 5}}}}) {
    const std::vector<float> before = Values(training);
    ASSERT_TRUE(training.TrainUnits(sets).ok());
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(std::isfinite(training.Step(1.0).loss));
    for (size_t row = 0; row < 18; ++row) {
      for (size_t col = 0; col < 6; ++col) {
        const bool active =
            std::ranges::count(sets.at(0), row % 6) > 0 && std::ranges::count(sets.at(0), col) > 0;
        const size_t i = recurrent + row * 6 + col;
        EXPECT_EQ(training.parameters()[i] != before[i], active) << row << ", " << col;
      }
    }
  }
}

// A joiner that loads a donor's state in the middle of a partition keeps its own units.
TEST(SubnetTraining, AdoptedStateLeavesTheUnitsAndStartsTheirMomentsAnew) {
  DigitTask task = Digits();
  Training training(task, Options(kAdam));
  ASSERT_TRUE(training.TrainUnits(SomeUnits()).ok());
  for (int step = 0; step < 7; ++step) training.Step(1.0);
  const Bytes state = training.Save();
  DigitTask joiners = Digits();
  Training joiner(joiners, Options(kAdam));
  ASSERT_TRUE(joiner.TrainUnits({{0, {0}}, {1, {0, 1}}}).ok());
  joiner.Step(1.0);
  ASSERT_TRUE(joiner.Load(state).ok());
  EXPECT_EQ(joiner.step(), 7u);
  const std::vector<float> before = Values(joiner);
  joiner.Step(1.0);
  size_t whole_steps = 0;
  for (size_t i = 0; i < before.size(); ++i)
    whole_steps += std::abs(joiner.parameters()[i] - before[i]) > 0.0099f ? 1 : 0;
  EXPECT_GT(whole_steps, 30u);
}

}  // namespace
}  // namespace crowdsurf::trainer
