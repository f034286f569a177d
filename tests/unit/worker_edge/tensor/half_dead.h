// HalfDead: a port in front of a server, as of a process that is being killed.
//
// The first connection is passed on to the server, both ways. After Die it is closed, and so is
// every later one as soon as it is accepted. Owner: one test; a thread of its own.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/check.h"

namespace crowdsurf::worker {

class HalfDead {
 public:
  // server: host:port of this machine.
  explicit HalfDead(const std::string& server) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    CHECK_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    CHECK_EQ(listen(listener_, 16), 0);
    CHECK_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    CHECK_EQ(pipe(wake_), 0);
    const int port = std::stoi(server.substr(server.rfind(':') + 1));
    thread_ = std::thread([this, port] { Run(static_cast<uint16_t>(port)); });
  }
  HalfDead(const HalfDead&) = delete;
  ~HalfDead() {
    Die();
    shutdown(listener_, SHUT_RDWR);  // ends accept
    thread_.join();
    for (const int fd : {listener_, wake_[0], wake_[1]}) close(fd);
  }
  const std::string& endpoint() const { return endpoint_; }
  void Die() { CHECK_EQ(write(wake_[1], "x", 1), 1); }
  int answered() const { return answered_; }  // connections that were closed at once

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void Run(uint16_t port) {
    const int client = accept(listener_, nullptr, nullptr);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(port);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      PassOn(client, server);
    close(client);
    close(server);
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) ++answered_;
  }
  // Until Die, or an end of either.
  void PassOn(int client, int server) {
    char bytes[4096];
    for (;;) {
      pollfd ready[] = {{wake_[0], POLLIN, 0}, {client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(ready, 3, -1) < 0 || ready[0].revents != 0) return;
      for (const auto& [from, to] : {std::pair(1, server), std::pair(2, client)}) {
        if (ready[from].revents == 0) continue;
        const ssize_t n = read(ready[from].fd, bytes, sizeof bytes);
        if (n <= 0 || send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) return;
      }
    }
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  int wake_[2];
  std::string endpoint_;
  std::atomic<int> answered_{0};
  std::thread thread_;
};

}  // namespace crowdsurf::worker
