// The built-in trainer's loop against the agent's real side of the link, in one process: the test
// is the agent, and acts from the loop's own step boundaries, so nothing waits for time.
#include "worker/trainer/link_hook.h"

#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/core/subnet/index_sets.h"
#include "worker/trainer/task.h"

namespace crowdsurf::trainer {
namespace {

using worker::LinkFixture;
namespace link = worker::link;

class StillClock : public StepClock {
 public:
  Time Now() override { return Time::FromNanoseconds(1); }
  void SleepUntil(Time) override {}
};

class NoSink : public ProgressSink {
 public:
  void OnProgress(const Progress&) override {}
  void OnMetrics(const Progress&, std::span<const Metric>, Evaluation) override {}
};

const int kNoInterrupt = 0;

class TrainerLink : public LinkFixture {
 protected:
  void StartAgent(std::vector<worker::LinkRole> roles) {
    worker::LinkServerOptions options;
    options.dir = dir_;
    options.job = "digits";
    options.worker = "digits-3-1";
    options.seed = 42;
    options.roles = std::move(roles);
    options.require_memory = false;
    auto started = worker::LinkServer::Start(
        options, [this](worker::LinkEvent e) { ASSERT_TRUE(events_.Post(std::move(e))); }, Logger(),
        metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  static TrainingOptions Options() {
    TrainingOptions options;
    options.seed = 7;  // not the job's
    options.schedule.rate = 0.01;
    return options;
  }

  // The agent's part beside a registration, which happens inside the loop's start.
  void WhenRegistered(const std::function<void(const link::TrainerRegistered&)>& act) {
    at_each_step_.before_start = [this, act] {
      agent_ = std::thread([this, act] { act(Expect<link::TrainerRegistered>()); });
    };
  }

  // Runs the loop until `steps` or stop.
  void Train(Training& training, uint64_t steps) {
    auto hook = LinkHook::Connect(dir_, {"heldout_loss", "heldout_accuracy"}, Seconds(20));
    ASSERT_TRUE(hook.ok()) << hook.status();
    StillClock clock;
    NoSink sink;
    LoopOptions loop;
    loop.steps = steps;
    loop.evaluate_every = 0;
    loop.at_end = Evaluation::kQuick;
    hook_ = *std::move(hook);  // connected until the test ends: no TrainerGone among its events
    at_each_step_.hook = hook_.get();
    const auto result = RunTraining(training, loop, {at_each_step_, clock, sink, &kNoInterrupt});
    if (agent_.joinable()) agent_.join();
    ASSERT_TRUE(result.ok()) << result.status();
    result_ = *result;
  }

  // Passes everything on to the link, with the test's own code before each step boundary.
  class Interposed : public StepHook {
   public:
    StatusOr<StepDecision> Start(Training& t) override {
      before_start();
      auto decision = hook->Start(t);
      after_start(t);
      return decision;
    }
    StatusOr<StepDecision> OnStep(Training& t, const BatchResult& b) override {
      before_step(t);
      auto decision = hook->OnStep(t, b);
      after_step(t);
      return decision;
    }
    void OnMetrics(std::span<const Metric> m) override { hook->OnMetrics(m); }
    void OnStopped() override { hook->OnStopped(); }
    StepHook* hook = nullptr;
    std::function<void()> before_start = [] {};
    std::function<void(Training&)> after_start = [](Training&) {};
    std::function<void(Training&)> before_step = [](Training&) {}, after_step = before_step;
  };

  std::unique_ptr<StepHook> hook_;
  Interposed at_each_step_;
  std::thread agent_;
  LoopResult result_;
  DigitTask task_{MakeDigits({.train = 200, .held_out = 50, .noise = 0.4, .seed = 1}).train,
                  MakeDigits({.train = 200, .held_out = 50, .noise = 0.4, .seed = 1}).held_out,
                  {.hidden = {8}, .batch = 4}};
};

TEST_F(TrainerLink, SeedAndNameComeFromTheJobAndUnitGroupsReachTheAgent) {
  StartAgent({worker::LinkRole::kParameter});
  server_->RaiseStop();
  Training training(task_, Options());
  Train(training, 0);
  EXPECT_TRUE(result_.stopped);
  EXPECT_EQ(result_.progress.own_steps, 0u) << "stop was there before the first step";
  EXPECT_EQ(training.seed(), 42u);
  std::vector<float> expected(training.parameters().size());
  task_.Initialize(42, expected);
  EXPECT_TRUE(std::ranges::equal(training.parameters(), expected));
  const auto registered = Expect<link::TrainerRegistered>();
  ASSERT_EQ(registered.elements, expected.size());
  EXPECT_EQ(registered.tensors[0].name, "dense0.weight");
  EXPECT_EQ(registered.tensors[0].units, (std::vector<worker::UnitAxis>{{.axis = 0, .group = 0}}));
  EXPECT_EQ(registered.tensors[2].units, (std::vector<worker::UnitAxis>{{.axis = 1, .group = 0}}));
  Expect<link::StopAcknowledged>();
}

TEST_F(TrainerLink, AveragingsChangeTheParametersAndStopEndsTheLoop) {
  StartAgent({worker::LinkRole::kParameter});
  WhenRegistered([this](const auto&) { server_->LetStart(); });
  Training training(task_, Options());
  float before = 0;
  at_each_step_.before_step = [&](Training& t) {
    if (t.step() == 5) server_->RequestPublish(1);
    if (t.step() == 8) {
      Expect<link::Published>();
      const auto outbox = server_->outbox();
      std::transform(outbox.begin(), outbox.end(), server_->inbox(0).begin(),
                     [](float x) { return x + 1; });
      server_->Deliver(1, 0);
      before = t.parameters()[17];
    }
    if (t.step() == 12) server_->RaiseStop();
  };
  at_each_step_.after_step = [&](Training& t) {
    if (t.step() != 8) return;
    EXPECT_FLOAT_EQ(t.parameters()[17], before + 1);
  };
  Train(training, 0);
  EXPECT_TRUE(result_.stopped);
  EXPECT_EQ(result_.progress.own_steps, 12u);
  Expect<link::Applied>();
  Expect<link::StopAcknowledged>();
  const auto counters = server_->counters();
  EXPECT_EQ(counters.steps, 12u);
  EXPECT_EQ(counters.samples, 48u);
  EXPECT_EQ(counters.metrics.count("heldout_accuracy"), 1u);
}

// The partition changes after the result of what was trained under the earlier one: the snapshot
// of step 4 has the first units' changes alone, the later steps move the second ones.
TEST_F(TrainerLink, IndexSetsSayWhichUnitsAreTrainedFromTheNextStepOn) {
  StartAgent({worker::LinkRole::kParameter});
  WhenRegistered([this](const auto&) {
    EXPECT_TRUE(server_->SetIndexSets(worker::EncodeIndexSets({{0, {1, 6}}})));
    server_->LetStart();
  });
  Training training(task_, Options());
  std::vector<float> first, second;
  const auto moved_rows = [&](std::span<const float> now, const std::vector<float>& before) {
    std::set<size_t> rows;
    for (size_t i = 0; i < 8 * kDigitFeatures; ++i)
      if (now[i] != before[i]) rows.insert(i / kDigitFeatures);
    return rows;
  };
  at_each_step_.after_start = [&](Training& t) {
    first.assign(t.parameters().begin(), t.parameters().end());
    agent_.join();  // from here on this thread gives the sets: an agent has one that does
  };
  at_each_step_.before_step = [&](Training& t) {
    if (t.step() != 4) return;
    server_->RequestPublish(1);
    EXPECT_TRUE(server_->SetIndexSets(worker::EncodeIndexSets({{0, {0, 3, 7}}})));
    EXPECT_FALSE(server_->SetIndexSets(worker::EncodeIndexSets({{0, {2}}}))) << "not taken yet";
  };
  at_each_step_.after_step = [&](Training& t) {
    if (t.step() != 4) return;
    Expect<link::Published>();
    EXPECT_EQ(moved_rows(server_->outbox(), first), (std::set<size_t>{1, 6}));
    second.assign(t.parameters().begin(), t.parameters().end());
    server_->ReleaseOutbox(1);
  };
  Train(training, 8);
  EXPECT_EQ(moved_rows(training.parameters(), second), (std::set<size_t>{0, 3, 7}));
}

TEST_F(TrainerLink, IndexSetsOfOtherTensorsEndTheLoop) {
  StartAgent({worker::LinkRole::kParameter});
  WhenRegistered([this](const auto&) {
    EXPECT_TRUE(server_->SetIndexSets(worker::EncodeIndexSets({{0, {8}}})));
    server_->LetStart();
  });
  Training training(task_, Options());
  auto hook = LinkHook::Connect(dir_, {}, Seconds(20));
  ASSERT_TRUE(hook.ok()) << hook.status();
  at_each_step_.hook = hook->get();
  const auto started = at_each_step_.Start(training);
  agent_.join();
  EXPECT_TRUE(absl::IsDataLoss(started.status())) << started.status();
}

TEST_F(TrainerLink, AJoinerTakesOverParametersMomentsAndTheStepCount) {
  Training donor(task_, Options());
  for (int i = 0; i < 30; ++i) donor.Step(1.0);
  StartAgent({worker::LinkRole::kParameter});
  Training training(task_, Options());
  WhenRegistered([&](const auto&) {
    std::copy(donor.parameters().begin(), donor.parameters().end(), server_->inbox(1).begin());
    const Bytes state = donor.Save();
    server_->OfferAdoption(1, 9, Held(state));
  });
  at_each_step_.after_start = [&](Training& t) {
    EXPECT_TRUE(std::ranges::equal(t.parameters(), donor.parameters()));
    EXPECT_EQ(t.Save(), donor.Save());
    EXPECT_EQ(t.step(), 30u);
  };
  Train(training, 3);
  EXPECT_EQ(training.step(), 33u);
  EXPECT_EQ(result_.progress.own_steps, 3u);
  Expect<link::Adopted>();
}

TEST_F(TrainerLink, TheOpaqueStateIsGivenWhenAskedFor) {
  StartAgent({worker::LinkRole::kParameter});
  WhenRegistered([this](const auto&) { server_->LetStart(); });
  Training training(task_, Options());
  Bytes at_step_4;
  at_each_step_.before_step = [&](Training& t) {
    if (t.step() != 4) return;
    server_->RequestOpaque();
    at_step_4 = t.Save();
  };
  Train(training, 6);
  Expect<link::OpaqueGiven>();
  EXPECT_EQ(Given(), at_step_4);
}

TEST_F(TrainerLink, MomentsAreAveragedWhereTheJobSaysSoAndSecondMomentsStayAboveZero) {
  StartAgent({worker::LinkRole::kParameter, worker::LinkRole::kOptimizerState});
  WhenRegistered([this](const auto&) { server_->LetStart(); });
  Training training(task_, Options());
  const size_t n = training.parameters().size();
  at_each_step_.before_step = [&](Training& t) {
    if (t.step() == 2) server_->RequestPublish(1);
    if (t.step() != 4) return;
    Expect<link::Published>();
    ASSERT_EQ(server_->outbox().size(), 3 * n);
    const auto outbox = server_->outbox();
    EXPECT_GT(*std::max_element(outbox.begin() + static_cast<long>(2 * n), outbox.end()), 0.0f);
    std::transform(outbox.begin(), outbox.end(), server_->inbox(0).begin(),
                   [](float x) { return x - 100; });
    server_->Deliver(1, 0);
  };
  at_each_step_.after_step = [&](Training& t) {
    if (t.step() != 4) return;
    EXPECT_LT(t.parameters()[0], -90.0f);
    EXPECT_LT(t.optimizer().moment(0)[0], -90.0f);
    EXPECT_GT(t.optimizer().moment(1)[0], 0.0f);
  };
  Train(training, 5);
}

}  // namespace
}  // namespace crowdsurf::trainer
