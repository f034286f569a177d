// Bytes of a tensor connection, in both directions, and what of them is believed
// (tensor_connection.h).
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <utility>

#include "worker/edge/metrics/averaging_clock.h"
#include "worker/edge/tensor/round_trip.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_connection.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kGatherFrames = 16;  // looked at for one write
// Of those. They are still in the cache when the kernel copies them, where they were just hashed.
constexpr size_t kGatherBytes = size_t{256} * 1024;
constexpr size_t kTurnBytes =
    size_t{4} * 1024 * 1024;  // then the other connections have their turn
// Bytes written between two looks at the round trip. Each is a call of the kernel.
constexpr size_t kLookBytes = size_t{4} * 1024 * 1024;

}  // namespace

// ---- writing -----------------------------------------------------------------------------------

void TensorConnection::PumpWrites() {
  size_t turn = 0;
  std::optional<AveragingWork> work;
  while (state_ == State::kHello || state_ == State::kOpen) {
    if (!work && state_ == State::kOpen && outbox_ != nullptr)
      work.emplace(settings_.clock, AveragingPart::kSend);
    const IoOutcome outcome = WriteOnce();
    if (outcome.state != IoState::kDone) return OnStuck(outcome);
    if (outcome.bytes == 0) return;  // nothing to send
    turn += outcome.bytes;
    // The socket takes more, so this goes on as soon as the handlers of others have run.
    if (turn > kTurnBytes) return ArmWrite();
  }
}

// kDone with 0 bytes: nothing to send.
IoOutcome TensorConnection::WriteOnce() {
  if (!first_.empty()) {
    const IoOutcome outcome = WriteBytes(ByteView(first_).subspan(first_sent_));
    first_sent_ += outcome.bytes;
    if (first_sent_ == first_.size()) {
      first_.clear();
      said_plain_hello_ = said_plain_hello_ || credentials_ == nullptr;
    }
    return outcome;
  }
  if (state_ != State::kOpen || outbox_ == nullptr) return Flushed();
  const IoOutcome outcome = tls_ ? WriteQueueTls() : WriteQueuePlain();
  if (outcome.state == IoState::kDone) Advance(outcome.bytes);
  return outcome;
}

IoOutcome TensorConnection::WriteQueuePlain() {
  const auto reading = outbox_->Reading();
  std::vector<OutFrame> frames = outbox_->First(kGatherFrames, kGatherBytes);
  for (size_t i = 0; i < frames.size(); ++i) {
    if (!frames[i].unhashed) continue;
    SetTensorHash(frames[i].header, frames[i].bytes());
    outbox_->Hashed(i, frames[i].header);
  }
  std::array<iovec, 2 * kGatherFrames> pieces;
  // skip: bytes of the frames at the front that are out already.
  size_t count = 0, skip = front_sent_;
  const auto add = [&](const uint8_t* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size > skipped) {
      pieces[count++] = {const_cast<uint8_t*>(data) + skipped, size - skipped};
    }
  };
  for (const OutFrame& frame : frames) {
    add(frame.header.data(), frame.header.size());
    if (!frame.bytes().empty()) add(frame.bytes().data(), frame.bytes().size());
  }
  if (count == 0) return {IoState::kDone, 0};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
  if (sent <= 0) return OutcomeOfErrno(IoDirection::kWrite);
  return {IoState::kDone, static_cast<size_t>(sent)};
}

// The stream gathers records, so a header may be one of its own.
IoOutcome TensorConnection::WriteQueueTls() {
  const auto reading = outbox_->Reading();
  // What it was lent when it was looked at before may be its own by now.
  if (!front_ || !front_->lent.empty()) front_ = outbox_->Front();
  if (!front_) return Flushed();
  const bool in_header = front_sent_ < kTensorHeaderBytes;
  return tls_->Write(in_header ? ByteView(front_->header).subspan(front_sent_)
                               : front_->bytes().subspan(front_sent_ - kTensorHeaderBytes));
}

// What the stream has gathered. kDone with 0 bytes, as where there is nothing to send.
IoOutcome TensorConnection::Flushed() {
  return tls_ ? tls_->Flush() : IoOutcome{IoState::kDone, 0};
}

