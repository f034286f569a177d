// RelayCall: the two sides of PeerRelay.Carry, as legs of a carried connection.
//
// AskedCall asks a neighbour, ServedCall was opened by one. gRPC's callback threads only post to
// the relay's thread, where everything else happens; a call keeps itself alive until gRPC has let
// go of it and that thread has heard so. What is not as peer.proto says ends the call and is
// counted by the owner. Private to edge/relay*. Bound: one message under way in each direction.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <utility>

#include "coordinator-free-dht/core/relay/relay_searches.h"
#include "coordinator-free-dht/edge/peer.grpc.pb.h"
#include "coordinator-free-dht/edge/relay_leg.h"

namespace crowdsurf::dht {

// What calls need of their owner; outlives them.
struct RelayCallHost {
  RelayCallHost(asio::io_context& thread, RelayMetrics& counts, std::function<void()> released)
      : loop(thread), metrics(counts), on_released(std::move(released)) {}
  asio::io_context& loop;
  RelayMetrics& metrics;
  std::function<void()> on_released;  // a call is gone for good; on the relay's thread
};

// What both sides share: one read and one write, and the way from gRPC's threads to the relay's.
// Call has TakeRead and TakeWritten, which run on the relay's thread.
template <class Call, class Reactor>
class RelayCall : public RelayLeg, public Reactor, public std::enable_shared_from_this<Call> {
 public:
  void Read(OnPiece done) override {
    if (ended_) return asio::post(host_.loop, [done = std::move(done)] { done({}); });
    on_piece_ = std::move(done);
    this->StartRead(&in_);
  }

 protected:
  explicit RelayCall(RelayCallHost& host) : host_(host) {}

  void KeepAlive() { self_ = this->shared_from_this(); }
  // gRPC has let go. `before` runs first.
  void PostRelease(void (Call::*before)()) {
    asio::post(host_.loop, [&host = host_, before, self = this->shared_from_this()]() mutable {
      if (before != nullptr) (self.get()->*before)();
      self->self_ = nullptr;
      self = nullptr;  // its channel may go with it: not on a thread of gRPC's
      host.on_released();
    });
  }
  void OnReadDone(bool ok) override {
    Post(&Call::TakeRead, ok ? LegResult::kDone : LegResult::kFailed);
  }
  void OnWriteDone(bool ok) override {
    Post(&Call::TakeWritten, ok ? LegResult::kDone : LegResult::kFailed);
  }

  RelayCallHost& host_;
  peer::RelayPiece in_, out_;
  OnPiece on_piece_;
  OnWritten on_written_;
  bool ended_ = false;

 private:
  void Post(void (Call::*take)(LegResult), LegResult result) {
    asio::post(host_.loop,
               [self = this->shared_from_this(), take, result] { (self.get()->*take)(result); });
  }

  std::shared_ptr<Call> self_;
};

class AskedCall
    : public RelayCall<AskedCall, grpc::ClientBidiReactor<peer::RelayPiece, peer::RelayPiece>> {
 public:
  using OnAnswer = std::function<void(RelayAnswer)>;  // once; kUnreachable also when the call ends
  AskedCall(RelayCallHost& host, std::shared_ptr<grpc::Channel> channel);

  void Ask(const RelayQuestion& question, OnAnswer done);
  void Write(std::string piece, OnWritten done) override;
  void End() override;
  void Abort() override;

 private:
  friend class RelayCall;
  void OnDone(const grpc::Status& status) override;
  void TakeRead(LegResult result);
  void TakeWritten(LegResult result);
  void LetGo();

  const std::unique_ptr<peer::PeerRelay::Stub> stub_;
  grpc::ClientContext context_;
  OnAnswer on_answer_;
  bool writing_ = false, write_waits_ = false;
  std::string waiting_;  // piece to write when the opening is out
};

class ServedCall
    : public RelayCall<ServedCall, grpc::ServerBidiReactor<peer::RelayPiece, peer::RelayPiece>> {
 public:
  // `share`: its bound's, given back when the call goes.
  ServedCall(RelayCallHost& host, std::shared_ptr<void> share)
      : RelayCall(host), share_(std::move(share)), opening_(host.loop) {}

  // Waits for the opening piece, kRelayGreeting at most. on_gone: the asker has gone, before it was
  // answered.
  void Serve(std::function<void(RelayQuestion)> on_open, std::function<void()> on_gone);
  // kFound: `done` is called when it is on its way, or the asker has gone; else ends the call.
  void Answer(RelayAnswer answer, OnWritten done);
  void Write(std::string piece, OnWritten done) override;
  void End() override;
  void Abort() override;

 private:
  friend class RelayCall;
  void OnCancel() override;
  void OnDone() override;
  void TakeRead(LegResult result);
  void TakeWritten(LegResult result);
  void TakeOpening(LegResult result);
  void OnOpeningLate();
  void FinishOnce(const grpc::Status& status);

  const std::shared_ptr<void> share_;
  asio::steady_timer opening_;

  std::function<void(RelayQuestion)> on_open_;
  std::function<void()> on_gone_;
};

}  // namespace crowdsurf::dht
