#include "coordinator-free-dht/edge/relay_call.h"

#include <chrono>
#include <utility>

#include "base/endpoint.h"
#include "coordinator-free-dht/core/wire/codec.h"
#include "coordinator-free-dht/edge/relay.h"

namespace crowdsurf::dht {
namespace {

// Empty: not a piece of data.
std::string TakeData(peer::RelayPiece& piece) {
  // A neighbour is of the job and may still be broken: its pieces must fit the bound of a leg.
  if (!piece.has_data() || piece.data().size() > kRelayPieceBytes) return {};
  return std::move(*piece.mutable_data());
}

RelayAnswer AnswerOf(const peer::RelayPiece& piece) {
  const bool known = piece.answer() >= static_cast<uint32_t>(RelayAnswer::kFound) &&
                     piece.answer() <= static_cast<uint32_t>(RelayAnswer::kNothing);
  // What a newer agent says beyond that is a failure of some kind.
  return known ? static_cast<RelayAnswer>(piece.answer()) : RelayAnswer::kUnreachable;
}

}  // namespace

// ---- asked -------------------------------------------------------------------------------------

AskedCall::AskedCall(RelayCallHost& host, std::shared_ptr<grpc::Channel> channel)
    : RelayCall(host), stub_(peer::PeerRelay::NewStub(std::move(channel))) {}

void AskedCall::Ask(const RelayQuestion& question, OnAnswer done) {
  KeepAlive();
  on_answer_ = std::move(done);
  peer::RelayOpen& open = *out_.mutable_open();
  open.set_endpoint(question.endpoint);
  open.set_number(question.number);
  open.set_hops(question.hops);
  open.set_asker(question.asker.bytes().data(), question.asker.bytes().size());
  writing_ = true;
  stub_->async()->Carry(&context_, this);
  AddHold();  // operations are started from the relay's thread
  StartWrite(&out_);
  StartRead(&in_);
  StartCall();
}

void AskedCall::Write(std::string piece, OnWritten done) {
  if (ended_) return asio::post(host_.loop, [done = std::move(done)] { done(LegResult::kFailed); });
  on_written_ = std::move(done);
  if (writing_) {  // the opening: its answer may be told before that it is out
    write_waits_ = true;
    waiting_ = std::move(piece);
    return;
  }
  out_.set_data(std::move(piece));
  writing_ = true;
  StartWrite(&out_);
}

void AskedCall::End() {
  if (!ended_ && !writing_) StartWritesDone();
}

void AskedCall::Abort() {
  on_answer_ = nullptr;
  on_piece_ = nullptr;
  on_written_ = nullptr;
  if (!ended_) context_.TryCancel();
  LetGo();
}

void AskedCall::LetGo() {
  if (!std::exchange(ended_, true)) RemoveHold();
}

void AskedCall::OnDone(const grpc::Status&) { PostRelease(&AskedCall::LetGo); }

void AskedCall::TakeRead(LegResult result) {
  const bool ok = result == LegResult::kDone;
  if (on_answer_) {
    const bool understood = !ok || in_.content_case() == peer::RelayPiece::kAnswer;
    if (!understood) host_.metrics.Refuse(RelayRefusal::kMalformed);
    const RelayAnswer answer = ok && understood ? AnswerOf(in_) : RelayAnswer::kUnreachable;
    const auto done = std::exchange(on_answer_, nullptr);
    // Nothing follows a no, and the call would else stay until the neighbour ends it.
    if (answer != RelayAnswer::kFound) Abort();
    return done(answer);
  }
  if (ended_) return;
  std::string piece = ok ? TakeData(in_) : std::string();
  if (ok && piece.empty()) host_.metrics.Refuse(RelayRefusal::kMalformed);
  const auto done = std::exchange(on_piece_, nullptr);
  if (piece.empty()) {
    // A piece that is none: the bytes after it cannot be trusted to be in order.
    if (ok) context_.TryCancel();
    LetGo();
  }
  if (done) done(std::move(piece));
}

void AskedCall::TakeWritten(LegResult result) {
  writing_ = false;
  if (result == LegResult::kDone && !ended_ && std::exchange(write_waits_, false)) {
    out_.set_data(std::move(waiting_));
    writing_ = true;
    StartWrite(&out_);
    return;
  }
  if (const auto done = std::exchange(on_written_, nullptr)) done(result);
}

// ---- served ------------------------------------------------------------------------------------

void ServedCall::Serve(std::function<void(RelayQuestion)> on_open, std::function<void()> on_gone) {
  KeepAlive();
  on_open_ = std::move(on_open);
  on_gone_ = std::move(on_gone);
  opening_.expires_after(std::chrono::nanoseconds(kRelayGreeting.nanoseconds()));
  opening_.async_wait([weak = weak_from_this()](std::error_code error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->OnOpeningLate();
  });
  StartRead(&in_);
}

void ServedCall::OnOpeningLate() {
  if (!on_open_) return;
  on_open_ = nullptr;
  on_gone_ = nullptr;
  host_.metrics.Refuse(RelayRefusal::kSilent);
  FinishOnce(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "asked nothing"));
}

