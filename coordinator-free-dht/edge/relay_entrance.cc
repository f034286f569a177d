#include "coordinator-free-dht/edge/relay_entrance.h"

#include <absl/strings/str_cat.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <chrono>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/endpoint.h"
#include "coordinator-free-dht/edge/relay.h"

namespace crowdsurf::dht {
namespace {

constexpr size_t kMaxGreeting = 4096;  // bytes
constexpr char kEndOfGreeting[] = "\r\n\r\n";

std::string MakeSecret() {
  std::array<uint8_t, 32> bytes{};
  CHECK_EQ(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())), 1);
  return ToHex(bytes);
}

// Empty: there is no such line.
std::string_view LineAfter(std::string_view text, std::string_view prefix) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\r\n", at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(prefix)) return line.substr(prefix.size());
    at = end + 2;
  }
  return {};
}

bool Same(std::string_view a, std::string_view b) {
  // In constant time: other users of the machine can measure a loopback port.
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

struct RelayEntrance::Guest {
  Guest(asio::ip::tcp::socket taken, asio::io_context& loop)
      : socket(std::move(taken)), deadline(loop) {}
  asio::ip::tcp::socket socket;
  asio::steady_timer deadline;
  std::string text;
};

RelayEntrance::RelayEntrance(asio::io_context& loop, RelayMetrics& metrics, OnWanted on_wanted)
    : loop_(loop),
      metrics_(metrics),
      on_wanted_(std::move(on_wanted)),
      acceptor_(loop),
      pause_(loop),
      secret_(MakeSecret()) {}

Status RelayEntrance::Open() {
  std::error_code error;
  // A port of the system's choice, on the loopback: only this machine can ask, and only with the
  // secret.
  const asio::ip::tcp::endpoint loopback(asio::ip::address_v4::loopback(), 0);
  acceptor_.open(loopback.protocol(), error);
  if (!error) acceptor_.bind(loopback, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("the relay's loopback port: ", error.message()));
  }
  address_ = absl::StrCat("127.0.0.1:", acceptor_.local_endpoint().port());
  AcceptNext();
  return absl::OkStatus();
}

void RelayEntrance::Close() {
  std::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

void RelayEntrance::AcceptNext() {
  acceptor_.async_accept([this](std::error_code error, asio::ip::tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      Greet(std::move(socket));
      return AcceptNext();
    }
    pause_.expires_after(std::chrono::milliseconds(100));  // no descriptors left, say
    pause_.async_wait([this](std::error_code) {
      if (acceptor_.is_open()) AcceptNext();
    });
  });
}

void RelayEntrance::Greet(asio::ip::tcp::socket socket) {
  // Any process of the machine can connect; without the secret it holds one of these places for 5
  // s.
  if (waiting_ >= kRelayWaiting) return metrics_.Refuse(RelayRefusal::kWaiting);
  ++waiting_;
  const auto guest = std::make_shared<Guest>(std::move(socket), loop_);
  guest->deadline.expires_after(std::chrono::nanoseconds(kRelayGreeting.nanoseconds()));
  guest->deadline.async_wait([guest](std::error_code error) {
    std::error_code ignored;
    if (!error) guest->socket.close(ignored);
  });
  asio::async_read_until(guest->socket, asio::dynamic_buffer(guest->text, kMaxGreeting),
                         kEndOfGreeting, [this, guest](std::error_code error, size_t bytes) {
                           guest->deadline.cancel();
                           --waiting_;
                           if (!error) return OnGreeting(guest, bytes);
                           metrics_.Refuse(RelayRefusal::kMalformed);
                         });
}

void RelayEntrance::OnGreeting(const std::shared_ptr<Guest>& guest, size_t bytes) {
  const std::string_view text = guest->text;
  const std::string_view wanted = LineAfter(text, "CONNECT ");
  const std::string endpoint(wanted.substr(0, wanted.find(' ')));
  std::string_view shown = LineAfter(text, "Proxy-Authorization:");
  shown.remove_prefix(std::min(shown.find_first_not_of(' '), shown.size()));
  if (!Same(shown, secret_)) {
    metrics_.Refuse(RelayRefusal::kSecret);
    return Refuse(guest, "407 Proxy Authentication Required");
  }
  // What it says before it has an answer would be for the end, and is nobody's who speaks TLS.
  if (!text.starts_with("CONNECT ") || !ParseEndpoint(endpoint) || bytes != text.size()) {
    metrics_.Refuse(RelayRefusal::kMalformed);
    return Refuse(guest, "400 Bad Request");
  }
  on_wanted_(endpoint, [this, guest](RelayAnswer answer,
                                     std::function<void(std::shared_ptr<RelayLeg>)> ready) {
    // gRPC gives its caller the code in words; SaysDead looks for this one.
    if (answer == RelayAnswer::kDead) return Refuse(guest, "410 Gone");
    if (answer != RelayAnswer::kFound) return Refuse(guest, "504 Gateway Timeout");
    guest->text = "HTTP/1.1 200 Connection established\r\n\r\n";
    asio::async_write(
        guest->socket, asio::buffer(guest->text),
        [guest, ready = std::move(ready)](std::error_code error, size_t) {
          // The dial was given up meanwhile, and the way that was found is cut.
          if (error) return ready(nullptr);
          ready(std::make_shared<SocketLeg>(SocketLeg::Socket(std::move(guest->socket))));
        });
  });
}

void RelayEntrance::Refuse(const std::shared_ptr<Guest>& guest, const char* status) {
  guest->text = absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: 0\r\n\r\n");
  asio::async_write(guest->socket, asio::buffer(guest->text), [guest](std::error_code, size_t) {});
}

}  // namespace crowdsurf::dht