IoOutcome TensorConnection::WriteBytes(ByteView bytes) {
  if (tls_) return tls_->Write(bytes);
  const ssize_t sent = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent <= 0) return OutcomeOfErrno(IoDirection::kWrite);
  return {IoState::kDone, static_cast<size_t>(sent)};
}

void TensorConnection::Advance(size_t bytes) {
  if (bytes == 0) return;
  events_.on_sent(bytes);
  LookAtRoundTrip(bytes);
  front_sent_ += bytes;
  bool drained = false;
  // One write can end several frames, or none.
  while (front_sent_ > 0) {
    if (!front_) front_ = outbox_->Front();
    if (!front_ || front_sent_ < front_->size()) break;
    front_sent_ -= front_->size();
    front_.reset();
    drained |= outbox_->Pop();
  }
  if (drained) events_.on_drained();
}

void TensorConnection::LookAtRoundTrip(size_t bytes) {
  if (until_look_ > bytes) {
    until_look_ -= bytes;
    return;
  }
  until_look_ = kLookBytes;
  outbox_->OnRoundTrip(LeastRoundTripOf(socket_.native_handle()));
}

// ---- reading -----------------------------------------------------------------------------------

void TensorConnection::PumpReads() {
  size_t turn = 0;
  std::optional<AveragingWork> work;
  while ((state_ == State::kHello || state_ == State::kOpen) && !paused_) {
    // From the Hello on: what TakeHello sends is sending.
    if (!work && state_ == State::kOpen && accepting_)
      work.emplace(settings_.clock, AveragingPart::kReceive);
    const IoOutcome outcome = ReadNext();
    if (outcome.state != IoState::kDone) return OnStuck(outcome);
    if (!TakeRead(outcome.bytes)) return;
    turn += outcome.bytes;
    if (turn > kTurnBytes) {
      // Not ArmRead: TLS may hold bytes already, and then the socket says nothing more.
      asio::post(socket_.get_executor(), [self = shared_from_this()] {
        if (self->state_ == State::kOpen && !self->paused_) self->PumpReads();
      });
      return;
    }
  }
}

IoOutcome TensorConnection::ReadNext() {
  if (header_got_ < kTensorHeaderBytes)
    return ReadBytes(std::span<uint8_t>(header_bytes_).subspan(header_got_));
  if (payload_.landing == nullptr)
    return ReadPayload(std::span<uint8_t>(payload_.own).subspan(payload_got_));
  const auto lock = payload_.landing->Using();
  const IoOutcome outcome = ReadPayload(payload_.landing->rest());
  payload_.landing->Got(outcome.bytes - ahead_);
  return outcome;
}

