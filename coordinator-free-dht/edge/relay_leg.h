// RelayLeg: one side of a carried connection, and RelayPipe, which joins two of them.
//
// A leg is a socket (the end, or the transport at the entrance) or a gRPC call to or from a
// neighbour (edge/relay_call.h). At most one Read and one Write are under way on a leg. The pipe
// reads from one side only when the other has taken the piece before. That is its flow control and
// its bound. Private to edge/relay*. Everything on the relay's thread; callbacks are
// called from its loop, never from inside Read or Write, and not after Abort.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "coordinator-free-dht/edge/asio.h"

namespace crowdsurf::dht {

// What came of one write, or of one of gRPC's operations.
enum class LegResult : uint8_t { kDone, kFailed };

class RelayLeg {
 public:
  using OnPiece = std::function<void(std::string piece)>;  // empty: nothing more will come
  using OnWritten = std::function<void(LegResult)>;

  virtual ~RelayLeg() = default;
  virtual void Read(OnPiece done) = 0;
  virtual void Write(std::string piece, OnWritten done) = 0;  // pre: not empty
  virtual void End() = 0;    // nothing more will be written; what was written still arrives
  virtual void Abort() = 0;  // both directions, now
};

// The leg of a socket of any kind.
class SocketLeg : public RelayLeg, public std::enable_shared_from_this<SocketLeg> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  explicit SocketLeg(Socket socket) : socket_(std::move(socket)) {}

  void Read(OnPiece done) override;
  void Write(std::string piece, OnWritten done) override;
  void End() override;
  void Abort() override;

 private:
  Socket socket_;
  std::string in_, out_;
};

// Carries both ways until both sides have ended, one fails, or one ended long ago.
class RelayPipe : public std::enable_shared_from_this<RelayPipe> {
 public:
  struct Events {
    std::function<void()> on_answer;  // the right side has said something; once
    std::function<void()> on_end;     // last, once
  };
  RelayPipe(asio::io_context& loop, std::shared_ptr<RelayLeg> left, std::shared_ptr<RelayLeg> right,
            Counter& bytes, Events events);
  void Start();
  void Cut();  // aborts both; on_end is not called

 private:
  struct Way {
    Way(RelayLeg& reads, RelayLeg& writes) : from(reads), to(writes) {}
    RelayLeg& from;
    RelayLeg& to;
    bool over = false;
  };
  void Carry(Way& way);
  void OnOver(Way& way);
  void Fail();

  const std::shared_ptr<RelayLeg> left_, right_;
  Way there_, back_;
  Counter& bytes_;
  asio::steady_timer linger_;
  std::function<void()> on_answer_;
  std::function<void()> on_end_;  // empty: it was called, or is not wanted any more
};

}  // namespace crowdsurf::dht
