// The accepting side of TensorTransport: listening, frames to the host, and the budget of bytes
// that the host has not taken yet.

#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_transport_impl.h"

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

// Given back when the host took the frame (or the mailbox refused it).
class TensorTransport::Impl::Token {
 public:
  Token(std::shared_ptr<Impl> transport, size_t bytes)
      : transport_(std::move(transport)), bytes_(bytes) {
    transport_->waiting_bytes_.fetch_add(bytes_);
  }
  ~Token() {
    // On any thread. Only the token that crosses the lower mark wakes the readers, so they wake
    // once.
    const size_t before = transport_->waiting_bytes_.fetch_sub(bytes_);
    const size_t low = transport_->options_.receive_bytes / 2;
    if (before <= low || before - bytes_ > low || transport_->stopped_) return;
    asio::post(transport_->io_, [transport = transport_] { transport->ResumeReads(); });
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

 private:
  std::shared_ptr<Impl> transport_;
  size_t bytes_;
};

Status TensorTransport::Impl::Listen() {
  std::error_code error;
  const auto address = asio::ip::make_address(options_.listen, error);
  const std::string wanted = absl::StrCat(options_.listen, ":", options_.port);
  if (error) return absl::InvalidArgumentError(absl::StrCat(wanted, ": not an address"));
  const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
  acceptor_.open(endpoint.protocol(), error);
  // An agent that is started again finds its port held by connections in TIME_WAIT.
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return absl::UnavailableError(absl::StrCat(wanted, ": ", error.message()));
  const std::string host = options_.advertise.empty() ? options_.listen : options_.advertise;
  const bool v6 = host.find(':') != std::string::npos;
  self_.job = options_.job;
  self_.id = identity_.id();
  self_.boot = identity_.boot();
  self_.listen =
      absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", acceptor_.local_endpoint().port());
  return absl::OkStatus();
}

void TensorTransport::Impl::AcceptNext() {
  acceptor_.async_accept([this](std::error_code error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted || stopped_) return;
    if (!error) {
      OnAccepted(std::move(socket));
      return AcceptNext();
    }
    metrics_.accept_failures.Add();
    AcceptAfterPause();
  });
}

// Without a descriptor the next try would fail at once, too, and the thread would do nothing else.
void TensorTransport::Impl::AcceptAfterPause() {
  accept_pause_.expires_after(kAcceptPause);
  accept_pause_.async_wait([this](std::error_code) {
    if (!stopped_) AcceptNext();
  });
}

// Who has not said who it is goes first, the oldest of them: strangers cannot keep peers out.
bool TensorTransport::Impl::MakePlace() {
  if (accepted_.size() < options_.accepted) return true;
  metrics_.ended.at("too_many")->Add();
  if (nameless_.empty()) return false;
  // A copy: End takes it out of accepted_ (OnAcceptedEnd).
  const Connection oldest = accepted_.at(*nameless_.begin()).connection;
  oldest->End(TensorEnding::kFailed, "others want its place");
  return true;
}

const TlsCredentials* TensorTransport::Impl::Credentials() {
  if (!options_.tls) return nullptr;
  if (const Status status = credentials_.Refresh(); !status.ok()) {
    log_.Warning("tensor credentials not renewed", {{"error", status.ToString()}});
  }
  return &credentials_;
}

void TensorTransport::Impl::OnAccepted(asio::ip::tcp::socket socket) {
  if (!MakePlace()) return;
  const uint64_t number = next_accepted_++;
  TensorConnection::Events events;
  events.on_open = [this, number](const TensorHello& hello) {
    if (options_.tokens && !Admit(*accepted_.at(number).connection, hello)) return false;
    accepted_.at(number).peer = hello;
    nameless_.erase(number);
    metrics_.opened.Add();
    metrics_.connections.Add(1);
    return true;
  };
  events.on_frame = [this, number](const TensorHeader& header, TensorPayload payload) {
    return OnFrame(number, header, std::move(payload));
  };
  // No outbox on this side, so neither is ever called.
  events.on_sent = [](size_t) {};
  events.on_drained = [] {};
  events.on_end = [this, number](TensorEnding ending, const std::string& why) {
    OnAcceptedEnd(number, ending, why);
  };
  auto connection = std::make_shared<TensorConnection>(std::move(socket), Credentials(),
                                                       ConnectionSettings(), std::move(events));
  accepted_[number].connection = connection;
  nameless_.insert(number);
  connection->Accept();
}

