// Rounds under masks of coordinates between real agents: over mutual TLS, through the trainer link,
// compressed. Each worker puts in what its own trainer changes; everybody ends with all of it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/contract/world/masked_all_reduce.h"
#include "tests/unit/worker_edge/agent/running_agent.h"
#include "worker/edge/link/link_client.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kWorkers = 3;
constexpr size_t kRun = 100;           // coordinates in a row of one worker
constexpr size_t kElements = 100'000;  // four chunks; every fourth run is nobody's
constexpr float kOld = 0.1F;           // Float16 has no such number

size_t OwnerOf(size_t i) { return i / kRun % (kWorkers + 1); }

StrategyFactory StripeOf(size_t worker) {
  std::vector<Extent> extents;
  for (size_t at = worker * kRun; at < kElements; at += (kWorkers + 1) * kRun)
    extents.push_back({at, kRun});
  const CoordinateMask mask = *CoordinateMask::Of(extents, kElements);
  return [mask](StrategyKind, Rng) {
    return std::make_unique<MaskedAllReduce>([mask](CellIndex, AveragingId) { return mask; });
  };
}

// Sets the coordinates of its worker to `value` at every step, and leaves the others alone.
class StripeTrainer {
 public:
  StripeTrainer(std::string dir, size_t worker, float first)
      : value(first), thread_([this, dir, worker] { Loop(dir, worker); }) {}
  ~StripeTrainer() {
    stopping_ = true;
    thread_.join();
  }
  std::vector<float> params() {
    const std::lock_guard lock(mutex_);
    return params_;
  }
  std::atomic<float> value;

 private:
  void Loop(const std::string& dir, size_t worker) {
    auto client = LinkClient::Connect(dir, Seconds(20));
    ASSERT_TRUE(client.ok()) << client.status();
    LinkTensor tensor;
    tensor.name = "weights";
    tensor.shape = {kElements};
    ASSERT_TRUE((*client)->Register({tensor}).ok());
    std::vector<float> params(kElements, kOld);
    ASSERT_TRUE((*client)->Start(params, Seconds(20)).ok());
    while (!stopping_) {
      for (size_t i = worker * kRun; i < kElements; i += (kWorkers + 1) * kRun)
        std::fill_n(params.begin() + static_cast<std::ptrdiff_t>(i), std::min(kRun, kElements - i),
                    value.load());
      if ((*client)->StepDone(10, 1.0, params).stop) return;
      std::unique_lock lock(mutex_);
      params_ = params;
      changed_.wait_for(lock, std::chrono::milliseconds(2));  // the pace of a step
    }
  }

  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<float> params_;
  std::thread thread_;
};

struct MaskedWorker : RunningAgent {
  using RunningAgent::RunningAgent;
  ~MaskedWorker() { Kill(); }
  void Kill() {
    trainer.reset();
    RunningAgent::Kill();
  }
  std::unique_ptr<StripeTrainer> trainer;
};

class MaskedAgentsTest : public testing::Test {
 protected:
  void StartWorker(size_t index, const std::string& seed) {
    MaskedWorker::Setup setup{.strategies = StripeOf(index)};
    JobConfig& config = setup.config;
    config.averaging.strategy = StrategyKind::kAllReduce;
    config.averaging.interval = 5;  // steps
    config.averaging.compression = WireFormat::kFloat16;
    workers_.push_back(std::make_unique<MaskedWorker>(authority_, index, seed, std::move(setup)));
    MaskedWorker& worker = *workers_.back();
    ASSERT_NE(worker.agent, nullptr);
    worker.trainer =
        std::make_unique<StripeTrainer>(worker.link(), index, static_cast<float>(index + 2));
  }
  // Everybody who lives holds these values in the workers' coordinates, and what nobody has as it
  // was, all to the bit.
  bool AllHold(const std::array<float, kWorkers>& values) {
    for (const auto& worker : workers_) {
      const std::vector<float> params = worker->trainer->params();
      if (params.size() != kElements) return false;
      for (size_t i = 0; i < kElements; ++i) {
        const size_t owner = OwnerOf(i);
        const float want = owner < kWorkers ? values[owner] : kOld;
        if (std::bit_cast<uint32_t>(params[i]) != std::bit_cast<uint32_t>(want)) return false;
      }
    }
    return true;
  }
  bool EventuallyAllHold(const std::array<float, kWorkers>& values) {
    return EventuallyHolds([&] { return AllHold(values); });
  }

  const dht::TestAuthority authority_;
  std::vector<std::unique_ptr<MaskedWorker>> workers_;
};

TEST_F(MaskedAgentsTest, EverybodysCoordinatesReachAllAndALostMembersStay) {
  std::string seed;
  for (size_t i = 0; i < kWorkers; ++i) {
    ASSERT_NO_FATAL_FAILURE(StartWorker(i, seed));
    seed = workers_[0]->agent->peer_endpoint();
  }
  ASSERT_TRUE(EventuallyAllHold({2, 3, 4}));
  workers_[2]->Kill();
  workers_.pop_back();
  workers_[0]->trainer->value = 50;
  workers_[1]->trainer->value = 60;
  EXPECT_TRUE(EventuallyAllHold({50, 60, 4}));
  for (const auto& worker : workers_)
    EXPECT_EQ(worker->agent->metrics().Value("crowdsurf_worker_inputs_bad_total"), 0);
}

}  // namespace
}  // namespace crowdsurf::worker
