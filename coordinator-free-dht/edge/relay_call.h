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

#include "coordinator-free-dht/core/relay_searches.h"
#include "coordinator-free-dht/edge/peer.grpc.pb.h"
#include "coordinator-free-dht/edge/relay_leg.h"

namespace crowdsurf::dht {

// What calls need of their owner; outlives them.
struct RelayCallHost {
  RelayCallHost(asio::io_context& thread, Counter& not_understood, std::function<void()> released)
      : loop(thread), malformed(not_understood), on_released(std::move(released)) {}
  asio::io_context& loop;
  Counter& malformed;
  std::function<void()> on_released;  // a call is gone for good; on the relay's thread
};

class AskedCall : public RelayLeg,
                  public grpc::ClientBidiReactor<peer::RelayPiece, peer::RelayPiece>,
                  public std::enable_shared_from_this<AskedCall> {
 public:
  using OnAnswer = std::function<void(RelayAnswer)>;  // once; kUnreachable also when the call ends
  AskedCall(RelayCallHost& host, std::shared_ptr<grpc::Channel> channel);

  void Ask(const RelayQuestion& question, OnAnswer done);
  void Read(OnPiece done) override;
  void Write(std::string piece, OnWritten done) override;
  void End() override;
  void Abort() override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void TakeRead(bool ok);
  void TakeWritten(bool ok);
  void LetGo();

  RelayCallHost& host_;
  const std::unique_ptr<peer::PeerRelay::Stub> stub_;
  grpc::ClientContext context_;
  peer::RelayPiece in_, out_;
  OnAnswer on_answer_;
  OnPiece on_piece_;
  OnWritten on_written_;
  bool writing_ = false, write_waits_ = false, ended_ = false;
  std::string waiting_;  // piece to write when the opening is out
  std::shared_ptr<AskedCall> self_;
};

class ServedCall : public RelayLeg,
                   public grpc::ServerBidiReactor<peer::RelayPiece, peer::RelayPiece>,
                   public std::enable_shared_from_this<ServedCall> {
 public:
  explicit ServedCall(RelayCallHost& host) : host_(host) {}

  // Waits for the opening piece. on_gone: the asker has gone, before it was answered.
  void Serve(std::function<void(RelayQuestion)> on_open, std::function<void()> on_gone);
  // kFound: `done` is called when it is on its way (false: the asker has gone); else ends the call.
  void Answer(RelayAnswer answer, OnWritten done);
  void Read(OnPiece done) override;
  void Write(std::string piece, OnWritten done) override;
  void End() override;
  void Abort() override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void TakeRead(bool ok);
  void TakeOpening(bool ok);
  void FinishOnce(const grpc::Status& status);

  RelayCallHost& host_;
  peer::RelayPiece in_, out_;
  std::function<void(RelayQuestion)> on_open_;
  std::function<void()> on_gone_;
  OnPiece on_piece_;
  OnWritten on_written_;
  bool finished_ = false;
  std::shared_ptr<ServedCall> self_;
};

}  // namespace crowdsurf::dht