void ServedCall::TakeOpening(LegResult result) {
  const bool ok = result == LegResult::kDone;
  opening_.cancel();
  const auto on_open = std::exchange(on_open_, nullptr);
  const peer::RelayOpen& open = in_.open();
  const bool understood = ok && in_.has_open() && open.endpoint().size() <= kMaxEndpoint &&
                          ParseEndpoint(open.endpoint());
  if (!understood) {
    if (ok) host_.metrics.Refuse(RelayRefusal::kMalformed);
    on_gone_ = nullptr;
    return FinishOnce(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not understood"));
  }
  RelayQuestion question;
  question.endpoint = open.endpoint();
  question.number = open.number();
  question.hops = open.hops();
  const std::string& asker = open.asker();
  // A hint: a wrong one has the asker asked back, and the search's number ends that.
  question.asker = PeerId::From(AsBytes(asker)).value_or(PeerId());
  on_open(std::move(question));
}

void ServedCall::Answer(RelayAnswer answer, OnWritten done) {
  on_gone_ = nullptr;
  if (ended_) {
    if (done) asio::post(host_.loop, [done = std::move(done)] { done(LegResult::kFailed); });
    return;
  }
  out_.set_answer(static_cast<uint32_t>(answer));
  if (answer == RelayAnswer::kFound) {
    on_written_ = std::move(done);
    StartWrite(&out_);
    return;
  }
  ended_ = true;
  // In one: the neighbour reads the answer and the end together, and nobody waits.
  StartWriteAndFinish(&out_, grpc::WriteOptions(), grpc::Status::OK);
}

void ServedCall::Write(std::string piece, OnWritten done) {
  if (ended_) return asio::post(host_.loop, [done = std::move(done)] { done(LegResult::kFailed); });
  on_written_ = std::move(done);
  out_.set_data(std::move(piece));
  StartWrite(&out_);
}

void ServedCall::End() { FinishOnce(grpc::Status::OK); }

void ServedCall::Abort() {
  on_gone_ = nullptr;
  on_piece_ = nullptr;
  on_written_ = nullptr;
  FinishOnce(grpc::Status(grpc::StatusCode::ABORTED, "cut"));
}

void ServedCall::FinishOnce(const grpc::Status& status) {
  if (!std::exchange(ended_, true)) Finish(status);
}

void ServedCall::OnCancel() {
  asio::post(host_.loop, [self = shared_from_this()] {
    if (const auto gone = std::exchange(self->on_gone_, nullptr)) gone();
    self->FinishOnce(grpc::Status::CANCELLED);
  });
}
void ServedCall::OnDone() { PostRelease(nullptr); }

void ServedCall::TakeWritten(LegResult result) {
  if (const auto done = std::exchange(on_written_, nullptr)) done(result);
}

void ServedCall::TakeRead(LegResult result) {
  if (on_open_) return TakeOpening(result);
  const bool ok = result == LegResult::kDone;
  std::string piece = ok ? TakeData(in_) : std::string();
  if (ok && piece.empty()) {
    host_.metrics.Refuse(RelayRefusal::kMalformed);
    FinishOnce(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not understood"));
  }
  if (const auto done = std::exchange(on_piece_, nullptr)) done(std::move(piece));
}

}  // namespace crowdsurf::dht
