// Both clients of the link under an agent that asks, answers, offers and restarts by a seed: one
// checker reads their traces. A client with a planted fault turns it red.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "tests/unit/trainer_link/trace/link_trace.h"
#include "tests/unit/worker_edge/link/link_fixture.h"

namespace crowdsurf::worker {
namespace {

using Motion = LinkTrace::Motion;

constexpr size_t kSize = 32;  // elements, and samples of the data set
constexpr int kTurns = 60;
constexpr auto kPace = std::chrono::microseconds(500);  // of a step

std::vector<float> First() {
  std::vector<float> first(kSize);
  std::iota(first.begin(), first.end(), 0.0f);
  return first;
}

enum class Fault : uint8_t { kNone, kAddsTwice, kForgetsAResult, kKeepsItsOwn, kSkipsAStep };

// A trainer on LinkClient that the agent has let start. Pre of the callers: not nullptr.
std::unique_ptr<LinkClient> Started(const std::string& dir, std::vector<float>& params) {
  auto client = LinkClient::Connect(dir, Seconds(20), {});
  EXPECT_TRUE(client.ok()) << client.status();
  if (!client.ok()) return nullptr;
  LinkTensor tensor;
  tensor.name = "w";
  tensor.shape = {kSize};
  EXPECT_TRUE((*client)->Register({tensor}).ok());
  (*client)->SetOpaque([] { return Bytes{1}; }, [](ByteView) { return absl::OkStatus(); });
  EXPECT_TRUE((*client)->Start(params, Seconds(20)).ok());
  return *std::move(client);
}

// As the built-in trainer.
void TrainMarching(const std::string& dir, Fault fault) {
  std::vector<float> params = First(), before;
  const auto client = Started(dir, params);
  ASSERT_NE(client, nullptr);
  for (StepOutcome outcome; !outcome.stop;) {
    const bool skips = fault == Fault::kSkipsAStep && params[0] > 50;
    for (size_t i = 0; i < kSize && !skips; ++i) params[i] += static_cast<float>(i + 1);
    // Time itself is meant: a step's, without which counts outgrow what float32 holds exactly.
    std::this_thread::sleep_for(kPace);
    before = params;
    outcome = client->StepDone(kTracedUnit, 0, params);
    if (fault == Fault::kAddsTwice && outcome.applied) {
      for (size_t i = 0; i < kSize; ++i) params[i] += params[i] - before[i];
    }
    if ((fault == Fault::kForgetsAResult && outcome.applied) ||
        (fault == Fault::kKeepsItsOwn && outcome.adopted))
      params = before;
  }
  client->AcknowledgeStop();
}

// The same, of leases: a sample at position p adds 1 to element p.
void TrainDrawing(const std::string& dir) {
  std::vector<float> params = First();
  const auto client = Started(dir, params);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Draw(kSize, kTracedUnit).ok());
  for (StepOutcome outcome; !outcome.stop;) {
    const auto batch = client->NextBatch();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (!batch->has_value()) {
      outcome = client->Pause(params);
      continue;
    }
    const Lease lease = **batch;
    for (uint64_t i = 0; i < lease.count; ++i) params[lease.begin + i] += 1;
    std::this_thread::sleep_for(kPace);  // as above
    outcome = client->StepDone(lease.count, 0, params);
  }
  client->AcknowledgeStop();
}

class TracedClients : public LinkFixture {
 protected:
  ~TracedClients() override {
    if (client_.joinable()) client_.join();
  }
  void StartCpp(Fault fault = Fault::kNone) {
    client_ = std::thread([this, fault] {
      motion_ == Motion::kMarches ? TrainMarching(dir_, fault) : TrainDrawing(dir_);
    });
  }
  void StartPython(const std::string& flags = "") {
    client_ = std::thread([this, flags] {
      const std::string command = "/usr/bin/python3 tests/python/traced_client.py ";
      EXPECT_EQ(std::system((command + flags + " " + dir_).c_str()), 0);
    });
  }

  // Feeds the trace with what happens until an E does.
  template <class E>
  E Until() {
    while (true) {
      const auto event = events_.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
      if (!event) {
        ADD_FAILURE() << "no event came; " << testing::PrintToString(trace_->broken());
        return {};
      }
      const bool values = std::holds_alternative<link::Published>(*event);
      trace_->Saw(*event, values ? server_->outbox() : std::span<const float>());
      if (std::holds_alternative<E>(*event)) return std::get<E>(*event);
      if (HasFailure()) return {};
    }
  }

