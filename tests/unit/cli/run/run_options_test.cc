// The flags, files and folders of `crowdsurf run`, and that all mistakes are told at once.
#include "cli/run/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/run/run_session.h"
#include "cli/run/state_dir.h"

namespace crowdsurf::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DurationTest, HasUnits) {
  EXPECT_EQ(*ParseDuration("5s"), Seconds(5));
  EXPECT_EQ(*ParseDuration("100ms"), Milliseconds(100));
  EXPECT_EQ(*ParseDuration("1.5m"), Seconds(90));
  EXPECT_EQ(*ParseDuration("2h"), Seconds(7200));
  EXPECT_EQ(*ParseDuration("3"), Seconds(3));
  for (const char* bad : {"", "s", "5 s", "-1s", "5d", "inf", "nan", "1e999"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
}

TEST(RunFlagsTest, EveryMistakeIsReportedAtOnce) {
  RunFlags flags;
  flags.duration = "x";
  flags.preempt_every = "0s";
  flags.workers = 0;
  flags.preempt_count = "some";
  flags.speed = 0;
  std::vector<std::string> problems;
  CheckFlags(flags, problems);
  EXPECT_EQ(problems.size(), 5u);
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("--workers: 0 is below 1")));
}

TEST(RunFlagsTest, NoticeIsTenSecondsUnlessItIsNone) {
  std::vector<std::string> problems;
  RunFlags flags;
  EXPECT_EQ(CheckFlags(flags, problems).notice, Seconds(10));
  flags.notice = "none";
  EXPECT_FALSE(CheckFlags(flags, problems).notice.has_value());
  EXPECT_THAT(problems, IsEmpty());
}

TEST(RunFlagsTest, TrainersHangAfterAMinuteUnlessSaidOtherwise) {
  std::vector<std::string> problems;
  RunFlags flags;
  controller::TrainingJobSpec spec;
  EXPECT_EQ(HangAfter(CheckFlags(flags, problems), spec), 60);
  spec.agent = {{"hangAfterSeconds", 600}};
  EXPECT_EQ(HangAfter(CheckFlags(flags, problems), spec), 600);
  flags.hang_after = "5s";
  EXPECT_EQ(HangAfter(CheckFlags(flags, problems), spec), 5) << "the flag comes first";
  flags.hang_after = "none";
  EXPECT_EQ(HangAfter(CheckFlags(flags, problems), spec), 0);
  EXPECT_THAT(problems, IsEmpty());
  flags.hang_after = "0.5s";
  flags.http_port = 70'000;
  CheckFlags(flags, problems);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("--hang-after: is below 1s"),
                                    HasSubstr("--http-port: 70000 is not a port")));
}

TEST(RunFlagsTest, WhereTheReportGoesIsLookedAtBeforeTheTraining) {
  namespace fs = std::filesystem;
  const std::string folder = ::testing::TempDir() + "report" + std::to_string(getpid());
  fs::create_directories(folder + "/taken.json");
  fs::create_directories(folder + "/page.html");
  std::ofstream(folder + "/file") << "x";
  const auto problems = [&](const std::string& report) {
    std::vector<std::string> found;
    RunFlags flags;
    flags.report = folder + report;
    CheckFlags(flags, found);
    return found;
  };
  EXPECT_THAT(problems("/new.json"), IsEmpty());
  EXPECT_THAT(problems("/file"), IsEmpty()) << "it is replaced";
  EXPECT_THAT(problems("/taken.json"), ElementsAre(HasSubstr("taken.json is a folder")));
  EXPECT_THAT(problems("/page.json"), ElementsAre(HasSubstr("page.html is a folder")));
  EXPECT_THAT(problems("/"), ElementsAre(HasSubstr("is a folder")));
  EXPECT_THAT(problems("/new.html"), ElementsAre(HasSubstr("is the name of the page")));
  EXPECT_THAT(problems("/none/new.json"), ElementsAre(HasSubstr("none: No such file")));
  EXPECT_THAT(problems("/file/new.json"), ElementsAre(HasSubstr("file: Not a directory")));
  fs::remove_all(folder);
}

TEST(RunFlagsTest, ABadNumberOfWorkersIsToldOnce) {
  std::vector<std::string> problems;
  RunFlags flags;
  flags.workers = -1;
  EXPECT_FALSE(CheckFlags(flags, problems).workers.has_value());
  EXPECT_THAT(problems, ElementsAre("--workers: -1 is below 1"));
}

TEST(RunFlagsTest, ATraceThatIsNotThereIsSaidSo) {
  std::vector<std::string> problems;
  RunFlags flags;
  flags.preempt_trace = "/none/trace.csv";
  CheckFlags(flags, problems);
  EXPECT_THAT(problems, ElementsAre("--preempt-trace: cannot read /none/trace.csv: "
                                    "No such file or directory"));
}

