// RunningAgent: an agent in this process, as its pod has it, for tests of several that meet.
//
// In folders of its own, with a certificate of the test's authority and one seed, on a thread of
// its own until it is killed or ends. Owner: one test, one thread. An agent that cannot start fails
// the test and is nullptr.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/agent/agent.h"

namespace crowdsurf::worker {

struct RunningAgent {
  struct Setup {
    JobConfig config = {};
    AgentOptions options = {};  // what the test wants beside names and folders, which are set here
    StrategyFactory strategies = BuiltStrategies();
  };

  RunningAgent(const dht::TestAuthority& authority, size_t index, const std::string& seed,
               Setup setup) {
    AgentOptions& options = setup.options;
    options.job = "job";
    options.worker = "w-" + std::to_string(index);
    options.dir = link();
    options.agent_dir = (folder.path() / "agent").string();
    options.termination_log = (folder.path() / "end").string();
    options.require_memory = false;
    options.tensor_threads = 2;  // on small machines, too
    std::filesystem::create_directories(options.dir);
    authority.Equip(
        options.agent_dir,
        {.seconds = 86'400, .names = "DNS:peer.crowdsurf,URI:crowdsurf://job/" + options.worker});
    std::ofstream(options.agent_dir + "/seeds") << seed << "\n";
    auto started =
        Agent::Start(options, setup.config, nullptr, LogLevel::kError, std::move(setup.strategies));
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return;
    agent = *std::move(started);
    thread = std::thread([this] { code = agent->Run(); });
  }
  RunningAgent(const RunningAgent&) = delete;
  RunningAgent& operator=(const RunningAgent&) = delete;
  ~RunningAgent() { Kill(); }
  void Kill() {  // without a word to its peers
    if (agent) agent->Kill();
    if (thread.joinable()) thread.join();
    agent.reset();
  }
  std::string link() const { return (folder.path() / "link").string(); }  // shared with a trainer

  dht::TemporaryDirectory folder;
  std::unique_ptr<Agent> agent;
  std::thread thread;
  int code = -1;  // of an agent that has ended
};

}  // namespace crowdsurf::worker