  std::vector<float> Whole() {
    std::vector<float> values(kSize);
    for (float& v : values) v = static_cast<float>(rng_.Uniform(1000));
    return values;
  }
  void Let() {
    trace_->LetStart();
    server_->LetStart();
  }
  void Ask() {
    trace_->Asked(++number_);
    server_->RequestPublish(number_);
    Until<link::Published>();
  }
  // At the free inbox: snapshot + change.
  void Deliver() {
    const std::vector<float> change = Whole();
    inbox_ = 1 - inbox_;
    for (size_t i = 0; i < kSize; ++i) server_->inbox(inbox_)[i] = server_->outbox()[i] + change[i];
    trace_->Delivered(number_, change);
    server_->Deliver(number_, inbox_);
  }
  void Release() {
    trace_->Released();
    server_->ReleaseOutbox(number_);
  }
  void Offer() {
    const std::vector<float> values = Whole();
    inbox_ = 1 - inbox_;
    std::copy(values.begin(), values.end(), server_->inbox(inbox_).begin());
    // The first one of a file has number 1; the next ones go on from there.
    trace_->Offered(++sequence_, values);
    EXPECT_EQ(server_->OfferAdoption(inbox_, number_, std::nullopt), sequence_);
  }
  void Adopt() {
    Offer();
    Until<link::Adopted>();
    if (motion_ == Motion::kDrawsLeases) Grant();
  }
  void AskState() {
    trace_->AskedState();
    server_->RequestOpaque();
    Until<link::OpaqueGiven>();
  }
  // Another stream, of two leases; or more of the one that runs.
  void Grant(bool more = false) {
    if (!more) {
      ++granted_.stream;
      granted_.begin = 16 * rng_.Uniform(4);
      granted_.leases.clear();
    }
    for (int lease = 0; lease < 2; ++lease)
      granted_.leases.push_back({0, kTracedUnit * rng_.Uniform(kSize / kTracedUnit), kTracedUnit});
    trace_->Granted(granted_);
    server_->SetLeases(granted_);
  }
  void Restart() {
    trace_->Restarted();
    server_.reset();
    while (const auto event = events_.TryTake()) continue;  // what the first agent still saw
    StartServer(overlap_);
    if (Until<link::TrainerRegistered>().fresh) Let();  // it had not seen yet that it may start
    if (motion_ == Motion::kDrawsLeases) {
      Until<link::DataDeclared>();
      Grant();
    }
  }

  // One thing that an agent may do, and the trainer's answer.
  void Turn() {
    const bool blocks =
        overlap_ == LinkOverlap::kBlocking;  // on a snapshot it looks at nothing else
    switch (rng_.Uniform(12)) {
      case 0:
        return Adopt();
      case 1:
        return AskState();
      case 2:
        return Restart();
      case 3:
        if (motion_ == Motion::kDrawsLeases) return Grant(rng_.Uniform(2) == 0);
        break;
      default:
        break;
    }
    Ask();
    switch (rng_.Uniform(8)) {
      case 0:
        return Release();
      case 1:
        return Restart();
      case 2:
        Deliver();
        return Restart();
      case 3:
        if (!blocks) Adopt();
        break;
      default:
        break;
    }
    Deliver();
    Until<link::Applied>();
  }

  void Run(Motion motion, LinkOverlap overlap, uint64_t seed, const std::function<void()>& start) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    motion_ = motion;
    overlap_ = overlap;
    rng_ = Rng(seed);
    trace_.emplace(motion, First());
    StartServer(overlap);
    start();
    Until<link::TrainerRegistered>();
    Let();
    if (motion == Motion::kDrawsLeases) {
      Until<link::DataDeclared>();
      Grant();
    }
    for (int turn = 0; turn < kTurns && !HasFailure(); ++turn) Turn();
    trace_->Stopped();
    server_->RaiseStop();
    Until<link::StopAcknowledged>();
    Until<link::TrainerGone>();
    client_.join();
    EXPECT_GT(trace_->snapshots(), 20u);
  }

  std::thread client_;
  std::optional<LinkTrace> trace_;
  Motion motion_ = Motion::kMarches;
  LinkOverlap overlap_ = LinkOverlap::kDelayed;
  Rng rng_{1};
  uint64_t number_ = 0, sequence_ = 0;
  int inbox_ = 0;
  LeasesGranted granted_;
};

struct Case {
  const char* name;
  const char* python;  // its arguments; nullptr: the C++ client
  Motion motion = Motion::kMarches;
  LinkOverlap overlap = LinkOverlap::kDelayed;
};
constexpr Case kCases[] = {
    {"Cpp", nullptr},
    {"CppBlocking", nullptr, Motion::kMarches, LinkOverlap::kBlocking},
    {"CppLeases", nullptr, Motion::kDrawsLeases},
    {"Python", ""},
    {"PythonBlocking", "", Motion::kMarches, LinkOverlap::kBlocking},
    {"PythonLeases", "--leases", Motion::kDrawsLeases},
};

class BothClients : public TracedClients,
                    public testing::WithParamInterface<std::tuple<Case, uint64_t>> {};

TEST_P(BothClients, KeepToThePage) {
  const auto& [client, seed] = GetParam();
  Run(client.motion, client.overlap, seed,
      [this, python = client.python] { python == nullptr ? StartCpp() : StartPython(python); });
  EXPECT_THAT(trace_->broken(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Traces, BothClients,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(11, 1515)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  std::to_string(std::get<1>(test.param));
                         });

class FaultyClients : public TracedClients, public testing::WithParamInterface<Fault> {};

TEST_P(FaultyClients, AreFound) {
  Run(Motion::kMarches, LinkOverlap::kDelayed, 16, [this] { StartCpp(GetParam()); });
  EXPECT_THAT(trace_->broken(), testing::Not(testing::IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyClients,
                         testing::Values(Fault::kAddsTwice, Fault::kForgetsAResult,
                                         Fault::kKeepsItsOwn, Fault::kSkipsAStep));

}  // namespace
}  // namespace crowdsurf::worker
