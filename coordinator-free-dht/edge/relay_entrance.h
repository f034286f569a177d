// RelayEntrance: the loopback port where this process's own gRPC asks for carried connections.
//
// gRPC can dial through an HTTP proxy: it says "CONNECT host:port HTTP/1.1" and waits for 200. Only
// who brings the secret, which this process alone knows, gets further: everybody on the machine can
// dial the port. Refusals are 400 (not understood), 407 (no secret), 410 (the process at that
// address is dead) and 504 (nobody reached it). Private to edge/relay*. On the relay's thread.
// Bounds: kRelayWaiting connections that have not said CONNECT, kRelayGreeting for that, 4 KiB.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator-free-dht/core/relay/relay_paths.h"
#include "coordinator-free-dht/edge/relay_leg.h"

namespace crowdsurf::dht {

// Tells the one who asked what became of it. kFound: `ready` gets its leg, or nullptr when it has
// gone meanwhile. Called once.
using RelayReply =
    std::function<void(RelayAnswer answer, std::function<void(std::shared_ptr<RelayLeg>)> ready)>;

class RelayEntrance {
 public:
  using OnWanted = std::function<void(const std::string& endpoint, RelayReply reply)>;

  RelayEntrance(asio::io_context& loop, RelayMetrics& metrics, OnWanted on_wanted);

  Status Open();
  void Close();
  const std::string& address() const { return address_; }
  const std::string& secret() const { return secret_; }

 private:
  struct Guest;
  void AcceptNext();
  void Greet(asio::ip::tcp::socket socket);
  void OnGreeting(const std::shared_ptr<Guest>& guest, size_t bytes);
  void Refuse(const std::shared_ptr<Guest>& guest, const char* status);

  asio::io_context& loop_;
  RelayMetrics& metrics_;
  const OnWanted on_wanted_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::string address_, secret_;
  size_t waiting_ = 0;
};

}  // namespace crowdsurf::dht
