// Files and signals from outside become events, each once. Files are written as a kubelet and as
// local mode write them; formats are those of docs/agent.md.
#include "worker/edge/agent/external_events.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>

#include "base/edge/clock.h"
#include "base/edge/files.h"
#include "base/mailbox.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"
#include "worker/edge/agent/agent_options.h"

namespace crowdsurf::worker {
namespace {

struct ExternalEventsTest : testing::Test {
  ExternalEventsTest() { pthread_sigmask(SIG_SETMASK, nullptr, &mask); }
  ~ExternalEventsTest() override {
    external.reset();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);  // other tests start processes
  }
  void Start() {
    BlockEndSignals();
    ExternalEventsOptions options;
    options.agent_dir = folder.path();
    options.cluster_dir = cluster_dir;
    auto started = ExternalEvents::Start(
        options, [this](ExternalEvent e) { EXPECT_TRUE(events.Post(std::move(e))); }, Logger(),
        metrics);
    ASSERT_TRUE(started.ok()) << started.status();
    external = *std::move(started);
  }
  void Write(const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder / name, text).ok());
  }
  template <class E>
  E Expect() {
    auto event = events.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
    if (!event || !std::holds_alternative<E>(*event)) {
      ADD_FAILURE() << (event ? "another event" : "no event");
      return {};
    }
    return std::get<E>(*event);
  }

  ScratchFolder folder;
  std::string cluster_dir;
  MetricRegistry metrics;
  Mailbox<ExternalEvent> events{100};
  std::unique_ptr<ExternalEvents> external;
  sigset_t mask;
};

TEST_F(ExternalEventsTest, WhatIsThereAtTheStartIsToldFirst) {
  Write("seeds", "10.0.0.1:7946\n\n10.0.0.2:7946\n10.0.0.1:7946\nnonsense\n");
  Write("config", "{\"generation\": 1}");
  Start();
  EXPECT_EQ(Expect<SeedsChanged>().seeds,
            (std::vector<std::string>{"10.0.0.1:7946", "10.0.0.2:7946"}));
  EXPECT_EQ(Expect<ConfigFileChanged>().text, "{\"generation\": 1}");
  EXPECT_EQ(events.size(), 0u);
}

TEST_F(ExternalEventsTest, AnEmptyFolderTellsNoSeedsAndWaits) {
  Start();
  EXPECT_TRUE(Expect<SeedsChanged>().seeds.empty());
  EXPECT_EQ(events.size(), 0u);
}

TEST_F(ExternalEventsTest, EveryChangeIsToldOnce) {
  Start();
  Expect<SeedsChanged>();
  Write("seeds", "a:1\n");
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"a:1"});
  Write("seeds", "a:1\n");
  Write("key.pem", "ours");
  Write("config", "{}");
  EXPECT_EQ(Expect<ConfigFileChanged>().text, "{}") << "equal contents were no event";
}

TEST_F(ExternalEventsTest, ANoticeComesAndIsWithdrawn) {
  Start();
  Expect<SeedsChanged>();
  Write("notice", R"({"reason": "spot", "deadline": 1763719999.5})");
  const auto notice = Expect<NoticeChanged>();
  EXPECT_TRUE(notice.leaving);
  EXPECT_EQ(notice.reason, "spot");
  EXPECT_EQ(notice.deadline.nanoseconds(), 1'763'719'999'500'000'000);
  unlink((folder / "notice").c_str());
  EXPECT_FALSE(Expect<NoticeChanged>().leaving);
  Write("notice", R"({"reason": "ImpendingTermination"})");  // some clouds do not say when
  const auto open = Expect<NoticeChanged>();
  EXPECT_TRUE(open.leaving);
  EXPECT_TRUE(open.deadline.infinite());
}

TEST_F(ExternalEventsTest,
       ASwapOfASymbolicLinkIsAChangeToo) {  // as a kubelet writes projected files
  std::filesystem::create_directory(folder / "..1");
  WriteText(folder / "..1/seeds", "a:1\n");
  std::filesystem::create_symlink("..1", folder / "..data");
  std::filesystem::create_symlink("..data/seeds", folder / "seeds");
  Start();
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"a:1"});
  std::filesystem::create_directory(folder / "..2");
  WriteText(folder / "..2/seeds", "b:2\n");
  std::filesystem::create_symlink("..2", folder / "..data_tmp");
  std::filesystem::rename(folder / "..data_tmp", folder / "..data");
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"b:2"});
}

