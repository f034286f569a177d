// Tensor frames for a peer that cannot be dialed: through the relay of the agent's neighbour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "coordinator-free-dht/edge/relay.h"
#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/agent.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {
namespace {

// A tensor transport with a host loop of its own; what arrives is kept.
class Plane {
 public:
  Plane(const dht::Identity& identity, dht::Waiter* waiter, dht::Relay* relay,
        TensorTransportOptions options)
      : waiter_(waiter), host_(4096, metrics_, Logger()) {
    options.job = "job";
    options.relay = relay;
    transport_ = std::make_unique<TensorTransport>(options, identity, host_, metrics_, Logger());
    transport_->SetHandlers(
        {[this](Time, WallTime, const PeerId&, const TensorHeader&, TensorPayload payload) {
           const std::lock_guard lock(mutex_);
           received_.push_back(std::move(payload.own));
           waiter_->Notify();
         },
         [this](Time, WallTime, const PeerId& peer, DownEvidence evidence) {
           const std::lock_guard lock(mutex_);
           downs_.emplace_back(peer, evidence == DownEvidence::kRefused);
           waiter_->Notify();
         },
         [](Time, WallTime, const PeerId&) {},
         [this](Time, WallTime, const PeerId& peer, uint64_t number) {
           const std::lock_guard lock(mutex_);
           transport_->UseToken(peer, number, token_of_ ? token_of_(peer) : std::nullopt);
         }});
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
  // Stands for the control channel: what a peer answers when it is asked for a token.
  using TokenOf = std::function<std::optional<TokenHalves>(const PeerId& peer)>;
  void SetControl(TokenOf token_of) {
    const std::lock_guard lock(mutex_);
    token_of_ = std::move(token_of);
  }
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
  TokenOf token_of_;
  std::thread thread_;
};

class TensorRelayTest : public testing::Test {
 protected:
  explicit TensorRelayTest(const TensorTransportOptions& options = {}) {
    for (const char* name : {"near", "between", "far"}) {
      const auto directory = temporary_.path() / name;
      authority_.Equip(directory, {.names = "DNS:peer.crowdsurf,URI:crowdsurf://job/w"});
      agents_.push_back(std::make_unique<dht::Agent>(directory, dht::TransportOptions{}, &waiter_));
      EXPECT_TRUE(agents_.back()->start_status().ok()) << agents_.back()->start_status();
    }
    near_ = std::make_unique<Plane>(agents_[0]->identity(), &waiter_, &relay(0), options);
    between_ = std::make_unique<Plane>(agents_[1]->identity(), &waiter_, &relay(1), options);
    far_ = std::make_unique<Plane>(agents_[2]->identity(), &waiter_, &relay(2), options);
    far_contact_ = {agents_[2]->contact().id, far_->transport().endpoint()};
    // 0 and 2 are neighbours of 1.
    for (const size_t i : {size_t{0}, size_t{2}}) {
      EXPECT_TRUE(
          agents_[i]->transport().Send(agents_[1]->contact(), dht::ChannelKind::kWorker, {1}));
      EXPECT_TRUE(waiter_.Wait([&] { return !agents_[1]->received().empty(); }));
    }
    EXPECT_TRUE(waiter_.Wait([&] { return agents_[1]->received().size() == 2; }));
    EXPECT_TRUE(waiter_.Wait([&] { return agents_[0]->up().size() == 1; }));
    relay(1).Introduce(far_contact_.id, far_contact_.endpoint, dht::RelayPort::kTensor);
  }
  // 0 knows of 2 that there is a relay between.
  void Hide() { relay(0).OnStreamUp(agents_[2]->contact(), dht::StreamPath::kCarried); }
  dht::Relay& relay(size_t agent) { return agents_[agent]->transport().relay(); }

  dht::TemporaryDirectory temporary_;
  dht::Waiter waiter_;
  dht::TestAuthority authority_;
  std::vector<std::unique_ptr<dht::Agent>> agents_;
  std::unique_ptr<Plane> near_, between_, far_;
  dht::Contact far_contact_;
};

TEST_F(TensorRelayTest, FramesArriveThroughTheNeighbourInOrder) {
  Hide();
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
  Hide();
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

TensorTransportOptions InTheClear() {
  TensorTransportOptions options;
  options.tls = false;
  options.tokens = true;
  return options;
}

struct TensorRelayInTheClearTest : TensorRelayTest {
  TensorRelayInTheClearTest() : TensorRelayTest(InTheClear()) {}
  // The far end goes first, and who loses it dials again.
  ~TensorRelayInTheClearTest() override {
    near_->SetControl(nullptr);
    between_->SetControl(nullptr);
  }
  Plane::TokenOf GivenByFar(size_t agent) {
    return [this, id = agents_[agent]->contact().id](const PeerId&) {
      return far_->transport().GiveToken(id);
    };
  }
};

// The relay's own dial, which proves whom it reaches, costs a token too.
TEST_F(TensorRelayInTheClearTest, ATokenOfTheFarEndIsGoodThroughTheNeighbour) {
  Hide();
  near_->SetControl(GivenByFar(0));
  between_->SetControl(GivenByFar(1));
  ASSERT_TRUE(near_->Send(far_contact_, Bytes(1000, 3)));
  ASSERT_TRUE(waiter_.Wait([&] { return far_->received().size() == 1; }));
  EXPECT_EQ(far_->received()[0], Bytes(1000, 3));
  EXPECT_TRUE(near_->downs().empty());
  // Counted when they are written, and the far end may have them before that.
  EXPECT_TRUE(EventuallyHolds(
      [&] { return Count(*agents_[1], "crowdsurf_relay_carried_bytes_total") >= 1000; }));
}

TEST_F(TensorRelayInTheClearTest, ARefusedTokenIsNoFirewallAndNoNeighbourIsAsked) {
  near_->SetControl([](const PeerId&) { return TokenHalves{}; });
  ASSERT_TRUE(near_->Send(far_contact_, Bytes(10)));
  ASSERT_TRUE(waiter_.Wait([&] { return !near_->downs().empty(); }));
  EXPECT_EQ(near_->downs()[0], std::pair(far_contact_.id, false));
  EXPECT_EQ(Count(*agents_[0], "crowdsurf_relay_questions_total"), 0);
}

}  // namespace
}  // namespace crowdsurf::worker
