// LoopbackServer: serves an httplib server on 127.0.0.1, at a port that the kernel chose.
//
// From its construction, when requests are answered, to its end. The server is the test's, with its
// handlers set, and outlives it; they run on httplib's threads. Owner: the test's thread.
#pragma once

#include <httplib.h>

#include <string>
#include <thread>

namespace crowdsurf {

class LoopbackServer {
 public:
  explicit LoopbackServer(httplib::Server& server)
      : server_(server),
        port_(server.bind_to_any_port("127.0.0.1")),
        thread_([this] { server_.listen_after_bind(); }) {
    while (!server_.is_running()) std::this_thread::yield();
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() {
    server_.stop();
    thread_.join();
  }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  httplib::Server& server_;
  const int port_;
  std::thread thread_;
};

}  // namespace crowdsurf
