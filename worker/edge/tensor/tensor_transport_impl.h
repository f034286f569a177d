// The inside of TensorTransport: what its I/O threads share, the listening socket, and which thread
// has which peer.
//
// Not for others to include. Each connection lives on one I/O thread (tensor_io_thread.h) from its
// first byte to its end. What is shared says here by what it is guarded.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/down_evidence.h"
#include "base/edge/connection_admission.h"
#include "coordinator-free-dht/edge/relay.h"
#include "worker/core/link/renewals.h"
#include "worker/core/link/thread_loads.h"
#include "worker/edge/metrics/tensor_metrics.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_connection.h"
#include "worker/edge/tensor/tensor_outbox.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::worker {

class TensorTransport::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(TensorTransportOptions options, const dht::Identity& identity, HostLoop& host,
       MetricRegistry& metrics, Logger log);
  ~Impl();

  void SetHandlers(TensorHandlers handlers) { handlers_ = std::move(handlers); }
  Status Start();
  void Stop();
  std::string endpoint() const { return self_.listen; }
  Sent Send(const PeerId& to, const std::string& endpoint, TensorHeader header, OutFrame frame);
  void KeepLent();
  std::vector<LeftForPeer> TakeLeft();
  void Forget(const PeerId& peer);
  void Expel(const PeerId& peer);
  // Tokens (tensor_admission.cc).
  std::optional<TokenHalves> GiveToken(const PeerId& peer);
  void UseToken(const PeerId& peer, uint64_t number, std::optional<TokenHalves> halves);
  void LoseToken(const PeerId& peer);
  void CountRefused(TokenRefusal refusal) {
    metrics_.Tokens(kTokenRefusals[static_cast<size_t>(refusal)]).Add();
  }
  const std::shared_ptr<BytePool>& pool() const { return pool_; }
  ResultSlots& slots() { return slots_; }
  std::vector<size_t> loads() {
    const std::lock_guard lock(mutex_);
    return loads_.loads();
  }

 private:
  // Chunks that three owners' windows and as many queues of 4 MiB hold: what a round of four uses
  // again all the time.
  static constexpr size_t kMaxPooledBytes = size_t{16} << 20;

  using Clock = std::chrono::steady_clock;
  using Connection = std::shared_ptr<TensorConnection>;
  class IoThread;

  // A peer that there is a link with, or was one a moment ago.
  struct SharedOutbox {
    std::shared_ptr<TensorOutbox> outbox;                // nullptr: there is none
    size_t thread = 0;                                   // that has the link
    Clock::time_point refuse_until{};                    // after a failure
    DownEvidence evidence = DownEvidence::kUnreachable;  // of that failure
  };

  // Listening (tensor_listen.cc), on the first I/O thread.
  Status Listen();
  void AcceptNext();
  void AcceptAfterPause();

  // Links, for any thread.
  // Makes the peer's outbox, which a thread has from now on. Pre: mutex_ is held; it has none.
  void MakeOutbox(SharedOutbox& shared);
  // Dials without anything to send, unless there is a link or was one a moment ago: then false.
  bool Probe(const PeerId& peer, const std::string& endpoint);
  void Prove(const dht::Contact& end);  // for the relay
  bool JustDied(const PeerId& peer);
  IoThread* ThreadOf(const PeerId& peer);  // that has its link; nullptr: none has
  // A connection of that thread has ended.
  void Leave(size_t thread);
  // That link is no more. Its peer is refused for a while.
  void Unlink(const PeerId& peer, const std::shared_ptr<TensorOutbox>& outbox, size_t thread,
              Clock::duration refuse_for, DownEvidence evidence);
  // What has arrived on all threads, to the host.
  void HandOverAll();
  size_t Share(size_t bound) const;  // of one thread
  ConnectionAdmission::Limits Admits() const;

  const TensorTransportOptions options_;
  const dht::Identity& identity_;
  HostLoop& host_;
  TensorMetrics metrics_;  // its handles are thread-safe, and so are log_, relay_, pool_ and slots_
  const Logger log_;
  dht::Relay* const relay_;
  const std::shared_ptr<BytePool> pool_ = std::make_shared<BytePool>(kMaxPooledBytes);
  ResultSlots slots_{pool_};
  TensorHandlers handlers_;  // set before Start, as self_
  TensorHello self_;
  std::mutex tokens_mutex_;
  TensorTokens tokens_;   // given to those who dial here
  bool started_ = false;  // its owner's
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> asks_{0};         // for tokens
  std::atomic<size_t> waiting_bytes_{0};  // posted to the host

  std::mutex mutex_;
  std::map<PeerId, SharedOutbox> outboxes_;
  Renewals renewals_;  // of accepted connections
  ThreadLoads loads_;  // connections, by thread

  std::vector<std::unique_ptr<IoThread>> threads_;  // all there from the start
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
};

}  // namespace crowdsurf::worker
