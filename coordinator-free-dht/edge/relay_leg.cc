#include "coordinator-free-dht/edge/relay_leg.h"

#include <chrono>
#include <utility>

#include "coordinator-free-dht/edge/relay.h"

namespace crowdsurf::dht {

void SocketLeg::Read(OnPiece done) {
  in_.resize(kRelayPieceBytes);
  socket_.async_read_some(asio::buffer(in_), [self = shared_from_this(), done = std::move(done)](
                                                 std::error_code error, size_t bytes) {
    // Aborted meanwhile: nobody is to be called after that.
    if (!self->socket_.is_open()) return;
    if (error) return done({});
    self->in_.resize(bytes);
    done(std::exchange(self->in_, {}));
  });
}

void SocketLeg::Write(std::string piece, OnWritten done) {
  out_ = std::move(piece);
  asio::async_write(
      socket_, asio::buffer(out_),
      [self = shared_from_this(), done = std::move(done)](std::error_code error, size_t) {
        if (self->socket_.is_open()) done(error ? LegResult::kFailed : LegResult::kDone);
      });
}

void SocketLeg::End() {
  std::error_code ignored;
  // It fails where the other side has gone, and then there is nobody to tell.
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void SocketLeg::Abort() {
  std::error_code ignored;
  socket_.close(ignored);
}

RelayPipe::RelayPipe(asio::io_context& loop, std::shared_ptr<RelayLeg> left,
                     std::shared_ptr<RelayLeg> right, Counter& bytes, Events events)
    : left_(std::move(left)),
      right_(std::move(right)),
      there_(*left_, *right_),
      back_(*right_, *left_),
      bytes_(bytes),
      linger_(loop),
      on_answer_(std::move(events.on_answer)),
      on_end_(std::move(events.on_end)) {}

void RelayPipe::Start() {
  Carry(there_);
  Carry(back_);
}

void RelayPipe::Carry(Way& way) {
  way.from.Read([self = shared_from_this(), &way](std::string piece) {
    if (!self->on_end_) return;
    if (piece.empty()) return self->OnOver(way);
    // The first bytes of the end prove that it lives and is no frozen process.
    if (&way == &self->back_ && self->on_answer_) std::exchange(self->on_answer_, nullptr)();
    const auto size = static_cast<double>(piece.size());
    way.to.Write(std::move(piece), [self, &way, size](LegResult result) {
      if (!self->on_end_) return;
      if (result == LegResult::kFailed) return self->Fail();
      self->bytes_.Add(size);
      self->Carry(way);
    });
  });
}

void RelayPipe::OnOver(Way& way) {
  way.over = true;
  // Both sides have said all: the same as a failure, for nothing more will come.
  if (there_.over && back_.over) return Fail();
  way.to.End();
  // Who has closed its side takes nothing more, and its other direction may stand still for ever.
  linger_.expires_after(std::chrono::nanoseconds(kRelayLinger.nanoseconds()));
  linger_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error && self->on_end_) self->Fail();
  });
}

void RelayPipe::Fail() {
  const auto on_end = std::exchange(on_end_, nullptr);
  Cut();
  on_end();
}

void RelayPipe::Cut() {
  on_end_ = nullptr;
  linger_.cancel();
  left_->Abort();
  right_->Abort();
}

}  // namespace crowdsurf::dht
