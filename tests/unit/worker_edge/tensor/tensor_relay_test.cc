// Tensor frames for a peer that cannot be dialed: through the relay of the agent's neighbour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "coordinator-free-dht/edge/relay.h"
#include "tests/unit/dht_edge/agent.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {
namespace {

// A tensor transport with a host loop of its own; what arrives is kept.
class Plane {
 public:
  Plane(const dht::Identity& identity, dht::Waiter* waiter, dht::Relay* relay)
      : waiter_(waiter), host_(4096, metrics_, Logger()) {
    TensorTransportOptions options;
    options.job = "job";
    options.relay = relay;
    transport_ = std::make_unique<TensorTransport>(options, identity, host_, metrics_, Logger());
    transport_->SetHandlers(
        {[this](Time, WallTime, const PeerId&, const TensorHeader&, Bytes payload) {
           const std::lock_guard lock(mutex_);
           received_.push_back(std::move(payload));
           waiter_->Notify();
         },
         [this](Time, WallTime, const PeerId& peer, DownEvidence evidence) {
           const std::lock_guard lock(mutex_);
           downs_.emplace_back(peer, evidence == DownEvidence::kRefused);
           waiter_->Notify();
         },
         [](Time, WallTime, const PeerId&) {}});
    const Status status = transport_->Start();
    EXPECT_TRUE(status.ok()) << status;
    thread_ = std::thread([this] { host_.Run(); });
  }
  ~Plane() {
    transport_->Stop();
    host_.RequestStop(Duration());
    thread_.join();
  }
  TensorTransport& transport() { return *transport_; }
  bool Send(const dht::Contact& to, const Bytes& payload) {
    TensorHeader header;
    header.kind = TensorKind::kInput;
    return transport_->Send(to.id, to.endpoint, header, std::make_shared<Bytes>(payload)) ==
           TensorTransport::Sent::kQueued;
  }
  std::vector<Bytes> received() {
    const std::lock_guard lock(mutex_);
    return received_;
  }
  std::vector<std::pair<PeerId, bool>> downs() {
    const std::lock_guard lock(mutex_);
    return downs_;
  }

 private:
  dht::Waiter* const waiter_;
  MetricRegistry metrics_;
  HostLoop host_;
  std::unique_ptr<TensorTransport> transport_;
  std::mutex mutex_;
  std::vector<Bytes> received_;
  std::vector<std::pair<PeerId, bool>> downs_;
  std::thread thread_;
};

class TensorRelayTest : public testing::Test {
 protected:
  TensorRelayTest() {
    for (const char* name : {"near", "between", "far"}) {
      const auto directory = temporary_.path() / name;
      authority_.Equip(directory, {.names = "DNS:peer.crowdsurf,URI:crowdsurf://job/w"});
      agents_.push_back(std::make_unique<dht::Agent>(directory, dht::TransportOptions{}, &waiter_));
      EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    }
    near_ = std::make_unique<Plane>(agents_[0]->identity(), &waiter_, &relay(0));
    between_ = std::make_unique<Plane>(agents_[1]->identity(), &waiter_, &relay(1));
    far_ = std::make_unique<Plane>(agents_[2]->identity(), &waiter_, &relay(2));
    far_contact_ = {agents_[2]->contact().id, far_->transport().endpoint()};
    // 0 and 2 are neighbours of 1; what they know of each other is that there is a relay between.
    for (const size_t i : {size_t{0}, size_t{2}}) {
      EXPECT_TRUE(
          agents_[i]->transport().Send(agents_[1]->contact(), dht::ChannelKind::kWorker, {1}));
      EXPECT_TRUE(waiter_.Wait([&] { return !agents_[1]->received().empty(); }));
    }
    EXPECT_TRUE(waiter_.Wait([&] { return agents_[1]->received().size() == 2; }));
    EXPECT_TRUE(waiter_.Wait([&] { return agents_[0]->up().size() == 1; }));
    relay(0).OnStreamUp(agents_[2]->contact(), dht::StreamPath::kCarried);
    relay(1).Introduce(far_contact_.id, far_contact_.endpoint, dht::RelayPort::kTensor);
  }
  dht::Relay& relay(size_t agent) { return agents_[agent]->transport().relay(); }

  dht::TemporaryDirectory temporary_;
  dht::Waiter waiter_;
  dht::TestAuthority authority_;
  std::vector<std::unique_ptr<dht::Agent>> agents_;
  std::unique_ptr<Plane> near_, between_, far_;
  dht::Contact far_contact_;
};

TEST_F(TensorRelayTest, FramesArriveThroughTheNeighbourInOrder) {
  Rng rng(11);
  std::vector<Bytes> sent;
  for (const size_t size : {size_t{0}, size_t{100}, size_t{65'536}, size_t{1} << 20}) {
    Bytes payload(size);
    for (uint8_t& byte : payload) byte = static_cast<uint8_t>(rng.Next());
    ASSERT_TRUE(near_->Send(far_contact_, payload));
    sent.push_back(std::move(payload));
  }
  ASSERT_TRUE(waiter_.Wait([&] { return far_->received().size() == sent.size(); }));
  EXPECT_EQ(far_->received(), sent);
  EXPECT_TRUE(near_->downs().empty());
  EXPECT_GT(Count(*agents_[1], "crowdsurf_relay_carried_bytes_total"), 1 << 20);
}

TEST_F(TensorRelayTest, ADeathBeyondTheRelayIsHardAndARelaysOwnIsNot) {
  ASSERT_TRUE(near_->Send(far_contact_, Bytes(10)));
  ASSERT_TRUE(waiter_.Wait([&] { return far_->received().size() == 1; }));
  far_.reset();
  ASSERT_TRUE(waiter_.Wait([&] { return !near_->downs().empty(); }));
  EXPECT_EQ(near_->downs()[0], std::pair(far_contact_.id, true));
  agents_[1]->Kill();
  relay(0).OnStreamUp(agents_[2]->contact(), dht::StreamPath::kCarried);
  ASSERT_TRUE(waiter_.Wait([&] { return near_->Send(far_contact_, Bytes(10)); }));
  ASSERT_TRUE(waiter_.Wait([&] { return near_->downs().size() == 2; }));
  EXPECT_EQ(near_->downs()[1], std::pair(far_contact_.id, false)) << "refused, but not known dead";
}

}  // namespace
}  // namespace crowdsurf::worker
