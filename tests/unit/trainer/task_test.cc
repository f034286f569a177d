// Tasks against figures known without them: a uniform model's entropy, a trigram's, a linear
// classifier's, and scores taken token by token.
#include "worker/trainer/task.h"

#include <cmath>
#include <numbers>

#include "worker/trainer/data/ngram.h"
#include "worker/trainer/sample.h"
#include "worker/trainer/training.h"

namespace crowdsurf::trainer {
namespace {

// Text with structure that a context of two does not see: each sentence repeats its first word.
std::string EchoText(size_t sentences) {
  const std::vector<std::string> words = {"salt", "silk", "sand", "song", "snow"};
  Rng rng(1);
  std::string text;
  for (size_t i = 0; i < sentences; ++i) {
    const std::string& word = words[rng.Uniform(words.size())];
    text += word + " and " + word + ".\n";
  }
  return text;
}

CharTask SmallCharTask() {
  CharTaskOptions options;
  options.hidden = 16;
  options.batch = 8;
  options.window = 16;
  return CharTask(*MakeCorpus(EchoText(1500), 1), options);
}

TrainingOptions Options(double rate) {
  TrainingOptions options;
  options.schedule.rate = rate;
  return options;
}

TEST(CharTaskTest, UniformModelCostsTheLogarithmOfTheVocabularyOnEveryBlock) {
  CharTask task = SmallCharTask();
  const std::vector<float> zero(task.table().elements(), 0.0f);
  const double bits = std::log2(static_cast<double>(task.corpus().vocabulary.size()));
  EXPECT_NEAR(task.Evaluate(zero, Evaluation::kFull)[0].value, bits, 1e-5);
  EXPECT_NEAR(task.Evaluate(zero, Evaluation::kQuick)[0].value, bits, 1e-5);
}

// Block by block, token by token, through the one-step interface.
TEST(CharTaskTest, HeldOutBitsAreTheMeanOfEveryTokenButTheFirstOfEveryBlock) {
  CharTask task = SmallCharTask();
  std::vector<float> parameters(task.table().elements());
  task.Initialize(5, parameters);
  double bits = 0;
  int scored = 0;
  for (const auto& block : task.corpus().held_out) {
    GruModel<float>::Vector state = GruModel<float>::Vector::Zero(16);
    for (size_t i = 0; i + 1 < block.size(); ++i, ++scored) {
      const auto logits = task.model().Advance(parameters, block[i], state);
      double sum = 0;
      for (Eigen::Index k = 0; k < logits.size(); ++k) sum += std::exp(double{logits(k)});
      bits -= (double{logits(block[i + 1])} - std::log(sum)) / std::numbers::ln2;
    }
  }
  EXPECT_NEAR(task.Evaluate(parameters, Evaluation::kFull)[0].value, bits / scored, 1e-4);
}

TEST(CharTaskTest, LearnsWhatATrigramCannotSeeAndRepeatsItsBits) {
  std::vector<std::vector<float>> ends;
  for (int run = 0; run < 2; ++run) {
    CharTask task = SmallCharTask();
    Training training(task, Options(0.02));
    for (int i = 0; i < 400; ++i) training.Step(1.0);
    ends.emplace_back(training.parameters().begin(), training.parameters().end());
    const double bits = task.Evaluate(training.parameters(), Evaluation::kFull)[0].value;
    EXPECT_LT(bits, HeldOutNgramBits(task.corpus()).trigram);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(CharTaskTest, SampleIsDeterministicAndWithinTheVocabulary) {
  CharTask task = SmallCharTask();
  Training training(task, Options(0.02));
  for (int i = 0; i < 200; ++i) training.Step(1.0);
  SampleOptions options;
  options.prompt = "salt and ";
  options.most = 100;
  const auto draw = [&](uint64_t seed) {
    return Sample(task.model(), training.parameters(), task.corpus().vocabulary, options,
                  Rng(seed));
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_EQ(draw(1).size(), 100u);
  EXPECT_EQ(task.corpus().vocabulary.Encode(draw(1)).size(), 100u);
  options.stop = "\n";
  EXPECT_EQ(draw(1).find('\n'), std::string::npos);
}

TEST(DigitTaskTest, AHiddenLayerLearnsWhatIsLeftOverByALinearClassifier) {
  const auto accuracy = [](std::vector<size_t> hidden) {
    Digits digits = MakeDigits({});
    DigitTaskOptions options;
    options.hidden = std::move(hidden);
    DigitTask task(std::move(digits.train), std::move(digits.held_out), options);
    Training training(task, Options(0.002));
    for (int i = 0; i < 1200; ++i) training.Step(1.0);
    return task.Evaluate(training.parameters(), Evaluation::kFull)[1].value;
  };
  const double linear = accuracy({}), deep = accuracy({64, 64});
  EXPECT_GT(linear, 0.5);
  EXPECT_GT(deep, linear + 0.02);
  EXPECT_GT(deep, 0.9);
}

}  // namespace
}  // namespace crowdsurf::trainer
