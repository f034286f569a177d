// The agent's flags at their bounds: the last value that is allowed, and the first that is not.
#include "worker/edge/agent/agent_options.h"

#include <gtest/gtest.h>

#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

struct AgentOptionsBounds : testing::Test {
  AgentOptionsBounds() {
    good.job = "job";
    good.worker = "w-0";
    good.dir = good.agent_dir = folder.path();
  }
  template <class T>
  size_t With(T AgentOptions::*field, T value) const {
    AgentOptions options = good;
    options.*field = value;
    return Violations(options).size();
  }

  ScratchFolder folder;
  AgentOptions good;
};

TEST_F(AgentOptionsBounds, EachBoundIsAllowedAndTheNextValueIsNot) {
  EXPECT_EQ(Violations(good), std::vector<std::string>());
  for (int AgentOptions::*port :
       {&AgentOptions::peer_port, &AgentOptions::tensor_port, &AgentOptions::http_port}) {
    for (const int value : {0, 65535}) EXPECT_EQ(With(port, value), 0u) << value;
    for (const int value : {-1, 65536}) EXPECT_EQ(With(port, value), 1u) << value;
  }
  for (const int value : {0, 1, 16})
    EXPECT_EQ(With(&AgentOptions::tensor_threads, value), 0u) << value;
  for (const int value : {-1, 17})
    EXPECT_EQ(With(&AgentOptions::tensor_threads, value), 1u) << value;
  for (const double value : {0.0, 1.0, 1e7}) {
    EXPECT_EQ(With(&AgentOptions::hang_after, value), 0u) << value;
  }
  for (const double value : {-1.0, 0.5, 1.1e7}) {
    EXPECT_EQ(With(&AgentOptions::hang_after, value), 1u) << value;
  }
  for (const double value : {0.1, 3600.0}) {
    EXPECT_EQ(With(&AgentOptions::grace_period, value), 0u) << value;
  }
  for (const double value : {0.0, 3600.5}) {
    EXPECT_EQ(With(&AgentOptions::grace_period, value), 1u) << value;
  }
}

TEST_F(AgentOptionsBounds, ANameIsShortWithoutSlashesAndRequired) {
  for (std::string AgentOptions::*name : {&AgentOptions::job, &AgentOptions::worker}) {
    EXPECT_EQ(With(name, std::string(253, 'a')), 0u);
    for (const std::string& value : {std::string(), std::string(254, 'a'), std::string("a/b")})
      EXPECT_EQ(With(name, value), 1u) << value;
  }
  EXPECT_EQ(With(&AgentOptions::agent_dir, folder / "nowhere"), 1u);
  EXPECT_EQ(With(&AgentOptions::dir, std::string()), 1u);
  EXPECT_EQ(With(&AgentOptions::listen, std::string()), 1u);
}

TEST_F(AgentOptionsBounds, WhatPeersAreToDialIsAnAddressOrAName) {
  for (const std::string& value : {std::string(), std::string("10.0.0.1"), std::string("fd00::1"),
                                   std::string("llm-0.llm.default.svc")})
    EXPECT_EQ(With(&AgentOptions::advertise, value), 0u) << value;
  for (const char* value : {"unix:/run/s", "10.0.0.1:7946", "[fd00::1]", "a b", "fe80::1%eth0"})
    EXPECT_EQ(With(&AgentOptions::advertise, std::string(value)), 1u) << value;
}

TEST(AgentOptionsTest, EveryViolationIsNamedAtOnce) {
  AgentOptions options;
  options.listen = "";
  options.peer_port = 70'000;
  options.capacity = "Cheap";
  options.signer = "http://x";
  const std::vector<std::string> violations = Violations(options);
  for (const char* flag : {"--job", "--worker", "--dir", "--agent-dir", "--listen", "--peer-port",
                           "--capacity", "--signer"}) {
    EXPECT_TRUE(std::any_of(violations.begin(), violations.end(), [&](const std::string& text) {
      return text.rfind(std::string(flag) + ":", 0) == 0;
    })) << flag;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
