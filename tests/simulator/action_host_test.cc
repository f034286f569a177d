// ActionHost ends as an agent ends: after all that its last input asks for.
#include "simulator/host/action_host.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "simulator/engine/event_queue.h"
#include "simulator/host/hosted_core.h"

namespace crowdsurf::simulator {
namespace {

// A core that answers every local event with `answer`.
class Answering : public HostedCore {
 public:
  explicit Answering(worker::Actions answer) : answer_(std::move(answer)) {}
  void OnMessage(Time, const PeerId&, ByteView, worker::Actions&) override {}
  void OnPeerDown(Time, const PeerId&, DownEvidence, worker::Actions&) override {}
  void OnLocal(Time, const worker::LocalEvent&, worker::Actions& out) override { out = answer_; }
  void OnTimer(Time, worker::Actions&) override {}
  Time NextDeadline() const override { return Time::Infinite(); }

 private:
  const worker::Actions answer_;
};

class Surroundings : public ActionHost<double>::Outside {
 public:
  EventQueue& queue() override { return queue_; }
  void SendBody(int, const PeerId&, const Bytes&) override {}
  void SendTensor(int, const PeerId&, const TensorFrame&) override {}
  void Put(int, const worker::PutRecord& record) override { heard.push_back(record.key); }
  void Watch(int, const std::string&) override {}
  void Unwatch(int, const std::string&) override {}
  HeldValues<double> FindState(int, const worker::FetchState&) override { return {}; }
  void OnDeath(int) override { heard.push_back("the end"); }

  std::vector<std::string> heard;

 private:
  EventQueue queue_;
};

class Idle : public ActionHost<double> {
 public:
  using ActionHost::ActionHost;

 private:
  worker::Progress Totals() const override { return {}; }
  void RequestSnapshot(worker::AveragingId) override {}
  void Wake(const worker::WakeAt&) override {}
  void StartTrainer() override {}
  void AdoptState(worker::Region) override {}
  void GiveResult(worker::AveragingId, worker::Region) override {}
  void ReleaseSnapshot(worker::AveragingId) override {}
};

TEST(ActionHostTest, ALastRecordGoesOutBeforeTheEnd) {
  Surroundings around;
  Idle::Setup setup{.config = {}, .rng = Rng(1), .elements = 4};
  setup.core = std::make_unique<Answering>(
      worker::Actions{worker::Leave{"asked"}, worker::PutRecord{"job/roster/0", {}, Seconds(1)}});
  Idle host(0, std::move(setup), around);
  host.Start();
  host.Local(worker::LeaveAsked{});
  EXPECT_EQ(around.heard, (std::vector<std::string>{"job/roster/0", "the end"}));
  EXPECT_TRUE(host.left());
  EXPECT_FALSE(host.alive());
  host.Local(worker::LeaveAsked{});
  EXPECT_EQ(around.heard.size(), 2u) << "it takes no input any more";
}

}  // namespace
}  // namespace crowdsurf::simulator
