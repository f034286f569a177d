// What the planes do with sends that a peer's link does not take: a peer that accepts connections
// and says nothing, until it lives again.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/tensor/chunk_plane.h"
#include "worker/edge/tensor/mix_plane.h"

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::seconds kPatience{20};  // a test fails by it, and never waits for it
constexpr uint32_t kChunk = 32'768;            // elements
constexpr uint32_t kChunks = 8;
constexpr RoundHandle kRound = 1;

// Takes connections, and nobody answers on them.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentPort() { close(fd_); }
  const std::string& endpoint() const { return endpoint_; }

 private:
  const int fd_;
  std::string endpoint_;
};

// An agent's planes over a transport and a host thread of their own.
class Planes : public TimerSource {
 public:
  explicit Planes(size_t queue_bytes = 256 << 10)
      : transport_(Options(queue_bytes), *identity_, host_, registry_, Logger()) {
    transport_.SetHandlers(
        {[this](Time, WallTime, const PeerId&, const TensorHeader& header,
                const TensorPayload& payload) {
           const std::lock_guard lock(mutex_);
           chunks_here.insert(header.chunk);
           if (header.kind == TensorKind::kInput) inputs_here.push_back(payload.own);
           if (header.kind == TensorKind::kResult)
             results_here.push_back(Bytes(payload.bytes().begin(), payload.bytes().end()));
           changed_.notify_all();
         },
         [this](Time now, WallTime, const PeerId& peer, DownEvidence evidence) {
           if (evidence != DownEvidence::kRefused) {
             chunks_.OnFailed(now, peer);
             mix_.OnFailed(now, peer);
           }
           const std::lock_guard lock(mutex_);
           ++(evidence == DownEvidence::kRefused ? hard_downs : soft_downs);
           changed_.notify_all();
         },
         [this](Time now, WallTime, const PeerId& peer) {
           chunks_.OnDrained(now, peer);
           Sent(mix_.OnDrained(now, peer));  // wakes those that wait for `waiting`, too
         }});
    EXPECT_TRUE(transport_.Start().ok());
    host_.AddSource(this);
    thread_ = std::thread([this] { host_.Run(); });
  }
  ~Planes() override {
    transport_.Stop();
    host_.RequestStop(Duration());
    thread_.join();
  }
  Time NextDeadline() const override {
    return std::min(chunks_.NextDeadline(), mix_.NextDeadline());
  }
  void OnTimer(Time now, WallTime) override {
    chunks_.OnTimer(now);
    Sent(mix_.OnTimer(now));
  }

  // On the host thread, done when it returns.
  void Do(const std::function<void(Time)>& work) {
    std::promise<void> done;
    ASSERT_TRUE(host_.Post([&](Time now, WallTime) {
      work(now);
      done.set_value();
    }));
    done.get_future().wait();
  }
  void Introduce(const PeerId& peer, const std::string& endpoint) {
    Do([&](Time) { chunks_.Introduce(peer, endpoint); });
  }
  void SendInput(const PeerId& to, uint32_t chunk) {
    Do([&](Time now) {
      (void)chunks_.Execute(now,
                            Chunk{kRound, crowdsurf::worker::SendInput{to, ChunkIndex(chunk), 1}});
    });
  }
  void OpenRound() {
    std::vector<ChunkSpan> spans;
    for (uint32_t i = 0; i < kChunks; ++i) spans.push_back({1, uint64_t{i} * kChunk, kChunk});
    Do([&](Time) {
      chunks_.Open({.round = kRound,
                    .instance = {},
                    .self = 0,
                    .chunks = spans,
                    .from = Region::kOutbox,
                    .to = Region::kInboxA,
                    .wire = WireFormat::kFloat32,
                    .weight = 1,
                    .mask = {},
                    .subnet = nullptr});
    });
  }
  // The result of chunk 0 under that assignment, the own values alone, folded and sent.
  void SendResult(const PeerId& to, Ballot assigned) {
    const RankSet self = RankSet::FromBits(1);
    Do([&](Time now) {
      const auto folded =
          chunks_.Execute(now, Chunk{kRound, FoldChunk{ChunkIndex(0), assigned, self, {1.0}}});
      ASSERT_TRUE(folded);
      (void)chunks_.Execute(
          now, Chunk{kRound, crowdsurf::worker::SendResult{to, ChunkIndex(0), assigned, self,
                                                           folded->hash}});
    });
  }
  void SendMix(const PeerId& to) {
    Do([&](Time now) { Sent(mix_.Send(now, {to, kPairTag, 1, kChunks})); });
  }
  void Overwrite(Region region = Region::kOutbox) {
    Do([&](Time) { chunks_.Overwritten(region); });
  }
  // Another averaging's values come into the inbox.
  void Refill(float value) {
    Overwrite(Region::kInboxA);
    std::fill(inbox_.begin(), inbox_.end(), value);
  }
  // The next snapshot, as a trainer writes it once it may.
  void Publish(float value) {
    Overwrite();
    std::fill(outbox_.begin(), outbox_.end(), value);
  }
  template <class Condition>
  bool Eventually(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }

