#include "operator/edge/kube/socket_deadlines.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace crowdsurf::controller {
namespace {

constexpr std::chrono::milliseconds kCutAgain{100};

}  // namespace

SocketLine::~SocketLine() {
  if (own_ >= 0) close(own_);
}

void SocketLine::Opened(int descriptor) {
  const std::lock_guard lock(mutex_);
  if (own_ >= 0) close(own_);
  // A duplicate: the library may close its own at any moment, and the number may be reused.
  own_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);  // none left: the read's own time-out remains
}

void SocketLine::Cut() {
  const std::lock_guard lock(mutex_);
  if (own_ >= 0) shutdown(own_, SHUT_RDWR);
}

SocketDeadlines::SocketDeadlines() : thread_([this] { Run(); }) {}

SocketDeadlines::~SocketDeadlines() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SocketDeadlines::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto now = Clock::now();
    const auto first = entries_.begin();
    if (first->first > now) {
      changed_.wait_until(lock, Clock::time_point(first->first));
      continue;
    }
    auto due = entries_.extract(first);
    due.mapped()->over = true;
    due.mapped()->line->Cut();
    // A request that was connecting gets its socket after the cut, so it is cut again.
    due.key() = now + kCutAgain;
    entries_.insert(std::move(due));
  }
}

SocketDeadlines::Guard::Guard(SocketDeadlines& deadlines, std::shared_ptr<SocketLine> line,
                              Clock::time_point until)
    : deadlines_(deadlines), entry_(std::make_shared<Entry>()) {
  entry_->line = std::move(line);
  bool first;
  {
    const std::lock_guard lock(deadlines_.mutex_);
    const auto own = deadlines_.entries_.emplace(until, entry_);
    first = own == deadlines_.entries_.begin();
  }
  // Only an end before all others shortens the thread's sleep.
  if (first) deadlines_.changed_.notify_all();
}

void SocketDeadlines::Guard::End() {
  if (std::exchange(ended_, true)) return;
  const std::lock_guard lock(deadlines_.mutex_);
  std::erase_if(deadlines_.entries_, [&](const auto& one) { return one.second == entry_; });
}

bool SocketDeadlines::Guard::over() const {
  const std::lock_guard lock(deadlines_.mutex_);
  return entry_->over;
}

}  // namespace crowdsurf::controller
