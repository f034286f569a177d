// The Python package against the agent's real side of the link: with numpy, without it, and with
// PyTorch where it is installed. The client is a process of its own, as in a job.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/core/subnet/index_sets.h"
#include "worker/core/subnet/subnet.h"

namespace crowdsurf::worker {
namespace {

// python3 with these arguments; its output when it ends well, its exit status otherwise.
std::string Output(const std::string& arguments) {
  FILE* pipe = popen(("/usr/bin/python3 " + arguments).c_str(), "r");
  std::string out;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  const int status = pclose(pipe);
  return status == 0 ? out : "status " + std::to_string(status);
}

bool Has(const char* module) {
  return Output(std::string("-c 'import ") + module + "' 2>/dev/null").empty();
}

class PythonClient : public LinkFixture {
 protected:
  void StartClient(std::string arguments) {
    client_ = std::thread(
        [this, arguments = std::move(arguments)] { said_ = Output(arguments + " " + dir_); });
  }
  ~PythonClient() override {
    if (client_.joinable()) client_.join();
  }
  void OfferAdoption() {
    std::optional<HeldOpaque> held;
    if (opaque_) held = Held(*opaque_);
    server_->OfferAdoption(0, 4, held);
  }
  // Adopts, publishes, adds a result of (snapshot + 5) / 2, publishes again above 3.
  void JoinAndAverage() {
    StartServer();
    started_();
    EXPECT_EQ(Expect<link::TrainerRegistered>().elements, 32u);
    std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
    OfferAdoption();
    Expect<link::Adopted>();
    server_->RequestPublish(5);
    const auto published = Expect<link::Published>();
    EXPECT_EQ(published.number, 5u);
    EXPECT_EQ(published.samples, 8 * published.steps);
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_NEAR(server_->outbox()[i], 3.0f, 1e-3);
      server_->inbox(1)[i] = (server_->outbox()[i] + 5.0f) / 2;
    }
    server_->Deliver(5, 1);
    EXPECT_EQ(Expect<link::Applied>().number, 5u);
    server_->RequestPublish(6);
    Expect<link::Published>();
    EXPECT_GT(server_->outbox()[31], 3.0f);
    server_->ReleaseOutbox(6);
  }
  std::string EndAndListen() {
    server_->RaiseStop();
    Expect<link::StopAcknowledged>();
    Expect<link::TrainerGone>();
    client_.join();
    return said_;
  }

