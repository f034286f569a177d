#include "base/edge/connection_gate.h"

#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/edge/clock.h"

namespace crowdsurf {
namespace {

// What epoll reports beside the connections.
constexpr uint64_t kListener = 0, kWake = 1, kFirstConnection = 2;
constexpr int kBacklog = 4096;                     // the kernel has a bound of its own
constexpr int kAtOnce = 64;                        // accepts, then others have their turn
constexpr Duration kGatePause = Milliseconds(50);  // while no descriptor is free
constexpr Duration kLookAgain = Milliseconds(50);  // for ends, where a bound is reached

struct Address {
  sockaddr_storage of{};
  socklen_t size = 0;
};

StatusOr<Address> ParseAddress(const std::string& host, int port) {
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.of);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.of);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    out.size = sizeof *v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    out.size = sizeof *v6;
  } else {
    return absl::InvalidArgumentError("not an address");
  }
  return out;
}

ConnectionGate::Refusal RefusalOf(ConnectionAdmission::Bound bound) {
  return bound == ConnectionAdmission::Bound::kAddress ? ConnectionGate::Refusal::kOfAddress
                                                       : ConnectionGate::Refusal::kTooMany;
}

// Of an open socket; nullopt: that descriptor is none. The kernel gives each socket another.
std::optional<uint64_t> InodeOf(int fd) {
  struct stat at {};
  if (fstat(fd, &at) != 0 || !S_ISSOCK(at.st_mode)) return std::nullopt;
  return at.st_ino;
}

int Milliseconds32(Duration d) {
  return static_cast<int>(std::clamp<int64_t>((d.nanoseconds() + 999'999) / 1'000'000, 0, 60'000));
}

}  // namespace

ConnectionGate::ConnectionGate(Options options)
    : options_(std::move(options)), admission_(options_.limits), next_id_(kFirstConnection) {}

ConnectionGate::~ConnectionGate() { Stop(); }

std::string ConnectionGate::RemoteOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    return absl::StrCat(text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return absl::StrCat("[", text, "]:", ntohs(v6.sin6_port));
}

// Who has an IPv6 address has 2^64 of them.
std::string ConnectionGate::SourceOf(const std::string& remote) {
  const std::string host = remote.substr(0, remote.rfind(':'));
  in6_addr v6{};
  if (host.size() < 2 || host.front() != '[' ||
      inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) != 1) {
    return host;
  }
  return std::string(reinterpret_cast<const char*>(v6.s6_addr), sizeof v6.s6_addr / 2);
}

Status ConnectionGate::Open() {
  const std::string wanted = absl::StrCat(options_.listen, ":", options_.port);
  auto at = ParseAddress(options_.listen, options_.port);
  if (!at.ok()) return absl::InvalidArgumentError(absl::StrCat(wanted, ": not an address"));
  const auto fail = [&] {
    return absl::UnavailableError(absl::StrCat("listen on ", wanted, ": ", std::strerror(errno)));
  };
  auto* where = reinterpret_cast<sockaddr*>(&at->of);
  listener_ = socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return fail();
  const int yes = 1;
  // A port held by connections in TIME_WAIT is free; one that somebody listens on is an error.
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (where->sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at->of);
    const int alone = !IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
    setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof alone);
  }
  if (bind(listener_, where, at->size) != 0 || listen(listener_, kBacklog) != 0) return fail();
  socklen_t size = sizeof at->of;
  if (getsockname(listener_, where, &size) != 0) return fail();
  port_ = ntohs(where->sa_family == AF_INET ? reinterpret_cast<sockaddr_in&>(at->of).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(at->of).sin6_port);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) return fail();
  return absl::OkStatus();
}

void ConnectionGate::Serve(HandOver hand_over) {
  CHECK(epoll_ >= 0 && !thread_.joinable());
  hand_over_ = std::move(hand_over);
  Watch(EPOLL_CTL_ADD, listener_, EPOLLIN, kListener);
  Watch(EPOLL_CTL_ADD, wake_, EPOLLIN, kWake);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  const uint64_t one = 1;
  if (wake_ >= 0) (void)!write(wake_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  for (int* fd : {&listener_, &epoll_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
  for (const auto& [id, connection] : connections_) {
    if (!connection.given) close(connection.fd);  // else it is its new owner's to end
  }
  connections_.clear();
  remotes_.clear();
  const std::lock_guard lock(mutex_);  // Know may come at any time
  if (wake_ >= 0) close(std::exchange(wake_, -1));
}

void ConnectionGate::Know(const std::string& remote, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || wake_ < 0) return;
  known_.push_back({remote, owner});
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof one);
}

void ConnectionGate::Watch(int operation, int fd, uint32_t events, uint64_t id) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  // It fails for want of kernel memory: then a deadline ends the connection.
  (void)epoll_ctl(epoll_, operation, fd, &event);
}

void ConnectionGate::ListenAgain(bool on) {
  Watch(EPOLL_CTL_MOD, listener_, on ? uint32_t{EPOLLIN} : 0U, kListener);
  listen_again_ = on ? Time::Infinite() : SteadyNow() + kGatePause;
}

