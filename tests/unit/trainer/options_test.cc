// What the trainer's flags set, and what is refused in which words.
#include "worker/trainer/options.h"

namespace crowdsurf::trainer {
namespace {

StatusOr<std::optional<TrainerOptions>> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "crowdsurf-trainer");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

TEST(OptionsTest, CharlmReadsItsFlags) {
  const auto parsed = Parse({"charlm",   "--text", "a",           "b",     "--steps",          "10",
                             "--seed",   "7",      "--step-time", "100ms", "--batch",          "4",
                             "--lr",     "0.25",   "--optimizer", "lamb",  "--evaluate-every", "5",
                             "--sample", "Never"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const TrainerOptions& o = **parsed;
  EXPECT_EQ(o.command, Command::kCharlm);
  EXPECT_EQ(o.texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(o.loop.steps, 10u);
  EXPECT_EQ(o.training.seed, 7u);
  EXPECT_EQ(o.loop.step_time, Milliseconds(100));
  EXPECT_EQ(o.charlm.batch, 4u);
  EXPECT_EQ(o.training.schedule.rate, 0.25);
  EXPECT_EQ(o.training.optimizer.kind, OptimizerKind::kLamb);
  EXPECT_EQ(o.loop.evaluate_every, 5u);
  EXPECT_EQ(o.sample, "Never");
  EXPECT_TRUE(o.wants_sample);
  EXPECT_TRUE(o.loop.duration.infinite());
}

TEST(OptionsTest, SampleMayComeWithoutABeginning) {
  const auto parsed = Parse({"charlm", "--text", "a", "--sample"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE((*parsed)->wants_sample);
  EXPECT_EQ((*parsed)->sample, "");
}

TEST(OptionsTest, MlpReadsWidthsAndShards) {
  const auto parsed =
      Parse({"--portable", "mlp", "--hidden", "32,16", "--shards", "8", "--shard", "3"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->command, Command::kMlp);
  EXPECT_EQ((*parsed)->mlp.hidden, (std::vector<size_t>{32, 16}));
  EXPECT_EQ((*parsed)->shards, 8u);
  EXPECT_EQ((*parsed)->shard, 3u);
  EXPECT_EQ((*parsed)->training.schedule.rate, 0.002);
}

// docs/trainer.md has both rates.
TEST(OptionsTest, HelpAndDefaultsShowEachModelsOwnRate) {
  for (const auto& [model, rate] : {std::pair("charlm", "0.008"), std::pair("mlp", "0.002")}) {
    testing::internal::CaptureStdout();
    ASSERT_TRUE(Parse({model, "--help"}).ok());
    const std::string help = testing::internal::GetCapturedStdout();
    EXPECT_NE(help.find(std::string("=") + rate), std::string::npos) << help;
  }
  EXPECT_EQ((*Parse({"charlm", "--text", "a"}))->training.schedule.rate, 0.008);
  EXPECT_EQ((*Parse({"mlp"}))->training.schedule.rate, 0.002);
}

TEST(OptionsTest, EveryViolationIsNamedAtOnce) {
  const auto parsed = Parse(
      {"charlm", "--batch", "0", "--step-time", "soon", "--optimizer", "magic", "--lr", "-1"});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parsed.status().message(),
            "--text: missing; name a text file or a directory of them, for example "
            "/usr/share/games/fortunes (Debian package fortunes)\n"
            "--batch: 0 is not in 1..4096\n"
            "--step-time: \"soon\" is not a duration like 100ms, 1.5s or 2m\n"
            "--optimizer: \"magic\" is not adam, sgd or lamb\n"
            "--lr: -1 is not in 1e-09..1000");
}

TEST(OptionsTest, UnknownFlagsAndMissingCommandsAreRefused) {
  EXPECT_FALSE(Parse({"charlm", "--text", "a", "--stepps", "1"}).ok());
  EXPECT_FALSE(Parse({}).ok());
  EXPECT_FALSE(Parse({"charlm", "--text", "a", "--schedule", "cosine"}).ok());
  EXPECT_FALSE(Parse({"mlp", "--shards", "2", "--shard", "2"}).ok());
  EXPECT_FALSE(Parse({"sample"}).ok());
}

TEST(OptionsTest, DurationsHaveUnits) {
  EXPECT_EQ(ParseDuration("100ms"), Milliseconds(100));
  EXPECT_EQ(ParseDuration("1.5s"), Milliseconds(1500));
  EXPECT_EQ(ParseDuration("2m"), Seconds(120));
  EXPECT_EQ(ParseDuration("1h"), Seconds(3600));
  EXPECT_EQ(ParseDuration("3"), Seconds(3));
  EXPECT_EQ(ParseDuration(""), std::nullopt);
  EXPECT_EQ(ParseDuration("-1s"), std::nullopt);
  EXPECT_EQ(ParseDuration("ms"), std::nullopt);
  EXPECT_EQ(ParseDuration("nan"), std::nullopt);
}

TEST(OptionsTest, TheWorkersIndexIsInItsName) {
  EXPECT_EQ(WorkerIndexOf("charlm-3-1"), 3u);
  EXPECT_EQ(WorkerIndexOf("my-job-12-0"), 12u);
  EXPECT_EQ(WorkerIndexOf("charlm"), std::nullopt);
  EXPECT_EQ(WorkerIndexOf("charlm-x-1"), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::trainer
