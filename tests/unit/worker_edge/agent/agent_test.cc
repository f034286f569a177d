// Whole agents in one process, over mutual TLS and the trainer link. Their trainers hold unit
// vectors, so what averaging made of them can be read off.
#include "worker/edge/agent/agent.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "tests/unit/worker_edge/agent/running_agent.h"
#include "worker/edge/link/link_client.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kWorkers = 4;
constexpr double kConstants[kWorkers] = {-3, 1, 10, 0.5};

constexpr size_t kValues = kWorkers + 1;
constexpr size_t kCopies = 64;
// Two workers of a group halve the vector, always at one place; one more for a copy's own edge.
constexpr size_t kMaxCut = 2;

// A trainer that does not learn: worker i holds the i-th unit vector, and kConstants[i] behind it,
// kCopies times. Averaging is linear, so in whatever mixture of them a trainer ends up, the first
// kWorkers values of a copy are the weights, which sum to 1, and the last one must be their
// combination of the constants. Who contributed is settled chunk by chunk and may differ between
// chunks when somebody was suspected in the middle of a round (docs/round.md), so the copies
// may hold different mixtures, and one that lies in two chunks none.
class FakeTrainer {
 public:
  FakeTrainer(std::string dir, size_t index) : thread_([this, dir, index] { Loop(dir, index); }) {}
  ~FakeTrainer() {
    Stop();
    thread_.join();
  }
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  std::vector<float> params() {
    const std::lock_guard lock(mutex_);
    return params_;
  }
  uint64_t averaging() {
    const std::lock_guard lock(mutex_);
    return averaging_;
  }
  bool told_to_stop() {
    const std::lock_guard lock(mutex_);
    return told_to_stop_;
  }
  void PoisonNext() { poison_ = true; }

 private:
  void Loop(const std::string& dir, size_t index) {
    auto client = LinkClient::Connect(dir, Seconds(20));
    ASSERT_TRUE(client.ok()) << client.status();
    LinkTensor tensor;
    tensor.name = "weights";
    tensor.shape = {kCopies * kValues};
    ASSERT_TRUE((*client)->Register({tensor}).ok());
    std::vector<float> params(kCopies * kValues);
    for (size_t copy = 0; copy < params.size(); copy += kValues) {
      params[copy + index] = 1;
      params[copy + kWorkers] = static_cast<float>(kConstants[index]);
    }
    ASSERT_TRUE((*client)->Start(params, Seconds(20)).ok());
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      const float kept = params[0];
      if (poison_.exchange(false)) params[0] = std::nanf("");
      const StepOutcome outcome = (*client)->StepDone(10 + index, 1.0, params);
      if (std::isnan(params[0])) params[0] = kept;
      lock.lock();
      params_ = params;
      if (outcome.applied || outcome.adopted) averaging_ = outcome.averaging;
      if (outcome.stop) {
        (*client)->AcknowledgeStop();
        told_to_stop_ = true;
        return;
      }
      changed_.wait_for(lock, std::chrono::milliseconds(2));  // the pace of a step
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, told_to_stop_ = false;
  std::atomic<bool> poison_{false};
  std::vector<float> params_;
  uint64_t averaging_ = 0;
  std::thread thread_;
};

struct Worker : RunningAgent {
  using RunningAgent::RunningAgent;
  ~Worker() { Kill(); }
  void Kill() {
    trainer.reset();
    RunningAgent::Kill();
  }
  double Failed() const {  // as counted everywhere
    double failed = 0;
    for (const char* outcome : {"kept", "aborted", "orphaned"}) {
      failed += agent->metrics().Value("crowdsurf_round_total", {{"outcome", outcome}});
    }
    return failed;
  }
  std::unique_ptr<FakeTrainer> trainer;
};

class AgentTest : public testing::Test {
 protected:
  std::unique_ptr<Worker> StartAgent(size_t index, const std::string& seed) {
    Worker::Setup setup{.config = config_};
    setup.options.checkpoint_dir = checkpoints_.path().string();
    setup.options.tensor_tls = tensor_tls_;
    return std::make_unique<Worker>(authority_, index, seed, std::move(setup));
  }
  static void StartTrainer(Worker& worker, size_t index) {
    worker.trainer = std::make_unique<FakeTrainer>(worker.link(), index);
  }
  std::unique_ptr<Worker> StartWorker(size_t index, const std::string& seed = "") {
    auto worker = StartAgent(index, seed);
    StartTrainer(*worker, index);
    return worker;
  }
  // The trainers when all agents are there: whoever is alone begins alone, and has its values only.
  void StartAll() {
    std::string seed;
    for (size_t i = 0; i < kWorkers; ++i) {
      workers_.push_back(StartAgent(i, seed));
      seed = workers_[0]->agent->peer_endpoint();
    }
    for (size_t i = 0; i < kWorkers; ++i) StartTrainer(*workers_[i], i);
  }
  static bool IsWhole(std::span<const float> copy) {
    double sum = 0, combined = 0;
    for (size_t i = 0; i < kWorkers; ++i) {
      if (copy[i] < -1e-5) return false;
      sum += copy[i];
      combined += copy[i] * kConstants[i];
    }
    return std::fabs(sum - 1) < 1e-4 && std::fabs(combined - copy[kWorkers]) < 1e-3;
  }
  static bool IsAMixture(std::span<const float> params) {
    if (params.size() != kCopies * kValues) return false;
    size_t cut = 0;
    for (size_t copy = 0; copy < params.size(); copy += kValues)
      cut += !IsWhole(params.subspan(copy, kValues));
    return cut <= kMaxCut;
  }
  // All hold the same mixture, to rounding of a few averagings.
  bool Agree() {
    const std::vector<float> first = workers_.back()->trainer->params();
    for (const auto& worker : workers_) {
      const std::vector<float> params = worker->trainer->params();
      if (!IsAMixture(params) || params.size() != first.size()) return false;
      for (size_t i = 0; i < params.size(); ++i) {
        if (std::fabs(params[i] - first[i]) > 1e-4) return false;
      }
    }
    return true;
  }
  std::string Describe() {  // for a test that failed
    std::string text;
    for (const auto& worker : workers_) {
      const std::vector<float> params = worker->trainer->params();
      absl::StrAppend(&text, "\naveraging ", worker->trainer->averaging(), " whole ",
                      IsAMixture(params), " values ", absl::StrJoin(params, " "));
    }
    return text;
  }
  uint64_t MinAveraging() {
    uint64_t least = ~0ULL;
    for (const auto& worker : workers_) least = std::min(least, worker->trainer->averaging());
    return least;
  }