  std::set<uint32_t> arrived() {
    const std::lock_guard lock(mutex_);
    return chunks_here;
  }
  size_t mix_sent() {
    const std::lock_guard lock(mutex_);
    return mixes_sent;
  }
  PeerId id() const { return identity_->id(); }
  std::string endpoint() const { return transport_.endpoint(); }
  double waiting() const { return metrics_.waiting_sends.value(); }

  std::set<uint32_t> chunks_here;
  std::vector<Bytes> inputs_here, results_here;
  int soft_downs = 0, hard_downs = 0;
  size_t mixes_sent = 0;

 private:
  static TensorTransportOptions Options(size_t queue_bytes) {
    TensorTransportOptions options;
    options.job = "job";
    options.tls = false;
    options.queue_bytes = queue_bytes;
    options.open_within = Milliseconds(50);
    return options;
  }
  void Sent(const std::vector<MixSent>& sent) {
    const std::lock_guard lock(mutex_);
    mixes_sent += sent.size();
    changed_.notify_all();
  }
  MixPlane::Core MixCore() {
    return {[](const MixArrived&) { return std::nullopt; },
            [](const PeerId&, MixTag, uint64_t sequence, uint32_t chunk) {
              static const std::vector<Region> kOwn = {Region::kOutbox};
              return MixChunk{.instance = {},
                              .sequence = sequence,
                              .count = 1,
                              .wire = WireFormat::kFloat32,
                              .begin = uint64_t{chunk} * kChunk,
                              .elements = kChunk,
                              .sum_of = kOwn};
            },
            [this](const PeerId& peer) { return chunks_.EndpointOf(peer); }};
  }

