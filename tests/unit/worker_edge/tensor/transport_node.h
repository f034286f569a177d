// TransportNode: one agent's tensor plane with a host loop of its own, for tests over real sockets.
//
// Owner: one test. What its handlers hear is in the public fields, under the lock of Eventually.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {

inline constexpr std::chrono::seconds kPatience{20};  // a test fails by it, and never waits for it

struct Received {
  PeerId from;
  TensorHeader header;
  Bytes payload;
  Float32Look look;
  std::shared_ptr<ResultSlots::Landing> landing;
};

// Says nothing, and counts warnings.
class WarningCount : public LogSink {
 public:
  void Write(LogLevel level, std::string_view, std::string_view,
             std::initializer_list<LogField>) override {
    if (level == LogLevel::kWarning) ++warnings;
  }
  std::atomic<int> warnings{0};
};

class TransportNode {
 public:
  TransportNode(const dht::TestAuthority* authority, const std::string& worker,
                TensorTransportOptions options = {}, bool start = true)
      : host_(4096, metrics_, Logger()) {
    options.job = options.job.empty() ? "job" : options.job;
    // Also on a machine with one processor, and also where a test asks for other things.
    if (options.threads == 0) options.threads = 2;
    options.tls = authority != nullptr;
    if (authority != nullptr) {
      authority->Equip(folder_.path(), {.names = "DNS:peer.crowdsurf,URI:crowdsurf://" +
                                                 options.job + "/" + worker});
    }
    identity_ = *dht::Identity::Open(authority != nullptr ? folder_.path() : "");
    transport_ = std::make_unique<TensorTransport>(options, *identity_, host_, metrics_,
                                                   Logger(&log_, "tensor"));
    transport_->SetHandlers({
        [this](Time, WallTime, const PeerId& from, const TensorHeader& header,
               TensorPayload payload) {
          std::unique_lock lock(mutex_);
          gate_.wait(lock, [&] { return !blocked_; });
          received.push_back(
              {from, header, std::move(payload.own), payload.look, std::move(payload.landing)});
          changed_.notify_all();
        },
        [this](Time, WallTime, const PeerId& peer, DownEvidence evidence) {
          const std::lock_guard lock(mutex_);
          downs.emplace_back(peer, evidence == DownEvidence::kRefused);
          changed_.notify_all();
        },
        [this](Time, WallTime, const PeerId&) {
          const std::lock_guard lock(mutex_);
          ++drained;
          changed_.notify_all();
        },
        [this](Time, WallTime, const PeerId& peer, uint64_t number) {
          const std::lock_guard lock(mutex_);
          asked.push_back(number);
          changed_.notify_all();
          if (silent_) return;
          transport_->UseToken(peer, number, token_of_ ? token_of_(peer) : std::nullopt);
        },
        [this](Time, WallTime, const PeerId& peer) {
          const std::lock_guard lock(mutex_);
          renewed.push_back(peer);
          changed_.notify_all();
        },
    });
    if (!start) return;
    const Status status = transport_->Start();
    EXPECT_TRUE(status.ok()) << status;
    thread_ = std::thread([this] { host_.Run(); });
  }
  ~TransportNode() {
    SetBlocked(false);
    transport_->Stop();
    host_.RequestStop(Duration());
    if (thread_.joinable()) thread_.join();
  }

  const PeerId& id() const { return identity_->id(); }
  TensorTransport& transport() { return *transport_; }
  MetricRegistry& metrics() { return metrics_; }
  void SetBlocked(bool blocked) {
    const std::lock_guard lock(mutex_);
    blocked_ = blocked;
    gate_.notify_all();
  }
  // Stands for the control channel: what a peer answers when it is asked for a token.
  using TokenOf = std::function<std::optional<TokenHalves>(const PeerId& peer)>;
  void SetControl(TokenOf token_of) {
    const std::lock_guard lock(mutex_);
    token_of_ = std::move(token_of);
  }
  // While it is silent, answers are lost on the way.
  void SetSilent(bool silent) {
    const std::lock_guard lock(mutex_);
    silent_ = silent;
  }
  int warnings() const { return log_.warnings; }
  double Tokens(const std::string& result) const {
    return metrics_.Value("crowdsurf_tensor_tokens_total", {{"result", result}});
  }
  template <class Condition>
  bool Eventually(Condition condition, std::chrono::milliseconds within = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, condition);
  }
  bool EventuallyCounts(const std::string& how, double least) {
    return EventuallyHolds([&] {
      return metrics_.Value("crowdsurf_tensor_connections_ended_total", {{"how", how}}) >= least;
    });
  }

  TensorTransport::Sent Send(const TransportNode& to, Bytes payload, uint32_t chunk = 0) {
    TensorHeader header;
    header.kind = TensorKind::kInput;
    header.chunk = chunk;
    header.rank = 3;
    return transport_->Send(to.id(), to.transport_->endpoint(), header,
                            std::make_shared<Bytes>(std::move(payload)));
  }

  std::vector<std::pair<PeerId, bool>> Downs() {
    const std::lock_guard lock(mutex_);
    return downs;
  }

  std::vector<Received> received;
  std::vector<std::pair<PeerId, bool>> downs;
  std::vector<PeerId> renewed;
  std::vector<uint64_t> asked;  // for tokens
  int drained = 0;

 private:
  dht::TemporaryDirectory folder_;
  WarningCount log_;
  MetricRegistry metrics_;
  HostLoop host_;
  std::unique_ptr<dht::Identity> identity_;
  std::unique_ptr<TensorTransport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_, gate_;
  bool blocked_ = false, silent_ = false;
  TokenOf token_of_;
  std::thread thread_;
};

}  // namespace crowdsurf::worker
