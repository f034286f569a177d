#include "worker/edge/tensor/tensor_connection.h"
#include "worker/edge/tensor/tensor_asio.h"

#include <unistd.h>

#include <chrono>

namespace crowdsurf::worker {

const char* TensorEndingName(TensorEnding ending) {
  switch (ending) {
    case TensorEnding::kRefused:
      return "refused";
    case TensorEnding::kWrong:
      return "wrong_peer";
    case TensorEnding::kFailed:
      return "failed";
    case TensorEnding::kLost:
      return "lost";
    case TensorEnding::kGarbage:
      return "garbage";
    case TensorEnding::kGoodbye:
      return "goodbye";
  }
  return "failed";
}

TensorConnection::TensorConnection(asio::ip::tcp::socket socket, const TlsCredentials* credentials,
                                   Settings settings, Events events)
    : socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      credentials_(credentials),
      settings_(std::move(settings)),
      events_(std::move(events)) {}

void TensorConnection::Dial(const asio::ip::tcp::endpoint& to,
                            std::shared_ptr<TensorOutbox> outbox) {
  outbox_ = std::move(outbox);
  StartDeadline();
  socket_.async_connect(to, [self = shared_from_this()](std::error_code error) {
    if (self->state_ == State::kEnded) return;
    if (error == asio::error::connection_refused) {
      return self->End(TensorEnding::kRefused, error.message());
    }
    if (error) return self->End(TensorEnding::kFailed, error.message());
    self->StartOpening();
  });
}

void TensorConnection::Accept() {
  accepting_ = true;
  StartDeadline();
  StartOpening();
}

void TensorConnection::ExpectSocket(std::shared_ptr<TensorOutbox> outbox) {
  outbox_ = std::move(outbox);
  StartDeadline();
}

void TensorConnection::UseSocket(int fd) {
  // A pair of local sockets is driven like any other: readiness, recv, sendmsg, and OpenSSL on it.
  std::error_code error;
  socket_.assign(asio::ip::tcp::v4(), fd, error);
  if (!error) return StartOpening();
  ::close(fd);
  End(TensorEnding::kFailed, error.message());
}

void TensorConnection::StartDeadline() {
  deadline_.expires_after(std::chrono::nanoseconds(settings_.open_within.nanoseconds()));
  deadline_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error && !self->open()) self->End(TensorEnding::kFailed, "not open in time");
  });
}

void TensorConnection::StartOpening() {
  std::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  // No delay: a small frame that waits for an acknowledgement would hold a round.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  if (credentials_ != nullptr) {
    tls_ = std::make_unique<TlsStream>(
        *credentials_, socket_.native_handle(),
        accepting_ ? TlsStream::Side::kAccepts : TlsStream::Side::kDials);
    state_ = State::kHandshake;
  } else {
    state_ = State::kHello;
  }
  // The dialling side speaks first. The other side answers when it knows who dialled (TakeHello).
  if (!accepting_) SendHello();
  Drive();
}

void TensorConnection::SendHello() {
  TensorHello hello = settings_.self;
  hello.token = shows_;
  SendFirst({.kind = TensorKind::kHello}, EncodeTensorHello(hello));
}

void TensorConnection::SendFirst(const TensorHeader& header, const Bytes& payload) {
  TensorHeader whole = header;
  whole.payload_bytes = static_cast<uint32_t>(payload.size());
  whole.hash = TensorPayloadHash(whole.instance, payload);
  const TensorHeaderBytes bytes = EncodeTensorHeader(whole);
  first_.assign(bytes.begin(), bytes.end());
  first_.insert(first_.end(), payload.begin(), payload.end());
  first_sent_ = 0;
}

void TensorConnection::Flush() {
  // While a wait for room is armed, a write would only fail with EAGAIN.
  if (state_ == State::kOpen && !write_armed_) PumpWrites();
}

void TensorConnection::Resume() {
  if (!paused_) return;
  paused_ = false;
  if (state_ == State::kOpen) PumpReads();
}

// `why` is a copy: it may lie in `tls_`, which ends here.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void TensorConnection::End(TensorEnding ending, std::string why) {
  if (state_ == State::kEnded) return;
  // In good order only between frames: what was half sent is then the peer's problem to see.
  if (ending == TensorEnding::kGoodbye && state_ == State::kOpen && front_sent_ == 0) {
    SendFirst({.kind = TensorKind::kGoodbye}, {});
    (void)WriteBytes(first_);
    (void)Flushed();
  }
  state_ = State::kEnded;
  if (payload_.landing != nullptr) settings_.slots->Abandon(*payload_.landing);
  payload_ = {};
  // on_end may drop the last owner of this.
  const auto keep = shared_from_this();
  std::error_code ignored;
  deadline_.cancel();
  // The session uses the descriptor, so it goes before the socket.
  tls_.reset();
  socket_.close(ignored);
  events_.on_end(ending, why);
  events_ = {};
}

void TensorConnection::Drive() {
  if (state_ == State::kHandshake && !DriveHandshake()) return;
  // Both directions, whichever is ready: with TLS a read may wait to write, and a write to read.
  if (state_ != State::kEnded) PumpWrites();
  if (state_ != State::kEnded && !paused_) PumpReads();
}

bool TensorConnection::DriveHandshake() {
  const IoOutcome outcome = tls_->Handshake();
  switch (outcome.state) {
    case IoState::kDone:
      state_ = State::kHello;
      return true;
    case IoState::kWantRead:
      ArmRead();
      return false;
    case IoState::kWantWrite:
      ArmWrite();
      return false;
    case IoState::kClosed:
      End(TensorEnding::kFailed, "closed in the TLS handshake");
      return false;
    case IoState::kFailed:
      // A certificate of another job, or no TLS at all.
      End(TensorEnding::kWrong, tls_->error());
      return false;
  }
  return false;
}

// ---- readiness ---------------------------------------------------------------------------------

void TensorConnection::OnStuck(const IoOutcome& outcome) {
  switch (outcome.state) {
    case IoState::kWantRead:
      return ArmRead();
    case IoState::kWantWrite:
      return ArmWrite();
    case IoState::kClosed:
      // Only what was open can be lost: that is dialled again at once (tensor_link.cc).
      return End(state_ == State::kOpen ? TensorEnding::kLost : TensorEnding::kFailed,
                 "closed by the other side");
    case IoState::kFailed:
      return End(state_ == State::kOpen ? TensorEnding::kGarbage : TensorEnding::kWrong,
                 tls_ ? tls_->error() : "failed");
    case IoState::kDone:
      return;
  }
}

void TensorConnection::ArmRead() {
  if (read_armed_) return;
  read_armed_ = true;
  // One wait a direction at most: its handler owns this until it runs.
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](std::error_code error) {
                       self->read_armed_ = false;
                       if (!error && self->state_ != State::kEnded) self->Drive();
                     });
}

void TensorConnection::ArmWrite() {
  if (write_armed_) return;
  write_armed_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](std::error_code error) {
                       self->write_armed_ = false;
                       if (!error && self->state_ != State::kEnded) self->Drive();
                     });
}

}  // namespace crowdsurf::worker
