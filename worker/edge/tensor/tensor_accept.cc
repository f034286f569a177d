// Accepted connections of an I/O thread: their places, frames to the host, and the budget of bytes
// that the host has not taken yet.

#include "base/edge/clock.h"
#include "base/edge/connection_gate.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_io_thread.h"

namespace crowdsurf::worker {
namespace {

std::string SourceOf(asio::ip::tcp::socket& socket) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  // Where it has gone already, all such share one source.
  if (getpeername(socket.native_handle(), reinterpret_cast<sockaddr*>(&from), &size) != 0)
    return {};
  return ConnectionGate::SourceOf(ConnectionGate::RemoteOf(from));
}

}  // namespace

// Given back when the host took the frame (or the mailbox refused it).
class TensorTransport::Impl::IoThread::Token {
 public:
  Token(std::shared_ptr<Impl> transport, size_t bytes)
      : transport_(std::move(transport)), bytes_(bytes) {
    transport_->waiting_bytes_.fetch_add(bytes_);
  }
  ~Token() {
    // On any thread. Only the token that crosses the lower mark wakes the readers of all threads,
    // so they wake once.
    const size_t before = transport_->waiting_bytes_.fetch_sub(bytes_);
    const size_t low = transport_->options_.receive_bytes / 2;
    if (before <= low || before - bytes_ > low || transport_->stopped_) return;
    for (const auto& thread : transport_->threads_)
      thread->Post([&reads = *thread, weak = std::weak_ptr(transport_)] {
        if (const auto alive = weak.lock()) reads.ResumeReads();
      });
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

 private:
  std::shared_ptr<Impl> transport_;
  size_t bytes_;
};

// Who has not said who it is goes first: strangers cannot keep peers out.
bool TensorTransport::Impl::IoThread::MakePlace(const std::string& source) {
  const auto room = admission_.MakeRoom(SteadyNow(), source);
  if (!room.reached) return true;
  all_.metrics_.ended.at("too_many")->Add();
  if (!room.victim) return false;
  // A copy: End takes it out of accepted_ (OnAcceptedEnd).
  const Connection victim = accepted_.at(*room.victim).connection;
  victim->End(TensorEnding::kFailed, "others want its place");
  return true;
}

// It is of whoever holds that key: which names a peer takes is its own choice.
void TensorTransport::Impl::IoThread::OnNamed(uint64_t number, const TensorHello& hello) {
  Accepted& accepted = accepted_.at(number);
  accepted.peer = hello;
  admission_.Enter(number, ConnectionAdmission::Phase::kHeld);
  const auto key = accepted.connection->PeerKey();
  const std::string owner =
      key ? std::string(key->begin(), key->end()) : std::string(AsString(hello.id.view()));
  if (const auto oldest = admission_.Own(number, owner)) {
    all_.metrics_.ended.at("too_many")->Add();
    const Connection victim = accepted_.at(*oldest).connection;
    victim->End(TensorEnding::kFailed, "its key has too many");
  }
  bool renewed = false;
  {
    const std::lock_guard lock(all_.mutex_);
    renewed = all_.renewals_.OnOpen(hello.id);
  }
  if (renewed) ReportRenewed(hello.id);
}

void TensorTransport::Impl::IoThread::ReportRenewed(const PeerId& peer) {
  all_.HandOverAll();  // what came before the cut is here
  (void)all_.host_.Post(
      [&all = all_, keep = all_.shared_from_this(), peer](Time now, WallTime wall) {
        if (!all.stopped_ && all.handlers_.on_renewed) all.handlers_.on_renewed(now, wall, peer);
      });
}

const TlsCredentials* TensorTransport::Impl::IoThread::Credentials() {
  if (!all_.options_.tls) return nullptr;
  if (const Status status = credentials_.Refresh(); !status.ok()) {
    all_.log_.Warning("tensor credentials not renewed", {{"error", status.ToString()}});
  }
  return &credentials_;
}

void TensorTransport::Impl::IoThread::OnAccepted(asio::ip::tcp::socket socket) {
  const std::string source = SourceOf(socket);
  if (all_.stopped_ || !MakePlace(source)) return all_.Leave(index_);
  const uint64_t number = next_accepted_++;
  TensorConnection::Events events;
  events.on_open = [this, number](const TensorHello& hello) {
    if (all_.options_.tokens && !Admit(*accepted_.at(number).connection, hello)) return false;
    OnNamed(number, hello);
    all_.metrics_.opened.Add();
    all_.metrics_.connections.Add(1);
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
  admission_.Add(SteadyNow(), number, source);
  connection->Accept();
}

bool TensorTransport::Impl::IoThread::OnFrame(uint64_t number, const TensorHeader& header,
                                              TensorPayload payload) {
  size_t gathered = 0, bytes = 0;
  {
    const std::lock_guard lock(arrived_mutex_);
    arrived_bytes_ += payload.own.size() + kTensorHeaderBytes;
    arrived_.push_back({accepted_.at(number).peer->id, header, std::move(payload)});
    gathered = arrived_.size();
    bytes = arrived_bytes_;
  }
  // At the latest when the handlers that are ready now have run: then the sockets are empty.
  if (gathered == 1) Post([this] { HandOver(); });
  const size_t limit = all_.options_.receive_bytes;
  const bool full = all_.waiting_bytes_ + bytes >= limit;
  if (full || gathered >= kHandedOver) HandOver();
  if (!full) return true;
  all_.metrics_.paused.Add();
  paused_.insert(number);
  // The host may have taken everything since: then nobody else would wake this connection.
  if (all_.waiting_bytes_ <= limit / 2) Post([this] { ResumeReads(); });
  return false;
}

// Several frames are one event: it wakes the host once, and the core looks at its deadlines once.
void TensorTransport::Impl::IoThread::HandOver() {
  const std::lock_guard lock(arrived_mutex_);
  if (arrived_.empty()) return;
  // The token goes with the closure: its bytes count as waiting until the host has taken them.
  const size_t bytes = std::exchange(arrived_bytes_, 0);
  const size_t frames = arrived_.size();
  size_t payloads = 0;  // also of those that have come into slots
  for (const Arrived& one : arrived_) payloads += one.header.payload_bytes;
  const bool posted =
      all_.host_.Post([&all = all_, token = std::make_shared<Token>(all_.shared_from_this(), bytes),
                       arrived = std::exchange(arrived_, {})](Time now, WallTime wall) mutable {
        for (Arrived& one : arrived)
          if (!all.stopped_)
            all.handlers_.on_frame(now, wall, one.from, one.header, std::move(one.payload));
      });
  if (posted)
    all_.metrics_.received_bytes.Add(static_cast<double>(payloads));
  else
    all_.metrics_.dropped.Add(static_cast<double>(frames));
}

void TensorTransport::Impl::IoThread::ResumeReads() {
  // Emptied first: a connection that reads on may pause again at once.
  for (const uint64_t number : std::exchange(paused_, {})) {
    const auto it = accepted_.find(number);
    if (it == accepted_.end()) continue;
    const Connection connection = it->second.connection;
    connection->Resume();
  }
}

void TensorTransport::Impl::IoThread::DropAccepted(const PeerId& peer) {
  std::vector<Connection> its;  // a copy: End takes them out of accepted_
  for (const auto& [number, accepted] : accepted_)
    if (accepted.peer && accepted.peer->id == peer) its.push_back(accepted.connection);
  for (const Connection& connection : its)
    connection->End(TensorEnding::kWrong, "its key has spoken under a higher boot");
}

void TensorTransport::Impl::IoThread::OnAcceptedEnd(uint64_t number, TensorEnding ending,
                                                    const std::string& why) {
  const auto it = accepted_.find(number);
  const std::optional<TensorHello> peer =
      it == accepted_.end() ? std::nullopt : std::move(it->second.peer);
  CountEnd(ending, why, peer ? &peer->id : nullptr);
  if (it == accepted_.end()) return;
  accepted_.erase(it);
  admission_.Leave(number);
  paused_.erase(number);
  all_.Leave(index_);
  if (!peer) return;
  all_.metrics_.connections.Add(-1);
  {
    const std::lock_guard lock(all_.mutex_);
    all_.renewals_.OnEnd(peer->id,
                         ending == TensorEnding::kGoodbye ? LinkEnd::kInGoodOrder : LinkEnd::kCut);
  }
  if (all_.stopped_ || ending != TensorEnding::kLost) return;
  // Where no thread has a link with it, nobody would see that it is dead: dial, and see.
  (void)all_.Probe(peer->id, peer->listen);
}

void TensorTransport::Impl::IoThread::CountEnd(TensorEnding ending, const std::string& why,
                                               const PeerId* peer) {
  if (all_.stopped_) return;
  all_.metrics_.ended.at(TensorEndingName(ending))->Add();
  const bool suspicious = ending == TensorEnding::kWrong || ending == TensorEnding::kGarbage;
  const std::string who = peer ? peer->brief() : "unknown";
  if (suspicious) {
    all_.log_.Warning("tensor connection refused", {{"peer", who}, {"why", why}});
  } else {
    all_.log_.Debug("tensor connection ended", {{"peer", who}, {"why", why}});
  }
}

}  // namespace crowdsurf::worker