TEST_F(ExternalEventsTest,
       FilesOfTheClustersOwnFolderAreLinkedAndWatchedToo) {  // pod-lifecycle 1.1
  const std::filesystem::path cluster = std::filesystem::path(folder.path()) / "cluster";
  std::filesystem::create_directories(cluster / "..1");
  WriteText(cluster / "..1/seeds", "a:1\n");
  std::filesystem::create_symlink("..1", cluster / "..data");
  std::filesystem::create_symlink("..data/seeds", cluster / "seeds");
  AgentOptions agent;
  agent.agent_dir = folder.path();
  agent.cluster_dir = cluster.string();
  ASSERT_TRUE(LinkClusterFiles(agent).ok());
  ASSERT_TRUE(LinkClusterFiles(agent).ok()) << "again after a restart";
  cluster_dir = cluster.string();
  Start();
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"a:1"});
  std::filesystem::create_directory(cluster / "..2");
  WriteText(cluster / "..2/seeds", "b:2\n");
  std::filesystem::create_symlink("..2", cluster / "..data_tmp");
  std::filesystem::rename(cluster / "..data_tmp", cluster / "..data");
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"b:2"});
}

TEST_F(ExternalEventsTest, SigtermIsAnEventWithADeadline) {  // pod-lifecycle 1.4
  Start();
  Expect<SeedsChanged>();
  const auto now = WallNow().nanoseconds();
  kill(getpid(), SIGTERM);
  const auto asked = Expect<TerminationAsked>();
  EXPECT_EQ(asked.signal, SIGTERM);
  EXPECT_GE(asked.deadline.nanoseconds(), now + 10'000'000'000);
}

std::atomic<int> handled{0};

std::set<pid_t> Threads() {
  std::set<pid_t> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    all.insert(std::stoi(entry.path().filename()));
  return all;
}

// As a profiler's: its handler runs on the thread that waits, and the wait ends early.
TEST_F(ExternalEventsTest, ASignalThatIsHandledElsewhereChangesNothing) {
  struct sigaction before {
  }, counts{};
  handled = 0;
  counts.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(sigaction(SIGUSR1, &counts, &before), 0);
  const std::set<pid_t> others = Threads();
  Start();
  Expect<SeedsChanged>();
  pid_t waits = 0;
  for (const pid_t thread : Threads())
    if (!others.contains(thread)) waits = thread;
  const auto signal = [&] { return syscall(SYS_tgkill, getpid(), waits, SIGUSR1); };
  // Many, since one may come while it does not wait.
  EXPECT_TRUE(EventuallyHolds([&] { return signal() != 0 || handled >= 20; }));
  Write("seeds", "a:1\n");
  EXPECT_EQ(Expect<SeedsChanged>().seeds, std::vector<std::string>{"a:1"});
  external.reset();
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(ExternalEventsTest, GarbledNoticesAreCountedAndChangeNothing) {
  Start();
  Expect<SeedsChanged>();
  for (const char* text : {"{", "[]", "{}", "{\"deadline\": \"soon\"}", "{\"deadline\": -1}",
                           "{\"deadline\": 1e300}", "\x01\xff\xfe"}) {
    EXPECT_FALSE(ParseNotice(text).ok()) << text;
  }
  Write("notice", "{\"reason\":");
  Write("config", "x");
  Expect<ConfigFileChanged>();
  Write("seeds", "a:1\n");
  Expect<SeedsChanged>();  // of a later look: the one that read the notice is over
  EXPECT_EQ(metrics.Value("crowdsurf_agent_files_garbled_total"), 1);
  EXPECT_FALSE(ParseNotice(" \n").value().leaving);
}

TEST_F(ExternalEventsTest, AFolderThatIsNotThereIsSaidSo) {
  ExternalEventsOptions options;
  options.agent_dir = folder / "none";
  EXPECT_TRUE(absl::IsNotFound(ExternalEvents::Start(
                                   options, [](ExternalEvent) {}, Logger(), metrics)
                                   .status()));
}

}  // namespace
}  // namespace crowdsurf::worker
