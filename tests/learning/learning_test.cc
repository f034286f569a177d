// Does it learn? The real model on real text (Debian's fortunes), against the counting models.
//
// Label "learning", not part of the unit tests: about a minute of one core. Steps are
// counted, not seconds, so the outcome does not depend on the machine; docs/trainer.md has the
// seconds.
#include <cstdio>
#include <filesystem>

#include "tests/learning/crowd.h"
#include "worker/trainer/data/ngram.h"
#include "worker/trainer/options.h"

namespace crowdsurf::trainer {
namespace {

constexpr const char* kFortunes = "/usr/share/games/fortunes";

// What `crowdsurf-trainer charlm --text /usr/share/games/fortunes` uses.
TrainerOptions Defaults() {
  const char* arguments[] = {"crowdsurf-trainer", "charlm", "--text", kFortunes};
  return **ParseOptions(4, arguments);
}

class LearningTest : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFortunes)) GTEST_SKIP() << "needs Debian's fortunes";
    options_ = Defaults();
    options_.training.seed = GetParam();
    task_ = std::make_unique<CharTask>(*MakeCorpus(*ReadTexts(options_.texts), options_.split_seed),
                                       options_.charlm);
    ngram_ = HeldOutNgramBits(task_->corpus());
  }
  double Bits(std::span<const float> parameters) {
    return task_->Evaluate(parameters, Evaluation::kFull)[0].value;
  }
  void Print(const char* who, int steps, double bits) const {
    std::printf(
        "%s, seed %llu, %d steps: %.3f bits per character "
        "(unigram %.3f, bigram %.3f, trigram %.3f)\n",
        who, static_cast<unsigned long long>(GetParam()), steps, bits, ngram_.unigram,
        ngram_.bigram, ngram_.trigram);
  }
  TrainerOptions options_;
  std::unique_ptr<CharTask> task_;
  NgramBits ngram_;
};

TEST_P(LearningTest, AloneItPassesTheTrigramInAThousandSteps) {
  constexpr int kSteps = 1000;
  Training training(*task_, options_.training);
  for (int i = 0; i < kSteps; ++i) training.Step(1.0);
  const double bits = Bits(training.parameters());
  Print("alone", kSteps, bits);
  EXPECT_LT(bits, ngram_.trigram);
}

// One seed, because it is eight trainings.
class CrowdLearningTest : public LearningTest {};
TEST_P(CrowdLearningTest, EightAveragedReplicasPassItInSixHundredStepsEachAndGainByAveraging) {
  constexpr int kSteps = 600;
  Crowd crowd(*task_, options_.training, {});
  for (int i = 0; i < kSteps; ++i) crowd.Step();
  const double mean = Bits(crowd.Mean()), own = Bits(crowd.replica(0).parameters());
  Print("eight", kSteps, mean);
  EXPECT_LT(mean, ngram_.trigram);
  EXPECT_LT(mean, own);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LearningTest, testing::Values(1, 2, 3));
INSTANTIATE_TEST_SUITE_P(Seeds, CrowdLearningTest, testing::Values(1));

}  // namespace
}  // namespace crowdsurf::trainer
