// The logs of runs on this machine: files as LocalPod leaves them, and a run that holds its folder.
#include "cli/logs/local_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "base/edge/files.h"
#include "cli/run/state_dir.h"
#include "operator/edge/local/kept_log.h"
#include "tests/unit/cli/logs/pipe_reader.h"

namespace crowdsurf::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LocalLogsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = ::testing::TempDir() + "local_logs_test" + std::to_string(getpid());
    std::filesystem::create_directories(state_ + "/workers");
    options_.job = "job";
  }
  void TearDown() override { std::filesystem::remove_all(state_); }

  std::string Folder(const std::string& worker) const { return state_ + "/workers/" + worker; }
  // One that lives, until Bury.
  void Start(const std::string& worker) {
    std::filesystem::create_directories(Folder(worker) + "/agent");
  }
  void Print(const std::string& worker, const std::string& text) {
    std::string& all = printed_[worker];
    all += text;
    const auto [log, added] = logs_.try_emplace(worker, Folder(worker) + "/trainer.log");
    log->second.Append(all.size(), all, all.substr(0, controller::kKeptHead));
  }
  void Bury(const std::string& worker) { std::filesystem::remove(Folder(worker) + "/agent"); }
  void Ended(const std::string& worker, const std::string& text) {
    Start(worker);
    Print(worker, text);
    EXPECT_TRUE(WriteFileAtomically(Folder(worker) + "/agent.log", "agent of " + worker).ok());
    Bury(worker);
  }
  // All that is printed; an error's words instead.
  std::string Logs() {
    PipeReader reader;
    LinePrinter printer(reader.input(), Prefix::kName);
    const Status printed = PrintLocalLogs(options_, state_, printer);
    return printed.ok() ? reader.Rest() : std::string(printed.message());
  }

  std::string state_;
  LogsOptions options_;
  std::map<std::string, std::string> printed_;
  std::map<std::string, controller::KeptLog> logs_;
};

TEST_F(LocalLogsTest, TheNewestOfEachIndexIsPrintedBehindItsName) {
  Ended("job-0-1", "old\n");
  Ended("job-0-2", "a\nb\n");
  Ended("job-1-1", "c");
  Ended("other-2-1", "of another job\n");
  std::filesystem::create_directories(state_ + "/workers/no worker");
  EXPECT_EQ(Logs(), "job-0-2 | a\njob-0-2 | b\njob-1-1 | c\n");
  options_.tail = 1;
  EXPECT_EQ(Logs(), "job-0-2 | b\njob-1-1 | c\n");
  options_.which = Which::kPrevious;
  EXPECT_EQ(Logs(), "job-0-1 | old\n");
}

TEST_F(LocalLogsTest, OneWorkerByNameOrIndexAlsoOneThatIsGone) {
  Ended("job-0-1", "old\n");
  Ended("job-0-2", "new\n");
  options_.worker = "job-0-1";
  EXPECT_EQ(Logs(), "job-0-1 | old\n");
  options_.worker = "0";
  EXPECT_EQ(Logs(), "job-0-2 | new\n");
  options_.of = LogOf::kAgent;
  EXPECT_EQ(Logs(), "job-0-2 | agent of job-0-2\n");
  options_.worker = "job-0-3";
  EXPECT_EQ(Logs(), "no worker job-0-3; there are job-0-1, job-0-2");
}

TEST_F(LocalLogsTest, AJobWithoutAWorkerIsSaidWithTheJobsThatHaveSome) {
  EXPECT_EQ(Logs(), "no worker of job has started in " + state_);
  Ended("other-0-1", "a\n");
  EXPECT_EQ(Logs(), "no worker of job has started in " + state_ + "; there are some of other");
}

TEST_F(LocalLogsTest, AWorkerThatPrintedNothingHasNoLines) {
  Start("job-0-1");
  EXPECT_EQ(Logs(), "");
}

TEST_F(LocalLogsTest, WhatWorkersPrintCannotControlTheTerminal) {
  Ended("job-0-1", "\x1b[2J 10%\r 20%\nred\x1b[31m\n");
  EXPECT_EQ(Logs(), "job-0-1 |  20%\njob-0-1 | red\n");
}

TEST_F(LocalLogsTest, AFollowerOfARunThatIsOverEnds) {
  Ended("job-0-1", "a\nno end");
  options_.follow = Follow::kYes;
  EXPECT_EQ(Logs(), "job-0-1 | a\njob-0-1 | no end\n");
}

TEST_F(LocalLogsTest, AFollowerSeesWhatComesAndWhoComesUntilTheRunEnds) {
  auto run = StateDir::Open(state_);
  ASSERT_TRUE(run.ok());
  std::optional<StateDir> running(*std::move(run));
  options_.follow = Follow::kYes;
  options_.tail = 1;
  Start("job-0-1");
  Print("job-0-1", "before\nat first\n");
  PipeReader reader;
  LinePrinter printer(reader.input(), Prefix::kName);
  Status followed;
  std::thread follower([&] { followed = PrintLocalLogs(options_, state_, printer); });
  EXPECT_EQ(reader.NextLine(), "job-0-1 | at first");
  Print("job-0-1", "then\n");
  EXPECT_EQ(reader.NextLine(), "job-0-1 | then");
  Start("job-0-2");
  Print("job-0-2", "a\nb\n");
  EXPECT_EQ(reader.NextLine(), "job-0-2 | a") << "all of a newcomer";
  EXPECT_EQ(reader.NextLine(), "job-0-2 | b");
  Print("job-0-1", "last words");
  Bury("job-0-1");
  EXPECT_EQ(reader.NextLine(), "job-0-1 | last words");
  Print("job-0-2", "end\n");
  running.reset();
  follower.join();
  EXPECT_TRUE(followed.ok()) << followed;
  EXPECT_EQ(reader.Rest(), "job-0-2 | end\n");
}

TEST_F(LocalLogsTest, AFollowerOfOneWorkerEndsWithIt) {
  const auto running = StateDir::Open(state_);
  ASSERT_TRUE(running.ok());
  options_.follow = Follow::kYes;
  options_.worker = "0";
  Ended("job-0-1", "a\n");
  Start("job-1-1");
  EXPECT_EQ(Logs(), "job-0-1 | a\n");
}

TEST_F(LocalLogsTest, AFollowerWhoseReaderHasGoneEnds) {
  signal(SIGPIPE, SIG_IGN);
  const auto running = StateDir::Open(state_);
  ASSERT_TRUE(running.ok());
  options_.follow = Follow::kYes;
  Start("job-0-1");
  Print("job-0-1", "a\n");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  LinePrinter printer(ends[1], Prefix::kName);
  EXPECT_TRUE(PrintLocalLogs(options_, state_, printer).ok());
  EXPECT_EQ(printer.error(), EPIPE);
  close(ends[1]);
}

TEST_F(LocalLogsTest, ARunIsKnownByItsFolder) {
  EXPECT_TRUE(HasLocalLogs(state_));
  EXPECT_FALSE(HasLocalLogs(state_ + "/nowhere"));
  EXPECT_FALSE(StateDir::InUse(state_));
  const auto running = StateDir::Open(state_);
  EXPECT_TRUE(StateDir::InUse(state_));
}

}  // namespace
}  // namespace crowdsurf::cli