  AgentTest() {
    config_.averaging.group_size = 2;
    config_.averaging.interval = 20;  // steps
    config_.averaging.compression = WireFormat::kFloat32;
  }
  const dht::TestAuthority authority_;
  dht::TemporaryDirectory checkpoints_;
  JobConfig config_;
  std::string tensor_tls_ = "Required";
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(AgentTest, FourWorkersFindEachOtherAndReallyAverage) {
  StartAll();
  // Who comes first brings its own values into the mean, who comes later adopts it: at least two
  // shares are in it, and everybody ends with the same.
  const auto mixed = [&] {
    const std::vector<float> params = workers_[0]->trainer->params();
    if (params.empty()) return false;
    const auto shares = std::count_if(params.begin(), params.begin() + kWorkers,
                                      [](float x) { return x > 0.01f && x < 0.99f; });
    return shares >= 2 && Agree();
  };
  ASSERT_TRUE(EventuallyHolds(mixed));
  const uint64_t number = MinAveraging();
  EXPECT_TRUE(EventuallyHolds([&] { return MinAveraging() > number + 3; }));
  for (const auto& worker : workers_) EXPECT_TRUE(IsAMixture(worker->trainer->params()));
}

// Control keeps mutual TLS, so the members know each other; each tensor connection cost a token.
TEST_F(AgentTest, TensorsInTheClearAreAveragedAndOneDeathCostsNoRound) {
  tensor_tls_ = "Disabled";
  StartAll();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 3 && Agree(); })) << Describe();
  for (const auto& worker : workers_) {
    const auto tokens = [&](const char* result) {
      return worker->agent->metrics().Value("crowdsurf_tensor_tokens_total", {{"result", result}});
    };
    EXPECT_GE(tokens("given"), 1);
    // "unknown" may count: a link that asks again while its Hello is on the way shows an old token.
    for (const char* bad : {"missing", "replayed", "expired", "full", "garbled", "impostor"})
      EXPECT_EQ(tokens(bad), 0) << bad;
  }
  workers_[1]->Kill();
  workers_.erase(workers_.begin() + 1);
  const uint64_t number = MinAveraging();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() > number + 3 && Agree(); }));
  for (const auto& worker : workers_) EXPECT_EQ(worker->Failed(), 0);
}

