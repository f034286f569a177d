#include "worker/edge/link/link_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/edge/clock.h"

namespace crowdsurf::worker {
namespace {

constexpr Duration kAcceptPause = Milliseconds(100);
constexpr size_t kReadSize = size_t{256} * 1024;  // of one recv, and of one step of an upload

const char* ReasonPhrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return "Status";
  }
}

bool FillAddress(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

}  // namespace

struct LinkListener::Connection {
  int fd = -1;
  std::string in;
  HttpHead head;
  bool in_body = false;     // head is parsed, its body is coming
  bool waiting = false;     // the handler has the request; further ones wait
  bool closing = false;     // close when everything is sent
  int64_t deadline_ns = 0;  // of a half-sent request; 0: none
  std::string out;
  size_t out_sent = 0;
  std::shared_ptr<const HeldState> file;  // reply body after `out`
  uint64_t file_left = 0;
  std::shared_ptr<HeldState> upload;  // request body goes here
  uint64_t upload_left = 0;
  std::optional<HttpReply> refusal;  // of an upload: its body is read and thrown away before it

  ~Connection() {
    if (fd >= 0) ::close(fd);
  }
  bool sending() const { return out_sent < out.size() || file_left > 0; }
};

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
  CHECK(FillAddress(folder.Through(options_.socket), address));
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
    if (polled[0].revents != 0) TakeReplies();
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto it = connections_.find(ids[i]);
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

