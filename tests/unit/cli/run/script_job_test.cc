// How a trainer's command becomes a job: its name, its words, its end.
#include "cli/run/script_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run/run_session.h"
#include "operator/edge/local/yaml.h"

namespace crowdsurf::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ScriptJobTest, TheJobIsNamedAfterTheScript) {
  EXPECT_EQ(JobNameOf({"python3", "train.py"}), "train");
  EXPECT_EQ(JobNameOf({"python", "-u", "src/Fine_Tune.v2.py", "--lr", "1"}), "fine-tune-v2");
  EXPECT_EQ(JobNameOf({"./train"}), "train");
  EXPECT_EQ(JobNameOf({"python", "-c"}), "python");
  EXPECT_EQ(JobNameOf({"python", "__main__.py"}), "main");
  for (const char* odd : {"7.py", "---", "", "..", "\xc3\xa9.py"})
    EXPECT_EQ(JobNameOf({odd}), "job") << odd;
  EXPECT_EQ(JobNameOf({"python", std::string(300, 'a') + ".py"}), std::string(49, 'a'));
  EXPECT_EQ(JobNameOf({"python", std::string(48, 'a') + "_b.py"}), std::string(48, 'a'));
}

TEST(ScriptJobTest, EveryWordOfTheCommandReachesTheTrainerAsItIs) {
  const std::vector<std::string> command = {"python3", "my train.py", "--text=it's \"{a: b}\" #c",
                                            "-",       "- x",         "yes",
                                            "1.0",     "\n",          "\xc3\xa9"};
  RunFlags flags;
  flags.words = command;
  std::vector<std::string> problems;
  const auto job = LoadJob(CheckFlags(flags, problems), problems);
  ASSERT_THAT(problems, IsEmpty());
  ASSERT_TRUE(job);
  EXPECT_EQ(job->job.name, "my-train");
  const auto& container = job->job.spec.pod_template["spec"]["containers"][0];
  EXPECT_EQ(container["command"].get<std::vector<std::string>>(), command);
  EXPECT_EQ(job->job.spec.replicas, 4);
}

TEST(ScriptJobTest, FlagsStandInForItsNumbersAndTheEndIsSaid) {
  RunFlags flags;
  flags.words = {"python3", "train.py"};
  flags.workers = 2;
  std::vector<std::string> problems;
  auto job = LoadJob(CheckFlags(flags, problems), problems);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->job.spec.replicas, 2);
  EXPECT_EQ(job->job.spec.target["samples"], kScriptSamples);
  EXPECT_THAT(job->remarks, ::testing::Contains(HasSubstr("ends after 1000000 samples")));
  flags.samples = 5000;
  job = LoadJob(CheckFlags(flags, problems), problems);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->job.spec.target["samples"], 5000);
  EXPECT_THAT(problems, IsEmpty());
}

TEST(ScriptJobTest, AnyCharacterStandsInTheManifestAsItIs) {
  const std::vector<std::string> command = {"sh", "-c", "echo \xF0\x9F\x9A\x80 \"\\\u00e9\" : #"};
  const auto manifest = controller::ReadYaml(ScriptManifest(command));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->document["spec"]["template"]["spec"]["containers"][0]["command"], command);
}

TEST(ScriptJobTest, WordsAreOneManifestOrACommand) {
  std::vector<std::string> problems;
  RunFlags flags;
  flags.words = {"job.yaml"};
  EXPECT_EQ(CheckFlags(flags, problems).manifest, "job.yaml");
  flags.words = {"tests/end-to-end"};  // a folder is no program
  EXPECT_EQ(CheckFlags(flags, problems).manifest, "tests/end-to-end");
  flags.words = {"./dev"};
  EXPECT_THAT(CheckFlags(flags, problems).command, ElementsAre("./dev"));
  flags.words = {"./dev", "help"};
  EXPECT_THAT(CheckFlags(flags, problems).command, ElementsAre("./dev", "help"));
  EXPECT_THAT(problems, IsEmpty());
  flags.words = {"a.yaml", "b.yaml"};
  flags.samples = 0;
  CheckFlags(flags, problems);
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("b.yaml: a run has one manifest"), HasSubstr("is zero")));
  flags.duration = "5s";
  problems.clear();
  CheckFlags(flags, problems);
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("--samples: cannot go together")));
}

}  // namespace
}  // namespace crowdsurf::cli
