// The program crowdsurf-worker itself: its flags, its exit codes, and a life from start to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/edge/files.h"
#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

using ::testing::HasSubstr;

// The program in a process of its own. What it writes to stderr goes to a file.
class Program {
 public:
  Program(std::vector<std::string> words, const std::string& said) : said_(said) {
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    words.insert(words.begin(), beside / "crowdsurf-worker");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    for (const char* name : {"CROWDSURF_JOB", "CROWDSURF_WORKER", "CROWDSURF_DIR"}) unsetenv(name);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (freopen(said_.c_str(), "w", stderr) == nullptr) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int Code() {  // once; waits for the end
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }
  std::string said() const { return ReadFile(said_, 1 << 20).value_or(""); }

 private:
  std::string said_;
  pid_t pid_;
};

struct ProgramTest : testing::Test {
  ProgramTest() {
    for (const char* name : {"link", "agent"}) std::filesystem::create_directory(folder / name);
  }
  std::vector<std::string> GoodFlags() const {
    return {"--job",
            "job",
            "--worker",
            "w-0",
            "--dir",
            folder / "link",
            "--agent-dir",
            folder / "agent",
            "--tensor-tls",
            "Disabled",
            "--listen",
            "127.0.0.1",
            "--peer-port",
            "0",
            "--tensor-port",
            "0",
            "--http-port",
            "0",
            "--termination-log",
            folder / "end",
            "--link-on-disk"};
  }
  std::vector<std::string> With(const char* command, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = GoodFlags();
    words.insert(words.begin(), command);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  ScratchFolder folder;
};

TEST_F(ProgramTest, BadFlagsAreTwoAndEachIsNamed) {
  for (const char* command : {"run", "agent"}) {
    Program program({command, "--job", "a/b", "--hang-after", "0.5"}, folder / "said");
    EXPECT_EQ(program.Code(), 2) << command;
    for (const char* flag : {"--job", "--worker", "--dir", "--agent-dir", "--hang-after"})
      EXPECT_THAT(program.said(), HasSubstr(std::string("crowdsurf-worker: ") + flag + ": "));
  }
  EXPECT_EQ(Program({"run", "--no-such-flag"}, folder / "said").Code(), 2);
  EXPECT_EQ(Program(With("agent", {"--tls", "Disabled"}), folder / "said").Code(), 2) << "of old";
  EXPECT_EQ(Program({"dance"}, folder / "said").Code(), 2);
}

TEST_F(ProgramTest, ABadConfigIsTwoAndSaysWhichFile) {
  ASSERT_TRUE(WriteFileAtomically(folder / "agent/config", "{\"averaging\": 3}").ok());
  Program program(With("run"), folder / "said");
  EXPECT_EQ(program.Code(), 2);
  EXPECT_THAT(program.said(), HasSubstr("crowdsurf-worker: config: "));
}

// The cluster's files are linked into the agent's folder, where something else stands in the way.
TEST_F(ProgramTest, AFolderThatCannotHaveTheClustersFilesIsTwo) {
  std::filesystem::create_directory(folder / "cluster");
  ASSERT_TRUE(WriteFileAtomically(folder / "agent/ca.pem", "somebody's").ok());
  Program program(With("run", {"--cluster-dir", folder / "cluster"}), folder / "said");
  EXPECT_EQ(program.Code(), 2);
  EXPECT_THAT(program.said(), testing::ContainsRegex("crowdsurf-worker: --agent-dir: .*/ca.pem: "));
}

// The supervisor passes its flags on, but not its own two; `leave` returns when the agent has left.
TEST_F(ProgramTest, AnAgentRunsUntilItIsAskedToLeave) {
  dht::TestAuthority().Equip(
      folder / "agent", {.seconds = 86'400, .names = "DNS:peer.crowdsurf,URI:crowdsurf://job/w-0"});
  Program run(With("run", {"--die-with-parent"}), folder / "said");
  ASSERT_TRUE(EventuallyHolds([&] { return std::filesystem::exists(folder / "link/agent.sock"); }))
      << run.said();
  Program leave({"leave", "--dir", folder / "link", "--within", "30"}, folder / "leave");
  EXPECT_EQ(leave.Code(), 0) << leave.said();
  EXPECT_EQ(run.Code(), 0) << run.said();
  EXPECT_THAT(run.said(), HasSubstr("tensors travel in the clear"));
  EXPECT_THAT(ReadFile(folder / "end", 1 << 20).value_or(""), HasSubstr("\"reason\":\"left\""));
}

// It has a key: no core file has a copy of it.
TEST_F(ProgramTest, AnAgentLeavesNoCoreFile) {
  dht::TestAuthority().Equip(
      folder / "agent", {.seconds = 86'400, .names = "DNS:peer.crowdsurf,URI:crowdsurf://job/w-0"});
  const Program agent(With("agent"), folder / "said");
  ASSERT_TRUE(EventuallyHolds([&] { return std::filesystem::exists(folder / "link/agent.sock"); }))
      << agent.said();
  EXPECT_THAT(ReadFile(absl::StrCat("/proc/", agent.pid(), "/limits"), 1 << 16).value_or(""),
              testing::ContainsRegex("Max core file size +0 +0 "));
}

TEST_F(ProgramTest, WhereNoAgentIsItHasLeft) {
  Program leave({"leave", "--dir", folder / "link"}, folder / "leave");
  EXPECT_EQ(leave.Code(), 0);
  EXPECT_THAT(leave.said(), HasSubstr("so it has left"));
  Program nowhere({"leave"}, folder / "leave");
  EXPECT_EQ(nowhere.Code(), 2);
  EXPECT_THAT(nowhere.said(), HasSubstr("--dir: is required"));
}

}  // namespace
}  // namespace crowdsurf::worker