class LoadJobTest : public ::testing::Test {
 protected:
  std::vector<std::string> Problems(const std::string& yaml, RunOptions options = {}) {
    options.manifest = path_;
    std::ofstream(path_) << yaml;
    std::vector<std::string> problems;
    job_ = LoadJob(options, problems);
    return problems;
  }
  const std::string path_ = ::testing::TempDir() + "load_job_" + std::to_string(getpid()) + ".yaml";
  std::optional<LocalJob> job_;
};

constexpr char kJob[] = R"(apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: charlm}
spec:
  replicas: 8
  target: {samples: 1000}
  template: {spec: {containers: [{name: trainer, image: i, command: [t]}]}}
)";

TEST_F(LoadJobTest, NamesFileLineAndPath) {
  std::string yaml = kJob;
  yaml.replace(yaml.find("replicas: 8"), 11, "replicas: x");
  EXPECT_THAT(Problems(yaml), ElementsAre(path_ + ":5: spec.replicas: x is not an integer"));
}

TEST_F(LoadJobTest, FlagsStandInForFields) {
  RunOptions options;
  options.workers = 3;
  options.duration = Seconds(30);
  options.strategy = "AllReduce";
  EXPECT_THAT(Problems(kJob, options), IsEmpty());
  EXPECT_EQ(job_->job.spec.replicas, 3);
  EXPECT_EQ(job_->job.spec.target.size(), 1u);
  EXPECT_NEAR(job_->job.spec.target["seconds"].get<double>(), 30, 1e-9);
  EXPECT_EQ(job_->job.spec.averaging["strategy"], "AllReduce");
  options.strategy = "Nonsense";
  EXPECT_THAT(Problems(kJob, options).front(), HasSubstr("spec.averaging.strategy: Nonsense"));
}

TEST_F(LoadJobTest, LocalModeRefusesWhatItCannotDo) {
  std::string yaml = kJob;
  yaml.replace(yaml.find(", command: [t]"), 14, "");
  EXPECT_THAT(Problems(yaml).front(), HasSubstr("command: is missing; local mode has no image"));
  yaml = kJob;
  yaml.replace(yaml.find("command: [t]"), 12, "command: [t, --text, /no/such/text]");
  EXPECT_THAT(Problems(yaml).front(), HasSubstr("/no/such/text is not there"));
}

TEST_F(LoadJobTest, EveryTextIsLookedAt) {
  std::string yaml = kJob;
  yaml.replace(yaml.find("command: [t]"), 12,
               "command: [t, --text, /tmp, /dev/null, /none, --x, /no]");
  EXPECT_THAT(Problems(yaml), ElementsAre(HasSubstr("/dev/null is neither a file nor a folder"),
                                          HasSubstr("/none is not there")));
  if (geteuid() == 0) return;  // who may read anything
  const std::string secret = path_ + ".secret";
  std::ofstream(secret) << "x";
  std::filesystem::permissions(secret, std::filesystem::perms::none);
  yaml.replace(yaml.find("/dev/null"), 9, secret);
  EXPECT_THAT(Problems(yaml).front(), HasSubstr("cannot be read: Permission denied"));
  std::filesystem::remove(secret);
}

TEST(StateDirTest, AskedForSpaceItNamesTheFolderWhatIsFreeAndWhatIsNeeded) {
  const std::string path = ::testing::TempDir() + "none/below";
  EXPECT_TRUE(CheckSpace(path, 1).ok());
  EXPECT_TRUE(CheckSpace("/proc/nowhere", 1'000'000'000).ok()) << "it does not say how full it is";
  const Status status = CheckSpace(path, 1'000'000'000);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(HasSubstr("no space: the state directory " + path + " has room for "),
                       HasSubstr("1000000000 workers need 256000001024 KiB"),
                       HasSubstr("name another with --state-dir")));
}

TEST(StateDirTest, HoldsOneRunAtATimeAndForgetsWhatIsDone) {
  const std::string path = ::testing::TempDir() + "state" + std::to_string(getpid());
  {
    auto state = StateDir::Open(path);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_FALSE(*state->Prepare(OldCheckpoint::kResume));
    std::ofstream(state->checkpoint() + "/1") << "x";
    const auto second = StateDir::Open(path);
    EXPECT_THAT(second.status().message(),
                HasSubstr("in use by another run (pid " + std::to_string(getpid()) + ")"));
  }
  {
    auto state = StateDir::Open(path);
    ASSERT_TRUE(state.ok());
    EXPECT_TRUE(*state->Prepare(OldCheckpoint::kResume)) << "an interrupted run is resumed";
    state->Remember(RunEnd::kDone);
  }
  {
    auto state = StateDir::Open(path);
    EXPECT_FALSE(*state->Prepare(OldCheckpoint::kResume)) << "one that succeeded is done";
  }
  std::filesystem::remove_all(path);
  EXPECT_FALSE(StateDir::Open("/proc/nowhere").ok());
}

}  // namespace
}  // namespace crowdsurf::cli