bool TensorTransport::Impl::OnFrame(uint64_t number, const TensorHeader& header,
                                    TensorPayload payload) {
  arrived_bytes_ += payload.own.size() + kTensorHeaderBytes;
  arrived_.push_back({accepted_.at(number).peer->id, header, std::move(payload)});
  // At the latest when the handlers that are ready now have run: then the sockets are empty.
  if (arrived_.size() == 1) asio::post(io_, [this] { HandOver(); });
  if (arrived_.size() >= kHandedOver) HandOver();
  if (waiting_bytes_ + arrived_bytes_ < options_.receive_bytes) return true;
  HandOver();
  metrics_.paused.Add();
  paused_.insert(number);
  // The host may have taken everything since: then nobody else would wake this connection.
  if (waiting_bytes_ <= options_.receive_bytes / 2) {
    asio::post(io_, [this] { ResumeReads(); });
  }
  return false;
}

// Several frames are one event: it wakes the host once, and the core looks at its deadlines once.
void TensorTransport::Impl::HandOver() {
  if (arrived_.empty()) return;
  // The token goes with the closure: its bytes count as waiting until the host has taken them.
  const size_t bytes = std::exchange(arrived_bytes_, 0);
  const size_t frames = arrived_.size();
  size_t payloads = 0;  // also of those that have come into slots
  for (const Arrived& one : arrived_) payloads += one.header.payload_bytes;
  const bool posted =
      host_.Post([this, token = std::make_shared<Token>(shared_from_this(), bytes),
                  arrived = std::exchange(arrived_, {})](Time now, WallTime wall) mutable {
        for (Arrived& one : arrived)
          if (!stopped_)
            handlers_.on_frame(now, wall, one.from, one.header, std::move(one.payload));
      });
  if (posted)
    metrics_.received_bytes.Add(static_cast<double>(payloads));
  else
    metrics_.dropped.Add(static_cast<double>(frames));
}

void TensorTransport::Impl::ResumeReads() {
  // Emptied first: a connection that reads on may pause again at once.
  for (const uint64_t number : std::exchange(paused_, {})) {
    const auto it = accepted_.find(number);
    if (it == accepted_.end()) continue;
    const Connection connection = it->second.connection;
    connection->Resume();
  }
}

void TensorTransport::Impl::OnAcceptedEnd(uint64_t number, TensorEnding ending,
                                          const std::string& why) {
  const auto it = accepted_.find(number);
  const std::optional<TensorHello> peer =
      it == accepted_.end() ? std::nullopt : std::move(it->second.peer);
  CountEnd(ending, why, peer ? &peer->id : nullptr);
  if (it == accepted_.end()) return;
  accepted_.erase(it);
  nameless_.erase(number);
  paused_.erase(number);
  if (!peer) return;
  metrics_.connections.Add(-1);
  if (stopped_ || ending != TensorEnding::kLost || links_.contains(peer->id)) return;
  // Nobody here has a connection to it, so nobody would see that it is dead: dial, and see.
  (void)Probe(peer->id, peer->listen);
}

void TensorTransport::Impl::CountEnd(TensorEnding ending, const std::string& why,
                                     const PeerId* peer) {
  if (stopped_) return;
  metrics_.ended.at(TensorEndingName(ending))->Add();
  const bool suspicious = ending == TensorEnding::kWrong || ending == TensorEnding::kGarbage;
  const std::string who = peer ? peer->brief() : "unknown";
  if (suspicious) {
    log_.Warning("tensor connection refused", {{"peer", who}, {"why", why}});
  } else {
    log_.Debug("tensor connection ended", {{"peer", who}, {"why", why}});
  }
}

}  // namespace crowdsurf::worker