  MetricRegistry registry_;
  AgentMetrics metrics_{registry_};
  HostLoop host_{4096, registry_, Logger()};
  const std::unique_ptr<dht::Identity> identity_ = *dht::Identity::Open("");
  TensorTransport transport_;
  std::vector<float> outbox_ = std::vector<float>(size_t{kChunk} * kChunks, 1.0F);
  std::vector<float> inbox_ = outbox_;
  const RegionMemory memory_{[this](Region) -> std::span<const float> { return outbox_; },
                             [this](Region) -> std::span<float> { return inbox_; }};
  ChunkPlane chunks_{transport_, memory_, metrics_, Logger()};
  MixPlane mix_{transport_, memory_, MixCore(), metrics_};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

void ExpectChunkOf(float value, const Bytes& payload) {
  std::vector<float> values(kChunk);
  ASSERT_EQ(payload.size(), values.size() * sizeof(float));
  std::memcpy(values.data(), payload.data(), payload.size());
  EXPECT_EQ(std::ranges::count(values, value), std::ptrdiff_t{kChunk}) << value;
}

TEST(WaitingSendsTest, APeerThatFellSilentAndLivesAgainGetsTheNextInput) {
  SilentPort silent;
  Planes a, b;
  a.Introduce(b.id(), silent.endpoint());
  a.OpenRound();
  for (uint32_t chunk = 0; chunk + 1 < kChunks; ++chunk) a.SendInput(b.id(), chunk);
  ASSERT_GT(a.waiting(), 0);
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  a.Introduce(b.id(), b.endpoint());
  a.SendInput(b.id(), kChunks - 1);
  EXPECT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
  // The host may still be at the waiting ones when the last has arrived.
  EXPECT_TRUE(a.Eventually([&] { return a.waiting() == 0; }));
}

TEST(WaitingSendsTest, AMixMessageToAPeerThatFellSilentIsSentWhenItLivesAgain) {
  SilentPort silent;
  Planes a, b;
  a.Introduce(b.id(), silent.endpoint());
  a.SendMix(b.id());
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  EXPECT_EQ(a.mix_sent(), 0u);
  a.Introduce(b.id(), b.endpoint());
  EXPECT_TRUE(a.Eventually([&] { return a.mixes_sent == 1; }));
  EXPECT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
}

TEST(WaitingSendsTest, AnInputWhoseSnapshotIsReplacedIsNotSent) {
  SilentPort silent;
  Planes a, b;
  a.Introduce(b.id(), silent.endpoint());
  a.OpenRound();
  for (uint32_t chunk = 0; chunk + 1 < kChunks; ++chunk) a.SendInput(b.id(), chunk);
  ASSERT_GT(a.waiting(), 0);
  a.Overwrite();
  ASSERT_TRUE(a.Eventually([&] { return a.soft_downs > 0; }));
  a.Introduce(b.id(), b.endpoint());
  a.SendInput(b.id(), kChunks - 1);
  ASSERT_TRUE(b.Eventually([&] { return b.chunks_here.contains(kChunks - 1); }));
  const std::set<uint32_t> arrived = b.arrived();
  EXPECT_FALSE(arrived.contains(kChunks - 2)) << "it waited for the snapshot before";
}

// Inputs that the link has taken lie in the outbox itself until they are sent, or it is
// overwritten.
TEST(WaitingSendsTest, AnInputOnItsWayKeepsItsSnapshot) {
  constexpr uint32_t kSnapshots = 60;
  Planes a(size_t{kSnapshots} << 20), b;
  a.Introduce(b.id(), b.endpoint());
  a.OpenRound();
  for (uint32_t snapshot = 0; snapshot < kSnapshots; ++snapshot) {
    a.Publish(static_cast<float>(snapshot));
    a.SendInput(b.id(), snapshot % kChunks);
  }
  ASSERT_TRUE(b.Eventually([&] { return b.inputs_here.size() == kSnapshots; }));
  for (uint32_t i = 0; i < kSnapshots; ++i) ExpectChunkOf(static_cast<float>(i), b.inputs_here[i]);
}

// Results lie in their slots until they are sent: another result may take the place, or another
// averaging the whole region.
TEST(WaitingSendsTest, AResultOnItsWayKeepsItsValues) {
  constexpr uint32_t kResults = 60;
  Planes a(size_t{kResults} << 20), b;
  a.Introduce(b.id(), b.endpoint());
  a.OpenRound();
  for (uint32_t i = 0; i < kResults; ++i) {
    a.Publish(static_cast<float>(i));
    a.SendResult(b.id(), static_cast<Ballot>(i));
    if (i % 7 == 3) a.Refill(-1);
  }
  ASSERT_TRUE(b.Eventually([&] { return b.results_here.size() == kResults; }));
  for (uint32_t i = 0; i < kResults; ++i) ExpectChunkOf(static_cast<float>(i), b.results_here[i]);
}

}  // namespace
}  // namespace crowdsurf::worker
