// RawClient: a TCP connection to a server on the loopback that a test drives byte by byte.
//
// Sends what no client library would. Blocking, with a patience after which a test fails and which
// none waits for. Owner: the test's thread.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace crowdsurf {

class RawClient {
 public:
  static constexpr int kPatience_ms = 30'000;

  // from: an address of the loopback, 127.0.0.0/8.
  explicit RawClient(int port, const char* from = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in own = Address(from, 0), there = Address("127.0.0.1", port);
    connected_ = ::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0 &&
                 ::connect(fd_, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  // False once the server has closed the connection.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // False when the server closed the connection; true after `ms` without that. Drops what comes.
  bool StaysOpenFor(int ms) {
    pollfd one{fd_, POLLIN, 0};
    if (::poll(&one, 1, ms) <= 0) return true;
    char bytes[4096];
    return ::recv(fd_, bytes, sizeof bytes, 0) > 0;
  }
  // What comes until `mark` is in it, or the server closes, or patience ends.
  std::string ReadUntil(std::string_view mark) {
    std::string text;
    while (mark.empty() || text.find(mark) == std::string::npos) {
      pollfd one{fd_, POLLIN, 0};
      char bytes[4096];
      if (::poll(&one, 1, kPatience_ms) <= 0) return text + " (patience is over)";
      const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
      if (got <= 0) return text;
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }
  std::string ReadToEnd() { return ReadUntil({}); }

 private:
  static sockaddr_in Address(const char* host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }

  int fd_;
  bool connected_ = false;
};

}  // namespace crowdsurf