TEST_F(AgentTest, ATrainerOfRelaySumWaitsForItsAverageByDefault) {
  config_.averaging.strategy = StrategyKind::kRelaySum;
  config_.averaging.mixing.graph = GraphKind::kChain;
  config_.averaging.interval = 1;
  StartAll();
  for (const auto& worker : workers_) {
    EXPECT_TRUE(
        EventuallyHolds([&] { return LinkMapping::Open(worker->link() + "/tensors").ok(); }));
    auto link = LinkMapping::Open(worker->link() + "/tensors");
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_EQ(link->control().mode.overlap.load(), static_cast<uint32_t>(LinkOverlap::kBlocking));
  }
}

TEST_F(AgentTest, AKilledWorkerCostsTheOthersNoRound) {
  StartAll();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 2 && Agree(); }));
  workers_[1]->Kill();
  workers_.erase(workers_.begin() + 1);
  const uint64_t number = MinAveraging();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() > number + 5; }));
  EXPECT_TRUE(EventuallyHolds([&] { return Agree(); }));
  for (const auto& worker : workers_) EXPECT_EQ(worker->Failed(), 0);
}

TEST_F(AgentTest, AJoinerAdoptsTheStateOfItsPeers) {
  std::string seed;
  for (size_t i = 0; i < 2; ++i) {
    workers_.push_back(StartWorker(i, seed));
    seed = workers_[0]->agent->peer_endpoint();
  }
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 2 && Agree(); }));
  workers_.push_back(StartWorker(2, seed));
  ASSERT_TRUE(EventuallyHolds([&] { return workers_[2]->trainer->averaging() > 2; }));
  const std::vector<float> params = workers_[2]->trainer->params();
  EXPECT_TRUE(IsAMixture(params));
  EXPECT_LT(std::fabs(params[2]), 1e-4);  // its own first parameters are in nobody's mixture
}

// A seed that takes the connection and says nothing for as long as it is waited for, two seconds: a
// machine too busy to answer. Who begins alone meanwhile trains beside the job it is a part of.
TEST_F(AgentTest, WhoWaitsForTheAnswerOfItsSeedDoesNotBeginAlone) {
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent, 16), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto start = Clock::now();
  workers_.push_back(StartWorker(0, absl::StrCat("127.0.0.1:", ntohs(address.sin_port))));
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 1; }));
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(1));
  close(silent);
}

TEST_F(AgentTest, LeavingEndsWithinItsTimeAndTheOthersGoOn) {
  StartAll();
  const auto ready = [&] { return workers_[3]->agent->metrics().Value("crowdsurf_worker_ready"); };
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 2 && ready() == 1; }));
  const auto start = Clock::now();
  workers_[3]->agent->AskToLeave();
  workers_[3]->thread.join();
  EXPECT_EQ(ready(), 0);  // from when it was asked on
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(workers_[3]->code, 0);
  std::ifstream end(workers_[3]->folder.path() / "end");
  const std::string message((std::istreambuf_iterator<char>(end)), {});
  EXPECT_NE(message.find("\"reason\":\"left\""), std::string::npos) << message;
  workers_.pop_back();
  const uint64_t number = MinAveraging();
  EXPECT_TRUE(EventuallyHolds([&] { return MinAveraging() > number + 3; }));
  for (const auto& worker : workers_) EXPECT_EQ(worker->Failed(), 0);
}

TEST_F(AgentTest, TheTargetStopsEveryTrainerAndLeavesACheckpointAndAModel) {
  config_.averaging.target.samples = 20'000;
  StartAll();
  for (const auto& worker : workers_) {
    ASSERT_TRUE(EventuallyHolds([&] { return worker->trainer->told_to_stop(); }));
    worker->thread.join();
    EXPECT_EQ(worker->code, 0);
  }
  EXPECT_TRUE(std::filesystem::exists(checkpoints_.path() / "model.safetensors"));
  size_t checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_.path())) {
    checkpoints += entry.path().extension() == ".crowdsurf";
  }
  EXPECT_GE(checkpoints, 1u);
}

TEST_F(AgentTest, ASnapshotWithNanIsRefusedAndHarmsNobody) {
  StartAll();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() >= 2 && Agree(); })) << Describe();
  const auto refused = [&] {
    workers_[2]->trainer->PoisonNext();
    return workers_[2]->agent->metrics().Value("crowdsurf_worker_snapshots_refused_total") > 0;
  };
  ASSERT_TRUE(EventuallyHolds(refused)) << Describe();
  const uint64_t number = MinAveraging();
  ASSERT_TRUE(EventuallyHolds([&] { return MinAveraging() > number + 3; })) << Describe();
  EXPECT_TRUE(EventuallyHolds([&] { return Agree(); })) << Describe();
}

}  // namespace
}  // namespace crowdsurf::worker
