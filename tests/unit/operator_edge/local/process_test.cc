// Processes of a run on the real kernel: output, groups, descriptors, and what cleans up behind a
// run that was killed.
#include "operator/edge/local/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "operator/edge/local/run_cleanup.h"

namespace crowdsurf::controller {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxLooks = 3000;  // 10 ms apart: a test fails by it, and never waits for it
const std::vector<std::string> kEnvironment = {"PATH=/usr/bin:/bin"};

// Waits on the child's own descriptors, so nothing here sleeps.
int End(Process& process) {
  while (!process.Reap()) {
    pollfd set[] = {{process.pidfd(), POLLIN, 0}, {process.output(), POLLIN, 0}};
    poll(set, 2, 10'000);
    process.Drain();
  }
  return *process.exit_code();
}

StatusOr<Process> Shell(const std::string& script) {
  return Process::Start({{"sh", "-c", script}, kEnvironment, ""});
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

TEST(ProcessTest, TellsTheExitAndTheLast64KiBOfOutput) {
  auto process = Shell("yes 0123456789abcde | head -c 200000; echo; echo last words >&2; exit 3");
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(End(*process), 3);
  EXPECT_EQ(process->kept_output().size(), kKeptOutput);
  EXPECT_TRUE(process->kept_output().ends_with("last words\n"));
}

TEST(ProcessTest, TheVeryEndOfTheOutputIsKept) {
  auto process = Shell("seq 1 50000");
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(End(*process), 0);
  std::string all;
  for (int i = 1; i <= 50'000; ++i) all += std::to_string(i) + "\n";
  EXPECT_EQ(process->kept_output(), all.substr(all.size() - kKeptOutput));
}

TEST(ProcessTest, ASignalIs128AndItsNumber) {
  auto process = Shell("kill -9 $$");
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(End(*process), 137);
}

TEST(ProcessTest, SaysInWordsWhatCannotBeRun) {
  EXPECT_THAT(Process::Start({{"no-such-program"}, kEnvironment, ""}).status().message(),
              HasSubstr("there is no program no-such-program in PATH /usr/bin:/bin"));
  EXPECT_THAT(Process::Start({{"/etc/passwd"}, kEnvironment, ""}).status().message(),
              HasSubstr("Permission denied"));
}

class RunsInFolderTest : public ::testing::Test {
 protected:
  RunsInFolderTest() {
    std::string name = ::testing::TempDir() + "/process-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RunsInFolderTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  StatusOr<Process> Start(std::vector<std::string> argv, const std::string& path,
                          const std::string& directory) const {
    return Process::Start({std::move(argv), {"PATH=" + path}, directory});
  }
  std::string Problem(const std::string& program, const std::string& directory) const {
    return std::string(Start({program}, "/usr/bin:/bin", directory).status().message());
  }

  std::string folder_;
};

TEST_F(RunsInFolderTest, TheFolderIsBlamedWhereItIsTheFolder) {
  Write("file", "");
  EXPECT_EQ(Problem("sh", folder_ + "/none"),
            "cannot run sh: the working directory " + folder_ + "/none: No such file or directory");
  EXPECT_EQ(Problem("sh", folder_ + "/file"),
            "cannot run sh: the working directory " + folder_ + "/file: Not a directory");
}

TEST_F(RunsInFolderTest, ARelativeProgramIsOfTheWorkingDirectory) {
  Write("wd/t.sh", "#!/bin/sh\nexit 7\n");
  Write("wd/bin/tool", "#!/bin/sh\nexit 8\n");
  // Of our own folder, so that both the test and the child would find another file if they mixed
  // the two up.
  const std::string below = std::filesystem::relative(folder_ + "/wd");
  auto relative = Start({"./t.sh"}, "/usr/bin:/bin", below);
  ASSERT_TRUE(relative.ok()) << relative.status();
  EXPECT_EQ(End(*relative), 7);
  auto in_path = Start({"tool"}, "/usr/bin:./bin", below);
  ASSERT_TRUE(in_path.ok()) << in_path.status();
  EXPECT_EQ(End(*in_path), 8);
  EXPECT_THAT(Problem("./none.sh", below),
              ::testing::EndsWith("wd/./none.sh: No such file or directory"));
}

TEST_F(RunsInFolderTest, AFolderIsNoProgram) {
  std::filesystem::create_directories(folder_ + "/first/tool");
  Write("second/tool", "#!/bin/sh\nexit 9\n");
  auto tool = Start({"tool"}, folder_ + "/first:" + folder_ + "/second", "");
  ASSERT_TRUE(tool.ok()) << tool.status();
  EXPECT_EQ(End(*tool), 9);
  EXPECT_EQ(Problem(folder_ + "/first", ""), "cannot run " + folder_ + "/first: it is a folder");
}

TEST_F(RunsInFolderTest, TheInterpreterIsNamedWhereItIsMissing) {
  Write("crlf.sh", "#!/bin/sh\r\nexit 0\r\n");
  EXPECT_THAT(
      Problem(folder_ + "/crlf.sh", ""),
      HasSubstr("crlf.sh: its interpreter /bin/sh: No such file or directory (its lines end "
                "with a carriage return)"));
  Write("old.py", "#!/usr/bin/python9 -u\n");
  EXPECT_THAT(Problem(folder_ + "/old.py", ""),
              HasSubstr("old.py: its interpreter /usr/bin/python9: No such file or directory"));
  Write("plain", "exit 0\n");
  EXPECT_THAT(Problem(folder_ + "/plain", ""),
              HasSubstr("Exec format error (no #! in its first line)"));
}

// nohup and a shell's background jobs: what was ignored when the run was started stays so.
TEST(ProcessTest, AnInheritedIgnoredHangupStaysIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  auto ignores = Shell("kill -HUP $$; exit 5");
  signal(SIGHUP, before);
  ASSERT_TRUE(ignores.ok());
  EXPECT_EQ(End(*ignores), 5);
  auto ends = Shell("kill -HUP $$; exit 5");
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(End(*ends), 128 + SIGHUP);
}

TEST(ProcessTest, NothingIsInheritedButWhatIsGiven) {
  auto process = Process::Start({{"env"}, {"PATH=/usr/bin:/bin", "A=b"}, ""});
  ASSERT_TRUE(process.ok());
  End(*process);
  EXPECT_EQ(process->kept_output(), "PATH=/usr/bin:/bin\nA=b\n");
}

TEST(ProcessTest, DestructionTakesTheWholeGroup) {
  pid_t child = 0;
  {
    auto process = Shell("sleep 1000 & echo $!; wait");
    ASSERT_TRUE(process.ok());
    while (process->kept_output().empty()) {
      pollfd set = {process->output(), POLLIN, 0};
      poll(&set, 1, 10'000);
      process->Drain();
    }
    child = std::stoi(process->kept_output());
    EXPECT_TRUE(Exists(child));
  }
  // An orphan is reaped by init, which may take a moment.
  for (int look = 0; look < kMaxLooks && Exists(child); ++look) poll(nullptr, 0, 10);
  std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
  const std::string state((std::istreambuf_iterator<char>(stat)), {});
  EXPECT_TRUE(state.empty() || state.find(") Z") != std::string::npos) << state;
}

// kill -9 of the run: a stand-in for `crowdsurf run` starts a pod that hides from its group, then
// dies. Its reaper must leave neither process nor directory.
TEST(ReaperTest, CleansUpAfterKill9OfTheRun) {
  const std::string parent = ::testing::TempDir();
  const std::string run = "test" + std::to_string(getpid());
  const std::string directory = parent + "/crowdsurf-" + run;
  int line[2];
  ASSERT_EQ(pipe(line), 0);
  const pid_t victim = fork();
  if (victim == 0) {
    close(line[0]);
    auto held = RunDirectory::Create(parent, run);
    auto reaper = Reaper::Start(run, held->path());
    auto pod = Process::Start({{"sh", "-c", "setsid sleep 1000 & exec sleep 1000"},
                               {"PATH=/usr/bin:/bin", std::string(kRunVariable) + "=" + run},
                               ""});
    const char ready = pod.ok() && reaper.ok() ? 'y' : 'n';
    [[maybe_unused]] const ssize_t written = write(line[1], &ready, 1);
    while (true) pause();
  }
  close(line[1]);
  char ready = 0;
  ASSERT_EQ(read(line[0], &ready, 1), 1);
  EXPECT_EQ(ready, 'y');
  EXPECT_TRUE(std::filesystem::exists(directory));
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  for (int look = 0; look < kMaxLooks && std::filesystem::exists(directory); ++look) {
    poll(nullptr, 0, 10);
  }
  EXPECT_FALSE(std::filesystem::exists(directory));
  EXPECT_EQ(KillRunProcesses(run), 0) << "nobody is left to kill";
  close(line[0]);
}

// Its own descriptors 0 to 2 must not take the line's number, which is one of them here.
TEST(ReaperTest, WaitsForTheEndOfARunThatHasNoStandardDescriptors) {
  const std::string run = "bare" + std::to_string(getpid());
  const std::string directory = ::testing::TempDir() + "/crowdsurf-" + run;
  std::filesystem::create_directories(directory);
  const pid_t child = fork();
  if (child == 0) {
    for (const int standard : {0, 1, 2}) close(standard);
    {
      const auto reaper = Reaper::Start(run, directory);
      if (!reaper.ok()) _exit(2);
    }
    // It was dismissed, so it has removed nothing.
    _exit(std::filesystem::exists(directory) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(directory);
}

// A trainer's child that has left its group, its session and its environment behind.
TEST(OrphansTest, AreAdoptedAndKilled) {
  const pid_t child = fork();
  if (child == 0) {
    AdoptOrphans();
    auto trainer = Process::Start(
        {{"sh", "-c", "env -i setsid sleep 1000 & env -i setsid true & exit 0"}, kEnvironment, ""});
    if (!trainer.ok() || End(*trainer) != 0) _exit(2);
    auto other = Process::Start({{"sleep", "1000"}, kEnvironment, ""});
    const pid_t ours[] = {other->pid()};
    if (KillOrphans(ours) < 1) _exit(3);
    if (other->Reap()) _exit(4);  // what is ours lives
    ReapOrphans(ours);
    other->SignalGroup(SIGKILL);
    if (End(*other) != 128 + SIGKILL) _exit(5);
    // Nobody is left who could be waited for.
    _exit(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

long OpenFiles() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

// A run starts thousands of processes: nothing of one that has ended stays, neither a descriptor
// nor a zombie.
TEST(ReaperTest, NothingStaysBehindAProcessOrAReaper) {
  const long before = OpenFiles();
  {
    const auto reaper = Reaper::Start("test" + std::to_string(getpid()), "/nowhere");
    ASSERT_TRUE(reaper.ok());
    EXPECT_EQ(OpenFiles(), before + 1) << "its line";
    EXPECT_FALSE(Process::Start({{"sh"}, kEnvironment, "/nowhere"}).ok());
    EXPECT_EQ(OpenFiles(), before + 1);
    auto process = Shell("true");
    ASSERT_TRUE(process.ok());
    EXPECT_EQ(OpenFiles(), before + 3) << "its output, and the descriptor that tells its end";
    EXPECT_EQ(End(*process), 0);
    EXPECT_LE(OpenFiles(), before + 2);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), 0)
        << "the reaper lives, and nobody waits to be reaped";
  }
  EXPECT_EQ(OpenFiles(), before);
}

TEST(SweepTest, AProcessIsOfTheRunThatAWholeEntryOfItsEnvironmentNames) {
  const std::string run = "whole" + std::to_string(getpid());
  const std::string entry = std::string(kRunVariable) + "=" + run;
  const auto start = [](const std::string& variable) {
    return Process::Start({{"sleep", "1000"}, {"PATH=/usr/bin:/bin", variable}, ""}).value();
  };
  Process own = start(entry), other_variable = start("X_" + entry), other_run = start(entry + "x");
  ASSERT_GE(KillRunProcesses(run), 1);
  EXPECT_EQ(End(own), 137);
  EXPECT_FALSE(other_variable.Reap());
  EXPECT_FALSE(other_run.Reap());
}

TEST(SweepTest, TheNextStartRemovesWhatAMachineCrashLeftAndSparesALiveRun) {
  const std::string parent = ::testing::TempDir() + "sweep" + std::to_string(getpid());
  std::filesystem::create_directories(parent + "/crowdsurf-dead");
  std::ofstream(parent + "/crowdsurf-dead/lock") << "";
  auto live = RunDirectory::Create(parent, "live");
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(SweepStaleRuns(parent), 1);
  EXPECT_FALSE(std::filesystem::exists(parent + "/crowdsurf-dead"));
  EXPECT_TRUE(std::filesystem::exists(live->path()));
  EXPECT_FALSE(RunDirectory::Create("/proc", "x").ok());
  std::filesystem::remove_all(parent);
}

TEST(SweepTest, ARunThatStartsIsSparedByAllThatSweepMeanwhile) {
  const std::string parent = ::testing::TempDir() + "starts" + std::to_string(getpid());
  std::filesystem::create_directories(parent);
  std::atomic<bool> done{false};
  std::atomic<int> swept{0}, looks{0};
  std::thread sweeper([&] {
    for (; !done; ++looks) swept += SweepStaleRuns(parent);
  });
  Status spared = absl::OkStatus();
  for (int run = 0; spared.ok() && (run < 500 || looks < 10); ++run) {
    const auto held = RunDirectory::Create(parent, std::to_string(run));
    spared = held.status();
    if (spared.ok() && !std::filesystem::exists(held->path() + "/lock")) {
      spared = absl::NotFoundError(held->path());
    }
  }
  done = true;
  sweeper.join();
  EXPECT_TRUE(spared.ok()) << spared;
  EXPECT_EQ(swept, 0);
  std::filesystem::remove_all(parent);
}

}  // namespace
}  // namespace crowdsurf::controller
