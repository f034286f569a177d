// Listening of TensorTransport: connections go to the I/O thread that has the fewest.

#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_io_thread.h"

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Status TensorTransport::Impl::Listen() {
  std::error_code error;
  const auto address = asio::ip::make_address(options_.listen, error);
  const std::string wanted = absl::StrCat(options_.listen, ":", options_.port);
  if (error) return absl::InvalidArgumentError(absl::StrCat(wanted, ": not an address"));
  const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
  acceptor_.open(endpoint.protocol(), error);
  // An agent that is started again finds its port held by connections in TIME_WAIT.
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return absl::UnavailableError(absl::StrCat(wanted, ": ", error.message()));
  const std::string host = options_.advertise.empty() ? options_.listen : options_.advertise;
  const bool v6 = host.find(':') != std::string::npos;
  self_.job = options_.job;
  self_.id = identity_.id();
  self_.boot = identity_.boot();
  self_.listen =
      absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", acceptor_.local_endpoint().port());
  return absl::OkStatus();
}

void TensorTransport::Impl::AcceptNext() {
  size_t next = 0;
  {
    const std::lock_guard lock(mutex_);
    next = loads_.Place();  // the connection that is awaited
  }
  IoThread& thread = *threads_[next];
  acceptor_.async_accept(
      thread.io(), [this, &thread, next](std::error_code error, asio::ip::tcp::socket socket) {
        if (error == asio::error::operation_aborted || stopped_) return;
        if (!error) {
          thread.Post([&thread, accepted = std::move(socket)]() mutable {
            thread.OnAccepted(std::move(accepted));
          });
          return AcceptNext();
        }
        Leave(next);
        metrics_.accept_failures.Add();
        AcceptAfterPause();
      });
}

// Without a descriptor the next try would fail at once, too, and the thread would do nothing else.
void TensorTransport::Impl::AcceptAfterPause() {
  accept_pause_.expires_after(kAcceptPause);
  accept_pause_.async_wait([this](std::error_code) {
    if (!stopped_) AcceptNext();
  });
}

}  // namespace crowdsurf::worker
