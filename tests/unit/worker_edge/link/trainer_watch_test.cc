// A trainer that hangs: its agent answers for it, so that who owns the process can end it.
#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/worker_edge/agent/running_agent.h"
#include "worker/edge/link/link_client.h"
#include "worker/edge/link/link_server.h"

namespace crowdsurf::worker {
namespace {

class Answer {
 public:
  explicit Answer(const std::string& endpoint) : client_("http://" + endpoint) {}
  int Of(const std::string& path) {
    const auto reply = client_.Get(path);
    return reply ? reply->status : 0;
  }
  std::string Stacks() {
    const auto reply = client_.Get("/summary");
    if (!reply) return "no answer";
    return nlohmann::json::parse(reply->body)["trainer"].value("stacks", "missing");
  }

 private:
  httplib::Client client_;
};

TEST(TrainerWatch, AHangIsAnsweredForAndTakenBackWithTheNextStep) {
  const dht::TestAuthority authority;
  RunningAgent::Setup setup;
  setup.options.hang_after = 1;
  RunningAgent running(authority, 0, "", std::move(setup));
  ASSERT_NE(running.agent, nullptr);
  Answer answer(running.agent->http_endpoint());
  EXPECT_EQ(answer.Of("/trainerz"), 200) << "who has no trainer yet has none that hangs";

  auto trainer = LinkClient::Connect(running.link(), Seconds(20));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  LinkTensor tensor;
  tensor.name = "weights";
  tensor.shape = {8};
  std::vector<float> params(8, 1.0F);
  EXPECT_TRUE((*trainer)->Register({tensor}).ok());
  EXPECT_TRUE((*trainer)->Start(params, Seconds(20)).ok());
  const auto step = [&] { (void)(*trainer)->StepDone(1, 1.0, params); };
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(answer.Of("/trainerz"), 200);
  // It has a connection and makes no steps.
  // What it writes of its stacks, of any length, is told while it hangs: the end of it.
  EXPECT_EQ(answer.Stacks(), "");
  {
    std::ofstream file(running.link() + "/stacks", std::ios::in | std::ios::out);
    EXPECT_TRUE(file.is_open()) << "it is the agent's";
    file << std::string(3 * LinkServer::kMaxStacks, 'x') << "\n  line 8 in load\n";
  }
  EXPECT_TRUE(EventuallyHolds([&] { return answer.Of("/trainerz") == 503; }));
  EXPECT_EQ(answer.Stacks().size(), LinkServer::kMaxStacks);
  EXPECT_TRUE(answer.Stacks().ends_with("x\n  line 8 in load\n"));
  EXPECT_TRUE(EventuallyHolds([&] {
    step();
    return answer.Of("/trainerz") == 200;
  }));
  EXPECT_EQ(answer.Stacks(), "") << "it steps";
  trainer->reset();
}

}  // namespace
}  // namespace crowdsurf::worker
