// The inside of TensorTransport: links to peers that were dialled, and accepted connections.
//
// Not for others to include. `links_`, `accepted_` and everything below them belong to the I/O
// thread; `outboxes_` is shared with the host thread under its mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/down_evidence.h"
#include "coordinator-free-dht/edge/relay.h"
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

  void SetHandlers(TensorHandlers handlers) { handlers_ = std::move(handlers); }
  Status Start();
  void Stop();
  std::string endpoint() const { return self_.listen; }
  Sent Send(const PeerId& to, const std::string& endpoint, TensorHeader header, OutFrame frame);
  void KeepLent();
  std::vector<std::pair<PeerId, uint32_t>> TakeLeft();
  void Forget(const PeerId& peer);
  // Tokens (tensor_admission.cc).
  std::optional<TokenHalves> GiveToken(const PeerId& peer);
  void UseToken(const PeerId& peer, uint64_t number, std::optional<TokenHalves> halves);
  void LoseToken(const PeerId& peer);
  void CountRefused(TokenRefusal refusal) {
    metrics_.Tokens(kTokenRefusals[static_cast<size_t>(refusal)]).Add();
  }
  const std::shared_ptr<BytePool>& pool() const { return pool_; }
  ResultSlots& slots() { return slots_; }

 private:
  // Chunks that three owners' windows and as many queues of 4 MiB hold: what a round of four uses
  // again all the time.
  static constexpr size_t kMaxPooledBytes = size_t{16} << 20;
  // Frames in one event of the host: each event may wake its thread. With 32, beats came late.
  static constexpr size_t kHandedOver = 16;

  using Clock = std::chrono::steady_clock;
  using Connection = std::shared_ptr<TensorConnection>;

  // A peer that this agent dials.
  struct Link {
    std::string endpoint;
    std::shared_ptr<TensorOutbox> outbox;
    Connection connection;
    bool was_open = false;    // this attempt
    int redials = 0;          // since it was open last
    bool other_peer = false;  // somebody else answered
    bool carried = false;     // this attempt goes through the relay
    bool dialed = false;      // this attempt; false while it waits for a token
    uint64_t asked = 0;       // number of the token that it waits for; 0: none
    std::list<PeerId>::iterator used;
  };
  struct Accepted {
    Connection connection;
    std::optional<TensorHello> peer;
  };
  struct SharedOutbox {
    std::shared_ptr<TensorOutbox> outbox;
    Clock::time_point refuse_until{};                    // after a failure
    DownEvidence evidence = DownEvidence::kUnreachable;  // of that failure
  };
  // Bytes that were posted to the host and are not taken yet.
  class Token;
  struct Arrived {
    PeerId from;
    TensorHeader header;
    TensorPayload payload;
  };

  // Links (tensor_link.cc).
  // Dials without anything to send, unless there is a link or was one a moment ago: then false.
  bool Probe(const PeerId& peer, const std::string& endpoint);
  void Prove(const dht::Contact& end);  // for the relay
  bool JustDied(const PeerId& peer);
  void Wake(const PeerId& peer, const std::string& endpoint, std::shared_ptr<TensorOutbox> outbox);
  void Dial(const PeerId& peer);
  void DialThroughRelay(const PeerId& peer);  // whatever the relay knows of a way
  void Connect(const PeerId& peer, Link& link);
  void AskForToken(const PeerId& peer, Link& link);
  Link* WaitsForToken(const PeerId& peer);
  void EndAsk(Link& link, const char* why);
  void WarnOfNoToken(const PeerId& peer);
  void DialOut(const PeerId& peer, Link& link);
  void DialCarried(const PeerId& peer, const Connection& connection,
                   const std::shared_ptr<TensorOutbox>& outbox);
  void DialAddress(const PeerId& peer, const Connection& connection,
                   const std::shared_ptr<TensorOutbox>& outbox);
  void OnLinkEnd(const PeerId& peer, const TensorConnection* connection, TensorEnding ending,
                 const std::string& why);
  void Redial(const PeerId& peer);
  void DropLink(const PeerId& peer, Clock::duration refuse_for, DownEvidence evidence);
  void ReportDown(const PeerId& peer, DownEvidence evidence);
  void Touch(Link& link, const PeerId& peer);

  // Accepted connections (tensor_accept.cc).
  Status Listen();
  void AcceptNext();
  void AcceptAfterPause();
  bool MakePlace();  // for one more connection
  void OnAccepted(asio::ip::tcp::socket socket);
  bool Admit(TensorConnection& connection, const TensorHello& hello);
  bool OnFrame(uint64_t number, const TensorHeader& header, TensorPayload payload);
  void HandOver();  // what has arrived, to the host
  void OnAcceptedEnd(uint64_t number, TensorEnding ending, const std::string& why);
  void ResumeReads();
  void CountEnd(TensorEnding ending, const std::string& why, const PeerId* peer);
  const TlsCredentials* Credentials();
  TensorConnection::Settings ConnectionSettings() {
    return {self_, options_.open_within, pool_, options_.clock, &slots_};
  }

  const TensorTransportOptions options_;
  const dht::Identity& identity_;
  HostLoop& host_;
  TensorMetrics metrics_;
  const Logger log_;
  dht::Relay* const relay_;
  const std::shared_ptr<BytePool> pool_ = std::make_shared<BytePool>(kMaxPooledBytes);
  ResultSlots slots_{pool_};
  TensorHandlers handlers_;
  TensorHello self_;
  TlsCredentials credentials_;
  std::mutex tokens_mutex_;
  TensorTokens tokens_;  // given to those who dial here

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  asio::ip::tcp::resolver resolver_;
  std::thread thread_;
  std::atomic<bool> stopped_{false};

  std::map<PeerId, Link> links_;
  std::list<PeerId> recent_;  // of links_, most recently used first
  uint64_t asks_ = 0;
  std::set<PeerId> warned_;  // of them that they give no token; options_.dialed
  std::map<uint64_t, Accepted> accepted_;
  std::set<uint64_t> nameless_;  // of them, without a Hello yet, oldest first
  uint64_t next_accepted_ = 0;
  std::set<uint64_t> paused_;
  std::vector<Arrived> arrived_;          // not posted yet: at most kHandedOver
  size_t arrived_bytes_ = 0;              // of them in memory of their own
  std::atomic<size_t> waiting_bytes_{0};  // posted to the host

  std::mutex mutex_;
  std::map<PeerId, SharedOutbox> outboxes_;
};

}  // namespace crowdsurf::worker