void ConnectionGate::Run() {
  std::array<epoll_event, 64> events;
  Time tick = SteadyNow() + options_.tick_every;
  for (;;) {
    const Time next = std::min(tick, listen_again_);
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                 Milliseconds32(std::max(next - SteadyNow(), Duration())));
    TakeKnown();
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
    }
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kListener) {
        Accept();
      } else if (event.data.u64 != kWake) {
        OnReadable(event.data.u64);
      }
    }
    const Time now = SteadyNow();
    if (now >= listen_again_) ListenAgain(true);
    if (now < tick) continue;
    tick = now + options_.tick_every;
    LookForEnds(now);
    CutOverdue(now);
    if (options_.tick) options_.tick();
  }
}

void ConnectionGate::TakeKnown() {
  uint64_t woken = 0;
  (void)!read(wake_, &woken, sizeof woken);
  std::vector<Known> known;
  {
    const std::lock_guard lock(mutex_);
    known.swap(known_);
  }
  for (const Known& one : known) {
    const auto it = remotes_.find(one.remote);
    if (it == remotes_.end()) continue;  // it has ended meanwhile
    const Id id = it->second;
    admission_.Enter(id, ConnectionAdmission::Phase::kHeld);
    if (const auto victim = admission_.Own(id, one.owner)) Cut(*victim, Refusal::kOfOwner);
  }
}

void ConnectionGate::Accept() {
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd =
        accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Take(fd, from);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!no_room) continue;  // it went away before it was taken
    Count(Refusal::kNoDescriptor);
    // Its end gives descriptors back. Without the pause the next try would fail at once.
    if (const auto victim = admission_.Victim()) End(*victim);
    return ListenAgain(false);
  }
}

ConnectionAdmission::Room ConnectionGate::MakeRoom(const std::string& source) {
  const Time now = SteadyNow();
  const auto room = admission_.MakeRoom(now, source);
  // Some that were handed over may have ended since.
  if (!room.reached || now - looked_ < kLookAgain) return room;
  LookForEnds(now);
  return admission_.MakeRoom(now, source);
}

void ConnectionGate::Take(int fd, const sockaddr_storage& from) {
  const std::string remote = RemoteOf(from);
  const std::string source = SourceOf(remote);
  const auto room = MakeRoom(source);
  if (room.reached && room.victim) {
    Cut(*room.victim, RefusalOf(*room.reached));
  } else if (room.reached) {
    Count(RefusalOf(*room.reached));
    close(fd);
    return;
  }
  const int yes = 1;
  const int unsent = Milliseconds32(options_.unsent);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent, sizeof unsent);
  const Id id = next_id_++;
  admission_.Add(SteadyNow(), id, source);
  connections_[id] = {.fd = fd, .remote = remote};
  remotes_[remote] = id;
  Watch(EPOLL_CTL_ADD, fd, EPOLLIN, id);
  OnReadable(id);  // its first bytes have often come by now
}

void ConnectionGate::OnReadable(Id id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;  // it made room for another meanwhile
  char first = 0;
  const ssize_t got = recv(it->second.fd, &first, 1, MSG_PEEK);
  if (got > 0) return Give(id);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  Cut(id, Refusal::kCutOff);
}

void ConnectionGate::Give(Id id) {
  Connection& connection = connections_.at(id);
  Watch(EPOLL_CTL_DEL, connection.fd, 0, id);
  const auto inode = InodeOf(connection.fd);
  if (!inode) return Cut(id, Refusal::kCutOff);
  connection.inode = *inode;
  connection.given = true;
  admission_.Enter(id, ConnectionAdmission::Phase::kUnfinished);
  hand_over_(listener_, connection.fd);
}

void ConnectionGate::CutOverdue(Time now) {
  using Phase = ConnectionAdmission::Phase;
  for (const Id id : admission_.Overdue(Phase::kSilent, now - options_.silent)) {
    Cut(id, Refusal::kTimedOut);
  }
  for (const Id id : admission_.Overdue(Phase::kUnfinished, now - options_.unknown)) {
    Cut(id, Refusal::kUnknown);
  }
}

void ConnectionGate::Cut(Id id, Refusal why) {
  Count(why);
  End(id);
}

// Ends the connection; its new owner reads the end of it.
void ConnectionGate::End(Id id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const Connection& connection = it->second;
  if (!connection.given) {
    close(connection.fd);
  } else if (const int same = fcntl(connection.fd, F_DUPFD_CLOEXEC, 0); same >= 0) {
    // The number may be another file's by now. A duplicate stays what it is while it is looked at.
    if (InodeOf(same) == connection.inode) (void)shutdown(same, SHUT_RDWR);
    close(same);
  } else {
    return;  // for want of a descriptor; a later try ends it
  }
  Forget(it);
}

void ConnectionGate::Forget(Connections::iterator it) {
  const auto remote = remotes_.find(it->second.remote);
  if (remote != remotes_.end() && remote->second == it->first) remotes_.erase(remote);
  admission_.Leave(it->first);
  connections_.erase(it);
}

// A descriptor that was handed over is another socket, or none, when its owner has closed it.
void ConnectionGate::LookForEnds(Time now) {
  looked_ = now;
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto next = std::next(it);
    if (it->second.given && InodeOf(it->second.fd) != it->second.inode) Forget(it);
    it = next;
  }
}

}  // namespace crowdsurf
