#include "worker/edge/link/link_http.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/edge/clock.h"

namespace crowdsurf::worker {
namespace {

std::string_view Trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool ParseFirstLine(std::string_view line, HttpHead& out) {
  const size_t a = line.find(' ');
  if (a == std::string_view::npos) return false;
  const size_t b = line.find(' ', a + 1);
  out.first = line.substr(0, a);
  out.second = line.substr(a + 1, b == std::string_view::npos ? b : b - a - 1);
  out.third = b == std::string_view::npos ? "" : line.substr(b + 1);
  const bool response = out.first.starts_with("HTTP/1.");
  return response ? out.second.size() == 3 : out.third.starts_with("HTTP/1.");
}

bool ParseHeaderLine(std::string_view line, HttpHead& out) {
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  // Names of headers have no case (RFC 9110, 5.1).
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (out.headers.size() >= kMaxHttpHeaders) return false;
  // A second header of one name (two lengths, say) is how requests are smuggled: refused.
  return out.headers.emplace(std::move(name), Trim(line.substr(colon + 1))).second;
}

}  // namespace

const std::string& HttpHead::header(const std::string& lower_case_name) const {
  static const std::string kNone;
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? kNone : it->second;
}

HttpParse ParseHttpHead(std::string_view in, HttpHead& out) {
  const size_t end = in.substr(0, kMaxHttpHead).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    return in.size() >= kMaxHttpHead ? HttpParse::kBad : HttpParse::kMore;
  }
  out = {};
  out.bytes = end + 4;
  std::string_view head = in.substr(0, end);
  bool first = true;
  while (!head.empty() || first) {
    const size_t eol = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, eol);
    if (!(first ? ParseFirstLine(line, out) : ParseHeaderLine(line, out))) return HttpParse::kBad;
    first = false;
    head.remove_prefix(std::min(eol + 2, head.size()));
  }
  // Its length is not understood, so its rest would pass for the next request (RFC 9112, section
  // 6.3).
  if (!out.header("transfer-encoding").empty()) return HttpParse::kBad;
  if (const std::string& n = out.header("content-length"); !n.empty()) {
    const auto [stop, error] = std::from_chars(n.data(), n.data() + n.size(), out.content_length);
    if (error != std::errc() || stop != n.data() + n.size()) return HttpParse::kBad;
  }
  return HttpParse::kDone;
}

StatusOr<HttpClient> HttpClient::Connect(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat(socket_path, ": a socket's path has at most 107 bytes"));
  }
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  HttpClient client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (client.fd_ < 0 ||
      ::connect(client.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::UnavailableError(
        absl::StrCat("connect to ", socket_path, ": ", std::strerror(errno)));
  }
  return client;
}

HttpClient::HttpClient(HttpClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
HttpClient& HttpClient::operator=(HttpClient&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
HttpClient::~HttpClient() {
  if (fd_ >= 0) ::close(fd_);
}

Status HttpClient::Wait(short events, int64_t deadline_ns) const {
  while (true) {
    const int64_t left = deadline_ns - SteadyNow().nanoseconds();
    if (left <= 0) return absl::DeadlineExceededError("the agent does not answer in time");
    pollfd p{fd_, events, 0};
    // Rounded up: the last wait would spin at 0 ms.
    const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 60'000)));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return absl::UnavailableError(std::strerror(errno));
  }
}

Status HttpClient::Send(std::string_view bytes, int64_t deadline_ns) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(Wait(POLLOUT, deadline_ns));
    // Without a SIGPIPE, whose default would end the trainer that this runs in.
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return absl::UnavailableError(absl::StrCat("agent.sock: ", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

Status HttpClient::Receive(std::string& in, int64_t deadline_ns) {
  char buffer[64 * 1024];
  while (true) {
    RETURN_IF_ERROR(Wait(POLLIN, deadline_ns));
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return absl::UnavailableError("the agent closed the connection");
    in.append(buffer, static_cast<size_t>(n));
    return absl::OkStatus();
  }
}

StatusOr<HttpReply> HttpClient::Do(std::string_view method, std::string_view target,
                                   std::string_view body, Duration patience, uint64_t most) {
  const int64_t deadline = (SteadyNow() + patience).nanoseconds();
  std::string head_out(method);
  head_out.append(" ").append(target).append(" HTTP/1.1\r\nHost: agent\r\nContent-Length: ");
  head_out.append(std::to_string(body.size())).append("\r\n\r\n");
  const Status sent = Send(head_out, deadline);
  RETURN_IF_ERROR(sent);
  // A refusal may come before the whole body is sent, and the agent then closes: read it anyway.
  const Status body_sent = Send(body, deadline);
  std::string in;
  HttpHead head;
  HttpParse parsed = HttpParse::kMore;
  while (parsed == HttpParse::kMore) {
    if (const Status got = Receive(in, deadline); !got.ok())
      return body_sent.ok() ? got : body_sent;
    parsed = ParseHttpHead(in, head);
  }
  HttpReply reply;
  const auto [stop, error] =
      std::from_chars(head.second.data(), head.second.data() + head.second.size(), reply.code);
  if (parsed == HttpParse::kBad || error != std::errc() || head.content_length > most) {
    return absl::DataLossError("the agent's answer is garbled or too long");
  }
  while (in.size() - head.bytes < head.content_length) RETURN_IF_ERROR(Receive(in, deadline));
  reply.type = head.header("content-type");
  reply.headers = std::move(head.headers);
  reply.body = in.substr(head.bytes, head.content_length);
  return reply;
}

bool HttpClient::alive() const {
  char byte;
  const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // 0 is the end of the stream. A byte that waits, or none yet, means that it is open.
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace crowdsurf::worker
