// The gRPC reactors of a stream: a client's and a server's. They only call TransportCore.
#include <utility>

#include "coordinator-free-dht/edge/transport_core.h"

namespace crowdsurf::dht {
namespace {

class DialedStream : public Stream, public grpc::ClientBidiReactor<peer::Envelope, peer::Envelope> {
 public:
  DialedStream(std::shared_ptr<TransportCore> core, std::shared_ptr<grpc::Channel> channel,
               const Contact& to)
      : core_(std::move(core)), stub_(peer::PeerExchange::NewStub(std::move(channel))) {
    outgoing = true;
    peer = to;
  }

  // With the core's mutex held, like all that starts operations.
  void Begin(std::shared_ptr<DialedStream> self, const peer::Envelope& hello) {
    self_ = std::move(self);
    current = hello;
    writing = true;
    stub_->async()->Exchange(&context_, this);
    AddHold();  // writes are started from outside of reactions too
    StartWrite(&current);
    StartRead(&incoming_);
    StartCall();
  }

  void StartWriting() override { StartWrite(&current); }
  void StartClosing() override {
    writing = true;
    StartWritesDone();
  }
  void Abort() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok && core_->OnRead(self_, incoming_, AuthContextOnce().get())) {
      const std::lock_guard lock(core_->mutex());
      if (!closed) {
        StartRead(&incoming_);
        return;
      }
    }
    const std::lock_guard lock(core_->mutex());
    // It said something that ends the stream; without the call's end it would go on writing.
    if (ok) context_.TryCancel();
    closed = true;
    if (!released_) {
      released_ = true;
      RemoveHold();
    }
  }
  void OnWriteDone(bool ok) override {
    core_->OnWritten(self_, ok ? WriteResult::kWritten : WriteResult::kFailed);
  }
  void OnWritesDoneDone(bool) override {}
  void OnDone(const grpc::Status& status) override {
    // Not a member any more: the core may hand us to another thread, which destroys us at once.
    const std::shared_ptr<TransportCore> core = core_;
    core->OnDone(std::move(self_), status.ok() ? StreamEnd::kOrderly : StreamEnd::kCut,
                 status.error_message());
  }

 private:
  std::shared_ptr<const grpc::AuthContext> AuthContextOnce() {
    // Asked for only once, with the first envelope: it is expensive.
    return auth_ ? auth_ : (auth_ = context_.auth_context());
  }

  const std::shared_ptr<TransportCore> core_;
  const std::unique_ptr<peer::PeerExchange::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<const grpc::AuthContext> auth_;
  peer::Envelope incoming_;
  std::shared_ptr<DialedStream> self_;
  bool released_ = false;
};

class AcceptedStream : public Stream,
                       public grpc::ServerBidiReactor<peer::Envelope, peer::Envelope> {
 public:
  AcceptedStream(std::shared_ptr<TransportCore> core, grpc::CallbackServerContext* context)
      : core_(std::move(core)), context_(context) {}

  void Begin(std::shared_ptr<AcceptedStream> self) {
    self_ = std::move(self);
    const bool accepted = core_->OnAccept(self_, *context_);
    const std::lock_guard lock(core_->mutex());
    if (accepted && !closed) {
      StartRead(&incoming_);
    } else if (!closed) {
      closed = true;
      Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many streams"));
    }
  }

  void StartWriting() override { StartWrite(&current); }
  void StartClosing() override { Abort(); }
  void Abort() override {
    if (closed) return;
    closed = true;
    Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "closing"));
  }

  void OnReadDone(bool ok) override {
    const bool on = ok && core_->OnRead(self_, incoming_, nullptr);
    const std::lock_guard lock(core_->mutex());
    if (closed) return;
    if (on) {
      StartRead(&incoming_);
      return;
    }
    closed = true;
    // Nothing more to read: the peer closed its side in good order, or is gone (then nobody sees
    // this status), or said something that ends the stream.
    Finish(ok ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not understood")
              : grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    core_->OnWritten(self_, ok ? WriteResult::kWritten : WriteResult::kFailed);
  }
  void OnDone() override {
    const std::shared_ptr<TransportCore> core = core_;
    const bool cut = context_->IsCancelled();
    core->OnDone(std::move(self_), cut ? StreamEnd::kCut : StreamEnd::kOrderly, "");
  }

 private:
  const std::shared_ptr<TransportCore> core_;
  grpc::CallbackServerContext* const context_;
  peer::Envelope incoming_;
  std::shared_ptr<AcceptedStream> self_;
};

// Ends a call that came while the transport was going away.
class RefusedStream : public grpc::ServerBidiReactor<peer::Envelope, peer::Envelope> {
 public:
  RefusedStream() { Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping")); }
  void OnDone() override { delete this; }
};

class ExchangeService : public peer::PeerExchange::CallbackService {
 public:
  explicit ExchangeService(std::weak_ptr<TransportCore> core) : core_(std::move(core)) {}

  grpc::ServerBidiReactor<peer::Envelope, peer::Envelope>* Exchange(
      grpc::CallbackServerContext* context) override {
    auto core = core_.lock();
    // gRPC may bring one last call while the server shuts down.
    if (core == nullptr) return new RefusedStream;
    const auto stream = std::make_shared<AcceptedStream>(std::move(core), context);
    stream->Begin(stream);
    return stream.get();
  }

 private:
  const std::weak_ptr<TransportCore> core_;
};

}  // namespace

StreamPtr DialStream(std::shared_ptr<TransportCore> core, std::shared_ptr<grpc::Channel> channel,
                     const Contact& to, const peer::Envelope& hello) {
  const auto stream = std::make_shared<DialedStream>(std::move(core), std::move(channel), to);
  stream->Begin(stream, hello);
  return stream;
}

std::unique_ptr<grpc::Service> MakeExchangeService(std::weak_ptr<TransportCore> core) {
  return std::make_unique<ExchangeService>(std::move(core));
}

}  // namespace crowdsurf::dht