  std::function<void()> started_;
  std::optional<ByteView> opaque_ = AsBytes("state of a donor");
  std::thread client_;
  std::string said_;
};

TEST_F(PythonClient, OffsetsAreThoseOfTheLayout) {
  std::istringstream lines(Output("tests/python/layout_dump.py"));
  std::map<std::string, size_t> python;
  std::string name;
  size_t value = 0;
  while (lines >> name >> value) python[name] = value;
  const std::map<std::string, size_t> layout = {
      {"CONTROL_BYTES", kLinkControlBytes},
      {"METRICS_MOST", kLinkMetrics},
      {"VERSION", kLinkVersion},
      {"JOB_AVERAGING", offsetof(LinkControl, job.averaging)},
      {"JOB_EPOCH", offsetof(LinkControl, job.epoch)},
      {"JOB_MEMBERS", offsetof(LinkControl, job.members)},
      {"AGENT_EPOCH", offsetof(LinkControl, agent_epoch)},
      {"AGENT_BEAT", offsetof(LinkControl, agent_beat)},
      {"AGENT_BELL", offsetof(LinkControl, agent_bell)},
      {"TRAINER_BELL", offsetof(LinkControl, trainer_bell)},
      {"WAKE_AT_STEPS", offsetof(LinkControl, wake_at.steps)},
      {"WAKE_AT_SAMPLES", offsetof(LinkControl, wake_at.samples)},
      {"HOLD", offsetof(LinkControl, hold)},
      {"STOP", offsetof(LinkControl, stop)},
      {"NOTICE", offsetof(LinkControl, notice.flag)},
      {"NOTICE_DEADLINE", offsetof(LinkControl, notice.deadline_ns)},
      {"PUBLISH_WANTED", offsetof(LinkControl, publish_wanted)},
      {"RESULT_READY", offsetof(LinkControl, result_ready.ticket)},
      {"RESULT_AVERAGING", offsetof(LinkControl, result_ready.averaging)},
      {"RELEASED", offsetof(LinkControl, released)},
      {"ADOPT_REQUEST", offsetof(LinkControl, adopt.request)},
      {"ADOPT_AVERAGING", offsetof(LinkControl, adopt.averaging)},
      {"ADOPT_HAS_OPAQUE", offsetof(LinkControl, adopt.has_opaque)},
      {"OVERLAP", offsetof(LinkControl, mode.overlap)},
      {"INBOX_IS_CHANGE", offsetof(LinkControl, mode.inbox_is_change)},
      {"CADENCE_STEPS", offsetof(LinkControl, mode.cadence_steps)},
      {"LR_SCALE", offsetof(LinkControl, lr_scale)},
      {"JOB_SAMPLES", offsetof(LinkControl, job.samples)},
      {"OPAQUE_WANTED", offsetof(LinkControl, opaque_wanted)},
      {"STEPS", offsetof(LinkControl, steps)},
      {"SAMPLES", offsetof(LinkControl, samples)},
      {"PUBLISHED", offsetof(LinkControl, published.ticket)},
      {"PUBLISHED_STEPS", offsetof(LinkControl, published.steps)},
      {"PUBLISHED_SAMPLES", offsetof(LinkControl, published.samples)},
      {"FILLING_TICKET", offsetof(LinkControl, filling.ticket)},
      {"FILLING_ELEMENTS", offsetof(LinkControl, filling.elements)},
      {"ORDER", offsetof(LinkControl, order)},
      {"APPLIED", offsetof(LinkControl, applied)},
      {"STOP_ACKNOWLEDGED", offsetof(LinkControl, stop_acknowledged)},
      {"ADOPTED", offsetof(LinkControl, adopted)},
      {"STALL_NS", offsetof(LinkControl, stall_ns)},
      {"PROGRESS_SEQUENCE", offsetof(LinkControl, progress.sequence)},
      {"LOSS", offsetof(LinkControl, progress.loss)},
      {"INDEX_VERSION", offsetof(LinkControl, index_version)},
      {"INDEX_TAKEN", offsetof(LinkControl, index_taken)},
      {"OPAQUE_GIVEN", offsetof(LinkControl, opaque_given)},
      {"LEASES_VERSION", offsetof(LinkControl, leases_version)},
      {"PUBLISHED_STREAM", offsetof(LinkControl, published.stream)},
      {"PUBLISHED_POSITION", offsetof(LinkControl, published.position)},
      {"LEASES_STREAM", offsetof(LinkControl, leases.stream)},
      {"LEASES_POSITION", offsetof(LinkControl, leases.position)},
      {"LEASES_WAITS", offsetof(LinkControl, leases.waits)},
      {"LEASES_SEEN", offsetof(LinkControl, leases.seen)},
      {"SHARE", offsetof(LinkControl, share)},
      {"PUBLISHED_GATHERED", offsetof(LinkControl, published.gathered)},
      {"GATHERED", offsetof(LinkControl, gradient.gathered)},
      {"SHARES", offsetof(LinkControl, gradient.shares)},
      {"PARAMETERS_STEP", offsetof(LinkControl, gradient.step)},
      {"METRICS", offsetof(LinkControl, metrics)}};
  EXPECT_EQ(python, layout);
}

TEST_F(PythonClient, WithNumpyItJoinsAveragesGivesItsStateAndStops) {
  if (!Has("numpy")) GTEST_SKIP() << "needs Debian's python3-numpy";
  started_ = [this] { StartClient("tests/python/averaging_client.py"); };
  JoinAndAverage();
  server_->RequestOpaque();
  Expect<link::OpaqueGiven>();
  EXPECT_EQ(AsString(Given()), "state of python");
  EXPECT_EQ(server_->counters().metrics.count("distance"), 1u);
  EXPECT_EQ(EndAndListen(), "numpy\n");
}

// The snapshot comes while it is held, and is what it was given; then it adopts, and trains.
TEST_F(PythonClient, HeldItGivesItsFirstParametersWhenItIsAsked) {
  StartServer();
  StartClient("tests/python/averaging_client.py");
  EXPECT_TRUE(Expect<link::TrainerRegistered>().gives_first);
  server_->RequestPublish(1);
  const auto published = Expect<link::Published>();
  EXPECT_EQ(published.number, 1u);
  EXPECT_EQ(published.steps, 0u);
  EXPECT_EQ(published.samples, 0u);
  for (const float value : server_->outbox()) EXPECT_EQ(value, 42.0f);
  EXPECT_TRUE(server_->counters().waits_for_agent);
  server_->ReleaseOutbox(1);
  server_->RequestOpaque();
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
  OfferAdoption();
  Expect<link::OpaqueGiven>();
  EXPECT_EQ(AsString(Given()), "state of python");
  Expect<link::Adopted>();
  server_->RequestPublish(2);
  EXPECT_GT(Expect<link::Published>().steps, 0u);
  for (const float value : server_->outbox()) EXPECT_NEAR(value, 3.0f, 1e-3);
  server_->ReleaseOutbox(2);
  EndAndListen();
}

// u32 group, u32 count, the indices; groups in ascending order (docs/trainer-link.md, part 8). By
// hand: what the page says.
Bytes ByHand(const std::map<uint32_t, std::vector<uint32_t>>& sets) {
  Bytes out;
  const auto put = [&](uint32_t word) {
    for (int byte = 0; byte < 4; ++byte) out.push_back(static_cast<uint8_t>(word >> (8 * byte)));
  };
  for (const auto& [group, indices] : sets) {
    put(group);
    put(static_cast<uint32_t>(indices.size()));
    for (const uint32_t index : indices) put(index);
  }
  return out;
}

TEST_F(PythonClient, ActiveIndexSetsReachTheTrainerAndOnlyTheirRowsMove) {
  StartServer();
  StartClient("tests/python/index_sets_client.py");
  ASSERT_EQ(Expect<link::TrainerRegistered>().elements,
            17u);  // 6 rows of 2 in group 0, 5 of 1 in group 1
  EXPECT_FALSE(server_->SetIndexSets(Bytes(4 * (2 + 6 + 2 + 5) + 4))) << "more than all indices";
  ASSERT_TRUE(server_->SetIndexSets(ByHand({{0, {1, 3, 5}}, {1, {0, 4}}})));
  EXPECT_FALSE(server_->SetIndexSets(ByHand({{0, {2}}, {1, {2}}})))
      << "the first are not taken yet";
  const auto moved = [&](uint64_t averaging) {
    server_->RequestPublish(averaging);
    EXPECT_EQ(Expect<link::Published>().number, averaging);
    std::vector<size_t> at;
    for (size_t i = 0; i < 17; ++i)
      if (server_->outbox()[i] != 0) at.push_back(i);
    server_->ReleaseOutbox(averaging);
    return at;
  };
  server_->LetStart();
  EXPECT_THAT(moved(1), testing::ElementsAre(2, 3, 6, 7, 10, 11, 12, 16));
  ASSERT_TRUE(server_->SetIndexSets(ByHand({{0, {2}}, {1, {2}}}))) << "the trainer has the first";
  EXPECT_THAT(moved(2), testing::IsSupersetOf({2, 3, 6, 7, 10, 11, 12, 16}));
  EXPECT_THAT(moved(3), testing::ElementsAre(2, 3, 4, 5, 6, 7, 10, 11, 12, 14, 16));
  EXPECT_EQ(EndAndListen(), "{0: (1, 3, 5), 1: (0, 4)}\n{0: (2,), 1: (2,)}\n");
}

// What Python gathers and scatters is what the agent's core takes for the sub-network: element by
// element, with blocks, units of two positions, an axis in the middle, and tensors without groups.
TEST_F(PythonClient, ASubnetInPythonHasTheCoordinatesOfTheCore) {
  StartServer();
  StartClient("tests/python/subnet_client.py");
  const auto registered = Expect<link::TrainerRegistered>();
  ASSERT_EQ(registered.elements, 48u + 24 + 12 + 5 + 1);
  const IndexSets sets = {{7, {1, 2, 3}}, {9, {2}}};
  ASSERT_TRUE(server_->SetIndexSets(EncodeIndexSets(sets)));
  server_->LetStart();
  const Subnet subnet(UnitsOf(server_->geometry()), sets);
  std::vector<float> ones(subnet.size(), 1.0f), expected(registered.elements);
  subnet.Scatter(std::span<const float>(ones), std::span(expected));
  server_->RequestPublish(1);
  const uint64_t steps = Expect<link::Published>().steps;
  ASSERT_GT(steps, 0u);
  for (size_t i = 0; i < expected.size(); ++i) {
    const float moved = server_->outbox()[i] - static_cast<float>(i);
    EXPECT_EQ(moved > 0, expected[i] > 0) << i;
  }
  server_->ReleaseOutbox(1);
  EXPECT_EQ(EndAndListen(), "[(9, 3), (2, 3, 3), (2, 2), (5,), ()] 1.3333333333333333 3.0\n");
}

TEST_F(PythonClient, WithoutNumpyItDoesTheSame) {
  started_ = [this] { StartClient("-S tests/python/averaging_client.py"); };  // no site-packages
  JoinAndAverage();
  EXPECT_EQ(EndAndListen(), "plain\n");
}

TEST_F(PythonClient, ABlockingStepWaitsForItsResult) {
  if (!Has("numpy")) GTEST_SKIP() << "needs Debian's python3-numpy";
  started_ = [this] {
    server_.reset();
    StartServer(LinkOverlap::kBlocking);
    StartClient("tests/python/averaging_client.py");
  };
  JoinAndAverage();
  EXPECT_GT(server_->counters().stall_seconds, 0.0);
  EXPECT_EQ(EndAndListen(), "numpy\n");
}

TEST_F(PythonClient, ItGoesOnWithAnAgentThatWasRestarted) {
  if (!Has("numpy")) GTEST_SKIP() << "needs Debian's python3-numpy";
  started_ = [this] { StartClient("tests/python/averaging_client.py"); };
  JoinAndAverage();
  server_.reset();
  while (events_.TryTake()) continue;  // what the first agent still saw
  StartServer();
  EXPECT_FALSE(Expect<link::TrainerRegistered>().fresh);
  server_->RequestPublish(7);
  const auto published = Expect<link::Published>();
  EXPECT_GT(published.steps, 2u) << "it goes on counting";
  server_->ReleaseOutbox(7);
  EXPECT_EQ(EndAndListen(), "numpy\n");
}

// The agent lives and has no reason to beat otherwise than before: only a look at the connection
// tells that it has ended, and with it the trainer's sign of life.
TEST_F(PythonClient, ItRegistersAgainWhenItsConnectionEndsThoughTheAgentLives) {
  started_ = [this] { StartClient("tests/python/averaging_client.py --cut"); };
  StartServer();
  started_();
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
  OfferAdoption();
  Expect<link::Adopted>();
  Expect<link::TrainerGone>();
  const auto again = Expect<link::TrainerRegistered>();
  EXPECT_FALSE(again.fresh);
  EXPECT_GE(server_->counters().steps, 19u) << "it goes on counting";
  EXPECT_THAT(EndAndListen(), testing::AnyOf("numpy\n", "plain\n"));
}

TEST_F(PythonClient, PyTorchModulesAreAveraged) {
  if (!Has("torch")) GTEST_SKIP() << "needs PyTorch (Debian: python3-torch)";
  opaque_ = std::nullopt;
  started_ = [this] { StartClient("tests/python/torch_client.py"); };
  JoinAndAverage();
  EXPECT_EQ(EndAndListen(), "torch\n");
}

}  // namespace
}  // namespace crowdsurf::worker