// With the header that follows, where it is there already: half as many calls.
IoOutcome TensorConnection::ReadPayload(std::span<uint8_t> rest) {
  if (tls_) return tls_->Read(rest);
  std::array<iovec, 2> pieces{iovec{rest.data(), rest.size()},
                              iovec{header_bytes_.data(), header_bytes_.size()}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t got = ::recvmsg(socket_.native_handle(), &message, 0);
  if (got == 0) return {IoState::kClosed, 0};
  if (got < 0) return OutcomeOfErrno(IoDirection::kRead);
  const auto bytes = static_cast<size_t>(got);
  ahead_ = bytes - std::min(bytes, rest.size());
  return {IoState::kDone, bytes};
}

IoOutcome TensorConnection::ReadBytes(std::span<uint8_t> into) {
  if (tls_) return tls_->Read(into);
  const ssize_t got = ::recv(socket_.native_handle(), into.data(), into.size(), 0);
  if (got == 0) return {IoState::kClosed, 0};
  if (got < 0) return OutcomeOfErrno(IoDirection::kRead);
  return {IoState::kDone, static_cast<size_t>(got)};
}

// False: the connection ended.
bool TensorConnection::TakeRead(size_t bytes) {
  if (header_got_ < kTensorHeaderBytes) {
    header_got_ += bytes;
    return header_got_ < kTensorHeaderBytes || (TakeHeader() && TakeIfWhole());
  }
  payload_got_ += bytes - ahead_;
  if (payload_got_ < header_.payload_bytes) return true;
  if (!TakeFrame()) return false;
  // The next header may have come along, whole.
  return header_got_ < kTensorHeaderBytes || (TakeHeader() && TakeIfWhole());
}

bool TensorConnection::TakeIfWhole() { return payload_got_ < header_.payload_bytes || TakeFrame(); }

bool TensorConnection::TakeHeader() {
  const auto header = DecodeTensorHeader(header_bytes_);
  // The first frame is a Hello, and no later one is.
  const bool expected = header && (header->kind == TensorKind::kHello) == (state_ == State::kHello);
  if (!expected) {
    End(state_ == State::kOpen ? TensorEnding::kGarbage : TensorEnding::kWrong,
        "not a tensor frame");
    return false;
  }
  header_ = *header;
  payload_ = {};
  payload_got_ = 0;
  if (accepting_ && header_.kind == TensorKind::kResult && settings_.slots != nullptr)
    payload_.landing =
        settings_.slots->Begin(header_.instance, header_.chunk, header_.payload_bytes);
  if (payload_.landing == nullptr) payload_.own = settings_.payloads->Take(header_.payload_bytes);
  return true;
}

// Looks at a chunk's values while they are in the cache.
bool TensorConnection::VerifyPayload() {
  std::unique_lock<std::mutex> lock;
  if (payload_.landing != nullptr) lock = payload_.landing->Using();
  const ByteView bytes = payload_.bytes();
  const bool hashed = IsHashed(header_.kind, tls_ ? TensorWire::kTls : TensorWire::kPlain);
  if (hashed && TensorPayloadHash(header_.instance, bytes) != header_.hash) return false;
  if (IsChunk(header_.kind)) payload_.look = LookAtFloat32(bytes);
  if (payload_.landing != nullptr) payload_.landing->Land();
  return true;
}

bool TensorConnection::TakeFrame() {
  header_got_ = std::exchange(ahead_, 0);
  payload_got_ = 0;
  if (!VerifyPayload()) {
    End(state_ == State::kOpen ? TensorEnding::kGarbage : TensorEnding::kWrong,
        "a payload fails its hash");
    return false;
  }
  if (header_.kind == TensorKind::kHello) return TakeHello();
  if (header_.kind == TensorKind::kGoodbye) {
    End(TensorEnding::kGoodbye, "goodbye");
    return false;
  }
  if (!events_.on_frame(header_, std::exchange(payload_, {}))) paused_ = true;
  return state_ != State::kEnded;
}

bool TensorConnection::TakeHello() {
  auto hello = DecodeTensorHello(payload_.own);
  if (!hello || hello->job != settings_.self.job) {
    End(TensorEnding::kWrong, "a hello of another job or version");
    return false;
  }
  if (tls_) {
    const auto key = tls_->PeerKey();
    if (!key || dht::PeerIdOf(*key, hello->boot) != hello->id) {
      End(TensorEnding::kWrong, "the certificate's key does not give that peer id");
      return false;
    }
    if (settings_.old_boot && settings_.old_boot(*key, hello->boot)) {
      End(TensorEnding::kWrong, "its key has spoken under a higher boot");
      return false;
    }
    if (!tls_->PeerIsOfJob(settings_.self.job)) {
      End(TensorEnding::kWrong, "a certificate of another job");
      return false;
    }
  }
  if (expects_ && !(hello->token && SameToken(*hello->token, *expects_))) {
    if (events_.on_impostor) events_.on_impostor();
    End(TensorEnding::kWrong, "it does not know the token");
    return false;
  }
  if (!events_.on_open(*hello)) {
    End(TensorEnding::kWrong, accepting_ ? "no good token" : "another peer answers there");
    return false;
  }
  // on_open may have ended this.
  if (state_ == State::kEnded) return false;
  state_ = State::kOpen;
  deadline_.cancel();
  if (accepting_) SendHello();
  PumpWrites();
  return state_ != State::kEnded;
}

}  // namespace crowdsurf::worker
