// SocketDeadlines: ends what waits for a socket at an instant, in whatever it waits.
//
// Time-outs of reads and writes begin anew with every byte, so a peer that sends one now and then
// holds its caller for ever. Here one thread cuts a connection's socket when its time is over:
// what connects, shakes hands, sends or reads then fails at once. It cuts again ten times a second
// until the guard ends, since a connection may have been made anew meanwhile. Bound: a guard a
// request under way. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace crowdsurf::controller {

// A connection's present socket, for whoever must end it from another thread. It keeps a descriptor
// of its own, so that a number that is used again never means somebody else's socket.
class SocketLine {
 public:
  SocketLine() = default;
  ~SocketLine();
  SocketLine(const SocketLine&) = delete;
  SocketLine& operator=(const SocketLine&) = delete;

  void Opened(int descriptor);
  void Cut();

 private:
  std::mutex mutex_;
  int own_ = -1;
};

class SocketDeadlines {
 public:
  using Clock = std::chrono::steady_clock;
  class Guard;

  SocketDeadlines();
  ~SocketDeadlines();  // no guard may be left
  SocketDeadlines(const SocketDeadlines&) = delete;
  SocketDeadlines& operator=(const SocketDeadlines&) = delete;

 private:
  struct Entry {
    std::shared_ptr<SocketLine> line;
    bool over = false;
  };
  using Entries = std::multimap<Clock::time_point, std::shared_ptr<Entry>>;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;  // by the next cut
  bool stopping_ = false;
  std::thread thread_;
};

// From its construction to its end `line` is cut once `until` has come. Owner: one thread.
class SocketDeadlines::Guard {
 public:
  Guard(SocketDeadlines& deadlines, std::shared_ptr<SocketLine> line, Clock::time_point until);
  ~Guard() { End(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // No cut comes any more. Idempotent.
  void End();
  bool over() const;  // `until` has come

 private:
  SocketDeadlines& deadlines_;
  std::shared_ptr<Entry> entry_;
  bool ended_ = false;
};

}  // namespace crowdsurf::controller
