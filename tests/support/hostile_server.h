// HostileServer: an HTTP server on the loopback that never comes to an end, for tests of clients.
//
// It takes connections, reads what comes once, and goes on as it was told until the client closes:
// drips a byte every few milliseconds, or sends as much as is taken. Threads of its own; it ends
// with all of them. `sent` is what the client or its kernel has taken.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace crowdsurf {

enum class Hostile {
  kSilent,         // takes the request and says nothing
  kDripsHeader,    // one field that grows by a byte
  kDripsBody,      // of a length that it promised
  kEndlessLine,    // one field without end
  kEndlessFields,  // fields without end
  kEndlessBody,    // chunks without end
  kEndlessTail,    // a body that ends with the connection, which does not end
  kNoHttp          // bytes that are none
};
inline constexpr Hostile kAllHostile[] = {
    Hostile::kSilent,        Hostile::kDripsHeader, Hostile::kDripsBody,   Hostile::kEndlessLine,
    Hostile::kEndlessFields, Hostile::kEndlessBody, Hostile::kEndlessTail, Hostile::kNoHttp};

class HostileServer {
 public:
  explicit HostileServer(Hostile how) : how_(how), listener_(Listen()) {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    (void)::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size);
    port_ = ntohs(own.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~HostileServer() {
    stopping_ = true;
    (void)::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& one : served_) one.join();
    (void)::close(listener_);
  }
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int taken() const { return taken_; }  // connections
  int open() const { return open_; }    // that the client has not closed
  uint64_t sent() const { return sent_; }

 private:
  static int Listen() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own);
    (void)::listen(fd, 128);
    return fd;
  }
  void Accept() {
    for (;;) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      ++taken_;
      ++open_;
      served_.emplace_back([this, fd] {
        Serve(fd);
        (void)::close(fd);
        --open_;
      });
    }
  }
  bool Send(int fd, std::string_view bytes) {
    while (!bytes.empty() && !stopping_) {
      pollfd ready{fd, POLLOUT, 0};
      if (::poll(&ready, 1, kStep_ms) == 0) continue;
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) return false;
      sent_ += static_cast<uint64_t>(sent);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return !stopping_;
  }
  // False when the client has closed its end.
  bool Waits(int fd) const {
    pollfd news{fd, POLLIN, 0};
    char byte;
    return ::poll(&news, 1, kStep_ms) <= 0 || ::recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
  }
  void Serve(int fd) {
    char request[4096];
    pollfd news{fd, POLLIN, 0};
    while (!stopping_ && ::poll(&news, 1, kStep_ms) == 0) {
    }
    if (stopping_ || ::recv(fd, request, sizeof request, 0) <= 0) return;
    const std::string ok = "HTTP/1.1 200 OK\r\n", much(65'536, 'a');
    switch (how_) {
      case Hostile::kSilent:
        break;
      case Hostile::kDripsHeader:
        return Drip(fd, ok + "X: ");
      case Hostile::kDripsBody:
        return Drip(fd, ok + "Content-Length: 60000\r\n\r\n");
      case Hostile::kEndlessLine:
        return Pour(fd, ok + "X: ", much);
      case Hostile::kEndlessFields:
        return Pour(fd, ok, "X: a\r\n");
      case Hostile::kEndlessBody:
        return Pour(fd, ok + "Transfer-Encoding: chunked\r\n\r\n", "10000\r\n" + much + "\r\n");
      case Hostile::kEndlessTail:
        return Pour(fd, ok + "\r\n", much);
      case Hostile::kNoHttp:
        (void)Send(fd, "SSH-2.0-nobody\r\n\r\n");
        break;
    }
    while (!stopping_ && Waits(fd)) {
    }
  }
  void Drip(int fd, const std::string& head) {
    if (!Send(fd, head)) return;
    while (!stopping_ && Waits(fd) && Send(fd, " ")) {
    }
  }
  void Pour(int fd, const std::string& head, const std::string& more) {
    if (!Send(fd, head)) return;
    while (Send(fd, more)) {
    }
  }

  static constexpr int kStep_ms = 20;  // between two bytes, and between two looks at the end
  const Hostile how_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> taken_{0}, open_{0};
  std::atomic<uint64_t> sent_{0};
  std::vector<std::thread> served_;  // of the acceptor's thread, until that has ended
  std::thread acceptor_;
};

}  // namespace crowdsurf