bool LinkListener::OnReadable(ConnectionId id, Connection& c) {
  // A waiting connection reads on only so far that its end is noticed.
  const size_t most = std::max(options_.max_body, kMaxHttpHead) + kReadSize;
  if (c.closing) return false;
  if (c.in.size() >= most) return Refuse(c, 413, "too_long", "more than one request at a time");
  std::string buffer(kReadSize, '\0');
  const ssize_t n = ::recv(c.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  c.in.append(buffer, 0, static_cast<size_t>(n));
  return TakeRequests(id, c);
}

bool LinkListener::TakeRequests(ConnectionId id, Connection& c) {
  while (!c.waiting && !c.closing && !(c.in.empty() && !c.in_body)) {
    if (!c.in_body) {
      const HttpParse parsed = ParseHttpHead(c.in, c.head);
      if (c.deadline_ns == 0) c.deadline_ns = Deadline();
      if (parsed == HttpParse::kMore) return true;
      if (parsed == HttpParse::kBad) return Refuse(c, 400, "garbled", "no HTTP/1.1 request");
      c.in.erase(0, c.head.bytes);
      if (!BeginBody(c)) return true;
    }
    if (!TakeBody(c)) return true;
    if (c.refusal) {
      c.in_body = false;
      c.deadline_ns = 0;
      Queue(c, *std::exchange(c.refusal, std::nullopt));
      continue;
    }
    HttpRequest request{c.head.first, c.head.second, {}, {}};
    if (c.upload) {
      request.upload = std::exchange(c.upload, nullptr);
      upload_busy_ = false;
    } else {
      request.body = c.in.substr(0, c.head.content_length);
      c.in.erase(0, c.head.content_length);
    }
    c.in_body = false;
    c.deadline_ns = 0;
    c.waiting = true;
    if (auto reply = handler_(id, std::move(request))) {
      c.waiting = false;
      Queue(c, *reply);
    }
  }
  return true;
}

// Decides where the body goes; false when the request was refused.
bool LinkListener::BeginBody(Connection& c) {
  const std::string path = c.head.second.substr(0, c.head.second.find('?'));
  const bool upload = !options_.upload_path.empty() && c.head.first == options_.upload_method &&
                      path == options_.upload_path;
  const uint64_t most = upload ? options_.max_upload : options_.max_body;
  if (c.head.content_length > most) {
    Refuse(c, 413, "too_long",
           absl::StrCat("a body of ", c.head.content_length, " bytes, at most ", most, " here"));
    return false;
  }
  if (upload) {
    c.upload_left = c.head.content_length;
    if (upload_busy_) {
      RefuseUpload(c, 503, "upload_busy", "another upload is under way");
      return true;
    }
    if (!BeginUpload(c).ok()) {
      RefuseUpload(c, 507, "disk_full",
                   absl::StrCat("no room for ", c.head.content_length,
                                " bytes of trainer state: raise spec.agent.sharedMemory"));
      return true;
    }
    upload_busy_ = true;
  }
  c.in_body = true;
  if (c.head.header("expect") == "100-continue") c.out += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

Status LinkListener::BeginUpload(Connection& c) {
  ASSIGN_OR_RETURN(std::shared_ptr<HeldState> room,
                   HeldState::Make(*options_.folder, c.head.content_length));
  RETURN_IF_ERROR(room->Reserve());
  c.upload = std::move(room);
  return absl::OkStatus();
}

// True when the whole body is here.
bool LinkListener::TakeBody(Connection& c) {
  if (c.refusal) {
    const auto gone = static_cast<size_t>(std::min<uint64_t>(c.in.size(), c.upload_left));
    c.in.erase(0, gone);
    c.upload_left -= gone;
    if (gone > 0) c.deadline_ns = Deadline();
    return c.upload_left == 0;
  }
  if (!c.upload) return c.in.size() >= c.head.content_length;
  const size_t take = static_cast<size_t>(std::min<uint64_t>(c.in.size(), c.upload_left));
  // The space is reserved: a write that fails all the same ends by its patience.
  const ByteView piece = AsBytes(c.in).first(take);
  if (!c.upload->Write(c.head.content_length - c.upload_left, piece).ok()) return false;
  c.in.erase(0, take);
  c.upload_left -= take;
  // An upload may take long: its patience is per piece.
  if (take > 0) c.deadline_ns = Deadline();
  return c.upload_left == 0;
}

void LinkListener::Queue(Connection& c, const HttpReply& reply) {
  uint64_t length = reply.body.size();
  if (reply.file) {
    c.file = reply.file;
    length = c.file_left = c.file->bytes().size();
  }
  if (c.out_sent == c.out.size()) {
    c.out.clear();
    c.out_sent = 0;
  }
  absl::StrAppend(&c.out, "HTTP/1.1 ", reply.code, " ", ReasonPhrase(reply.code),
                  "\r\nContent-Type: ", reply.type, "\r\nContent-Length: ", length, "\r\n");
  for (const auto& [name, value] : reply.headers)
    absl::StrAppend(&c.out, name, ": ", value, "\r\n");
  absl::StrAppend(&c.out, "\r\n", reply.body);
  c.deadline_ns = Deadline();
  OnWritable(c);  // an error shows again in poll
}

bool LinkListener::OnWritable(Connection& c) {
  while (c.out_sent < c.out.size()) {
    const ssize_t n = ::send(c.fd, c.out.data() + c.out_sent, c.out.size() - c.out_sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c.out_sent += static_cast<size_t>(n);
  }
  while (c.file_left > 0) {
    auto at = static_cast<off_t>(c.file->bytes().size() - c.file_left);  // others read it, too
    const ssize_t n = ::sendfile(c.fd, c.file->fd(), &at, c.file_left);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n > 0)
      c.deadline_ns = Deadline();  // slow readers of large files are served while they read
    if (n == 0) return false;      // the file shrank under us
    c.file_left -= static_cast<uint64_t>(n);
  }
  c.file = nullptr;
  if (!c.closing) c.deadline_ns = 0;
  return true;
}

// The connection is a trainer's sign of life and is kept: what is full is not its fault.
void LinkListener::RefuseUpload(Connection& c, int code, const char* reason,
                                const std::string& words) {
  refused_.at(reason)->Add();
  c.in_body = true;
  c.refusal =
      HttpReply{code, "application/json", absl::StrCat("{\"error\":\"", words, "\"}"), {}, {}};
}

bool LinkListener::Refuse(Connection& c, int code, const char* reason, const std::string& words) {
  refused_.at(reason)->Add();
  c.closing = true;
  c.in.clear();
  Queue(c, {code, "application/json", absl::StrCat("{\"error\":\"", words, "\"}"), {}, {}});
  return true;
}

}  // namespace crowdsurf::worker
