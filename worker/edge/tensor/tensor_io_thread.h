// An I/O thread of TensorTransport: the connections that live on it, dialled and accepted.
//
// Not for others to include. Functions run on this thread, but for those that say otherwise. What
// arrives is gathered and handed over to the host; another thread may hand it over as well.
// Bounds: this thread's share of TensorTransportOptions' connections.
#pragma once

#include <list>
#include <set>
#include <string>
#include <thread>

#include "worker/edge/tensor/tensor_transport_impl.h"

namespace crowdsurf::worker {

class TensorTransport::Impl::IoThread {
 public:
  IoThread(Impl& transport, size_t index);

  // ---- from outside ----
  Status LoadCredentials() { return credentials_.Refresh(); }  // before Start
  void Start();
  void Join();
  // Runs `work` on this thread, after what was posted before. Any thread.
  template <class Work>
  void Post(Work work) {
    asio::post(io_, std::move(work));
  }
  asio::io_context& io() { return io_; }
  // What has arrived, to the host. Any thread.
  void HandOver();

  // ---- on this thread ----
  void Close();  // everything, when the transport stops
  // Links (tensor_link.cc). Wake: the outbox has something, or its peer is to be dialled.
  void Wake(const PeerId& peer, const std::string& endpoint,
            const std::shared_ptr<TensorOutbox>& outbox);
  void Prove(const dht::Contact& end);
  void DropLink(const PeerId& peer, Clock::duration refuse_for, DownEvidence evidence);
  // Tokens (tensor_admission.cc).
  void UseToken(const PeerId& peer, uint64_t number, const std::optional<TokenHalves>& halves);
  void LoseToken(const PeerId& peer);
  // Accepted connections (tensor_accept.cc).
  void OnAccepted(asio::ip::tcp::socket socket);
  void ResumeReads();
  void DropAccepted(const PeerId& peer);

 private:
  // Frames in one event of the host: each event may wake its thread. With 32, beats came late.
  static constexpr size_t kHandedOver = 16;

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
  // Bytes that were posted to the host and are not taken yet.
  class Token;
  struct Arrived {
    PeerId from;
    TensorHeader header;
    TensorPayload payload;
  };

  // Links (tensor_link.cc).
  void Dial(const PeerId& peer);
  void DialThroughRelay(const PeerId& peer);  // whatever the relay knows of a way
  void Connect(const PeerId& peer, Link& link);
  void DialOut(const PeerId& peer, Link& link);
  void DialCarried(const PeerId& peer, const Connection& connection,
                   const std::shared_ptr<TensorOutbox>& outbox);
  void DialAddress(const PeerId& peer, const Connection& connection,
                   const std::shared_ptr<TensorOutbox>& outbox);
  void OnLinkEnd(const PeerId& peer, const TensorConnection* connection, TensorEnding ending,
                 const std::string& why);
  void Redial(const PeerId& peer);
  void ReportDown(const PeerId& peer, DownEvidence evidence);
  void Touch(Link& link, const PeerId& peer);

  // Tokens (tensor_admission.cc).
  void AskForToken(const PeerId& peer, Link& link);
  Link* WaitsForToken(const PeerId& peer);
  void EndAsk(Link& link, const char* why);
  void WarnOfNoToken(const PeerId& peer);
  bool Admit(TensorConnection& connection, const TensorHello& hello);

  // Accepted connections (tensor_accept.cc).
  bool MakePlace(const std::string& source);  // for one more connection from there
  void OnNamed(uint64_t number, const TensorHello& hello);
  void ReportRenewed(const PeerId& peer);
  bool OnFrame(uint64_t number, const TensorHeader& header, TensorPayload payload);
  void OnAcceptedEnd(uint64_t number, TensorEnding ending, const std::string& why);
  void CountEnd(TensorEnding ending, const std::string& why, const PeerId* peer);
  const TlsCredentials* Credentials();
  TensorConnection::Settings ConnectionSettings() {
    return {all_.self_,   all_.options_.open_within, all_.pool_, all_.options_.clock,
            &all_.slots_, all_.options_.old_boot};
  }

  Impl& all_;  // what all threads share
  const size_t index_;
  TlsCredentials credentials_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::ip::tcp::resolver resolver_;
  std::thread thread_;

  std::map<PeerId, Link> links_;
  std::list<PeerId> recent_;  // of links_, most recently used first
  std::set<PeerId> warned_;   // of them that they give no token
  std::map<uint64_t, Accepted> accepted_;
  ConnectionAdmission admission_;  // of them: kHeld since their Hello
  uint64_t next_accepted_ = 0;
  std::set<uint64_t> paused_;

  std::mutex arrived_mutex_;      // held while they are posted, so that frames keep their order
  std::vector<Arrived> arrived_;  // not posted yet: at most kHandedOver
  size_t arrived_bytes_ = 0;      // of them in memory of their own
};

}  // namespace crowdsurf::worker
