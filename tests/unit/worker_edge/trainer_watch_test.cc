// A trainer that hangs: its agent answers for it, so that who owns the process can end it.
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/agent.h"
#include "worker/edge/link_client.h"

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::seconds kPatience{30};  // a test fails by it, and never waits for it

class Answer {
 public:
  explicit Answer(const std::string& endpoint) : client_("http://" + endpoint) {}
  int Of(const std::string& path) {
    const auto reply = client_.Get(path);
    return reply ? reply->status : 0;
  }

 private:
  httplib::Client client_;
};

template <class Act>
bool Eventually(Act act) {
  for (const auto until = std::chrono::steady_clock::now() + kPatience;
       std::chrono::steady_clock::now() < until;) {
    if (act()) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(TrainerWatch, AHangIsAnsweredForAndTakenBackWithTheNextStep) {
  const dht::TestAuthority authority;
  const dht::TemporaryDirectory folder;
  AgentOptions options;
  options.job = "job";
  options.worker = "w-0";
  options.dir = (folder.path() / "link").string();
  options.agent_dir = (folder.path() / "agent").string();
  options.termination_log = (folder.path() / "end").string();
  options.require_memory = false;
  options.hang_after = 1;
  std::filesystem::create_directories(options.dir);
  authority.Equip(options.agent_dir,
                  {.seconds = 86'400, .names = "DNS:peer.crowdsurf,URI:crowdsurf://job/w-0"});
  std::ofstream(options.agent_dir + "/seeds") << "\n";
  auto agent = Agent::Start(options, {}, nullptr, LogLevel::kError);
  ASSERT_TRUE(agent.ok()) << agent.status();
  std::thread running([&] { (void)(*agent)->Run(); });
  Answer answer((*agent)->http_endpoint());
  EXPECT_EQ(answer.Of("/trainerz"), 200) << "who has no trainer yet has none that hangs";

  auto trainer = LinkClient::Connect(options.dir, Seconds(20));
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
  EXPECT_TRUE(Eventually([&] { return answer.Of("/trainerz") == 503; }));
  EXPECT_TRUE(Eventually([&] {
    step();
    return answer.Of("/trainerz") == 200;
  }));

  trainer->reset();
  (*agent)->Kill();
  running.join();
}

}  // namespace
}  // namespace crowdsurf::worker
