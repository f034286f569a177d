#include "worker/edge/link/link_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/edge/clock.h"
#include "worker/edge/link/link_connection.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kAcceptPause = Milliseconds(100);

bool FillAddress(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

}  // namespace

LinkListener::LinkListener(LinkListenerOptions options, Handler handler, Closed closed,
                           MetricRegistry& metrics)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      closed_(std::move(closed)),
      metrics_(metrics) {
  for (const char* reason :
       {"garbled", "too_long", "too_many", "slow", "upload_busy", "disk_full", "no_descriptors"}) {
    refused_[reason] = &metrics_.AddCounter("crowdsurf_link_requests_refused_total",
                                            "Requests on agent.sock refused before their handler.",
                                            {{"reason", reason}});
  }
}

StatusOr<std::unique_ptr<LinkListener>> LinkListener::Start(LinkListenerOptions options,
                                                            Handler handler, Closed closed,
                                                            MetricRegistry& metrics) {
  std::unique_ptr<LinkListener> self(
      new LinkListener(std::move(options), std::move(handler), std::move(closed), metrics));
  RETURN_IF_ERROR(self->Listen());
  self->thread_ = std::thread([raw = self.get()] { raw->Run(); });
  return self;
}

Status LinkListener::Listen() {
  const LinkFolder& folder = *options_.folder;
  const std::string path = folder.PathOf(options_.socket);
  sockaddr_un address;
  if (!FillAddress(path, address)) {  // as trainers connect to it
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a socket's path has at most 107 bytes; choose a shorter directory"));
  }
  // The path of /proc/self/fd is short, so it fits.
  CHECK(FillAddress(folder.Through(options_.socket), address));
  // A killed agent leaves its socket behind; one that answers is another agent's.
  if (folder.IsSocket(options_.socket) && HttpClient::Connect(address.sun_path).ok()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": another agent answers there"));
  }
  folder.Remove(options_.socket);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (wake_ < 0 || listener_ < 0 ||
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_, 16) != 0) {
    return absl::InternalError(absl::StrCat("listen on ", path, ": ", std::strerror(errno)));
  }
  return folder.OpenSocketToAll(options_.socket);
}

LinkListener::~LinkListener() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
  }
  if (listener_ >= 0) {
    ::close(listener_);
    options_.folder->Remove(options_.socket);
  }
  if (wake_ >= 0) ::close(wake_);
}

int64_t LinkListener::Deadline() const {
  return (SteadyNow() + options_.request_patience).nanoseconds();
}

void LinkListener::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

void LinkListener::Reply(ConnectionId connection, HttpReply reply) {
  {
    const std::lock_guard lock(mutex_);
    replies_.emplace_back(connection, std::move(reply));
  }
  Wake();
}

void LinkListener::TakeReplies() {
  uint64_t ignored;
  [[maybe_unused]] const ssize_t n = ::read(wake_, &ignored, sizeof ignored);
  std::vector<std::pair<ConnectionId, HttpReply>> replies;
  {
    const std::lock_guard lock(mutex_);
    replies.swap(replies_);
  }
  for (auto& [id, reply] : replies) {
    const auto it = connections_.find(id);
    // The connection has ended. Its number is not given out again.
    if (it == connections_.end() || !it->second->waiting) continue;
    it->second->waiting = false;
    Queue(*it->second, reply);
    if (!TakeRequests(id, *it->second)) Drop(id);
  }
}

void LinkListener::Run() {
  std::vector<pollfd> polled;
  std::vector<ConnectionId> ids;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    const int wait = Watch(polled, ids);
    ::poll(polled.data(), polled.size(), wait);
    // polled: the eventfd, the listener, then the connections in the order of ids.
    if (polled[0].revents != 0) TakeReplies();
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto it = connections_.find(ids[i]);
      // TakeReplies has dropped it.
      if (it == connections_.end()) continue;
      Connection& c = *it->second;
      const short got = polled[i + 2].revents;
      bool keep = true;
      if ((got & (POLLIN | POLLHUP | POLLERR)) != 0) keep = OnReadable(ids[i], c);
      if (keep && c.sending()) keep = OnWritable(c);
      if (keep && c.deadline_ns != 0 && SteadyNow().nanoseconds() >= c.deadline_ns) {
        // Also the end of who does not read its answer.
        keep = !c.sending() && Refuse(c, 408, "slow", "the request did not arrive in time");
      }
      if (!keep || (c.closing && !c.sending())) Drop(ids[i]);
    }
    if (polled[1].revents != 0) Accept();
  }
  connections_.clear();
}

int LinkListener::Watch(std::vector<pollfd>& polled, std::vector<ConnectionId>& ids) {
  const int64_t now = SteadyNow().nanoseconds();
  if (accept_at_ns_ != 0 && now >= accept_at_ns_) accept_at_ns_ = 0;
  // poll ignores a negative descriptor: nothing is accepted during a pause.
  polled.assign({{wake_, POLLIN, 0}, {accept_at_ns_ == 0 ? listener_ : -1, POLLIN, 0}});
  ids.clear();
  int64_t next = accept_at_ns_;
  for (const auto& [id, c] : connections_) {
    const short events =
        static_cast<short>((c->closing ? 0 : POLLIN) | (c->sending() ? POLLOUT : 0));
    polled.push_back({c->fd, events, 0});
    ids.push_back(id);
    if (c->deadline_ns != 0 && (next == 0 || c->deadline_ns < next)) next = c->deadline_ns;
  }
  // Rounded up, so that the deadline has passed when poll returns.
  return next == 0 ? -1 : static_cast<int>(std::max<int64_t>(0, next - now) / 1'000'000 + 1);
}

void LinkListener::Accept() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // The connection waits in the kernel, and poll would say so again at once.
    refused_["no_descriptors"]->Add();
    accept_at_ns_ = (SteadyNow() + kAcceptPause).nanoseconds();
    return;
  }
  if (connections_.size() >= options_.max_connections) {
    refused_["too_many"]->Add();
    ::close(fd);
    return;
  }
  // No deadline yet: a connection is a trainer's sign of life and may be silent.
  auto connection = std::make_unique<Connection>();
  connection->fd = fd;
  connections_.emplace(next_id_++, std::move(connection));
}

void LinkListener::Drop(ConnectionId id) {
  const auto it = connections_.find(id);
  if (it->second->upload) upload_busy_ = false;
  connections_.erase(it);
  closed_(id);
}

}  // namespace crowdsurf::worker
