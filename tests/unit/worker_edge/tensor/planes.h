// Planes: an agent's planes over a transport and a host thread of their own.
//
// Owner: one test of what they send. What they hear is in the public fields, under the lock of
// Eventually.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/tensor/chunk_plane.h"
#include "worker/edge/tensor/mix_plane.h"
#include "worker/edge/tensor/send_plane.h"

namespace crowdsurf::worker {

class Planes : public TimerSource {
 public:
  static constexpr uint32_t kChunk = 32'768;  // elements
  static constexpr uint32_t kChunks = 8;

  static constexpr size_t kQueueBytes = 256 << 10;  // two chunks, and a third is too many

  // A connection that does not open within `open_within` loses what it was given: short where
  // nobody answers, and long where somebody does, on a machine that may be busy.
  explicit Planes(size_t queue_bytes = kQueueBytes, Duration open_within = Seconds(20))
      : transport_(Options(queue_bytes, open_within), *identity_, host_, registry_, Logger()) {
    transport_.SetHandlers({[this](Time, WallTime, const PeerId&, const TensorHeader& header,
                                   const TensorPayload& payload) {
                              const std::lock_guard lock(mutex_);
                              chunks_here.insert(header.chunk);
                              if (header.kind == TensorKind::kState)
                                order_here.push_back(absl::StrCat("state ", payload.own.at(0)));
                              if (header.kind == TensorKind::kMix)
                                order_here.push_back(absl::StrCat("mix ", header.chunk));
                              if (header.kind == TensorKind::kInput)
                                inputs_here.push_back(payload.own);
                              if (header.kind == TensorKind::kResult)
                                results_here.push_back(
                                    Bytes(payload.bytes().begin(), payload.bytes().end()));
                              changed_.notify_all();
                            },
                            [this](Time now, WallTime, const PeerId& peer, DownEvidence evidence) {
                              if (evidence != DownEvidence::kRefused) sends_.OnFailed(now, peer);
                              const std::lock_guard lock(mutex_);
                              ++(evidence == DownEvidence::kRefused ? hard_downs : soft_downs);
                              changed_.notify_all();
                            },
                            [this](Time now, WallTime, const PeerId& peer) {
                              if (before_drained) before_drained(now, peer);
                              sends_.OnDrained(now, peer);
                              TakeSent();  // wakes those that wait for `waiting`, too
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
  Time NextDeadline() const override { return sends_.NextDeadline(); }
  void OnTimer(Time now, WallTime) override {
    sends_.OnTimer(now);
    TakeSent();
  }

  // On the host thread, done when it returns.
  void Do(const std::function<void(Time)>& work) {
    std::promise<void> done;
    ASSERT_TRUE(host_.Post([&](Time now, WallTime) {
      work(now);
      TakeSent();  // all of a message may leave at once
      done.set_value();
    }));
    done.get_future().wait();
  }
  void Introduce(const PeerId& peer, const std::string& endpoint) {
    Do([&](Time) { sends_.Introduce(peer, endpoint); });
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
    Do([&](Time now) { PushMix(now, to); });
  }
  // On the host thread.
  void PushMix(Time now, const PeerId& to, uint32_t chunks = kChunks) {
    mix_.Send(now, {to, kPairTag, ++mixes_pushed_, chunks});
    TakeSent();
  }
  void PushState(Time now, const PeerId& to, Bytes payload) {
    EXPECT_TRUE(chunks_.SendStateFrame(now, to, std::make_shared<const Bytes>(std::move(payload))));
  }
  SendPlane& sends() { return sends_; }
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
  double dropped_dead() const { return metrics_.sends_dropped_dead.value(); }
  double dropped_full() const { return metrics_.sends_dropped_full.value(); }

  std::function<void(Time, const PeerId&)> before_drained;  // set on the host thread

  std::set<uint32_t> chunks_here;
  std::vector<Bytes> inputs_here, results_here;
  std::vector<std::string> order_here;  // state frames by their first byte, chunks of messages
  int soft_downs = 0, hard_downs = 0;
  size_t mixes_sent = 0;

 private:
  static constexpr std::chrono::seconds kPatience{20};  // a test fails by it, never waits for it
  static constexpr RoundHandle kRound = 1;

  static TensorTransportOptions Options(size_t queue_bytes, Duration open_within) {
    TensorTransportOptions options;
    options.job = "job";
    options.tls = false;
    options.queue_bytes = queue_bytes;
    options.open_within = open_within;
    return options;
  }
  void TakeSent() {
    const std::lock_guard lock(mutex_);
    mixes_sent += mix_.TakeSent().size();
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
                              .begin = uint64_t{chunk % kChunks} * kChunk,
                              .elements = kChunk,
                              .sum_of = kOwn};
            }};
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
  SendPlane sends_{transport_, metrics_};
  ChunkPlane chunks_{transport_, sends_, memory_, metrics_};
  MixPlane mix_{sends_, memory_, MixCore(), metrics_};
  uint64_t mixes_pushed_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace crowdsurf::worker
