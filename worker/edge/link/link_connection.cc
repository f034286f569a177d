// Requests and answers of one connection to agent.sock (link_listener.h).
#include "worker/edge/link/link_connection.h"

#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/bytes.h"

namespace crowdsurf::worker {
namespace {

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

}  // namespace

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
      // From a request's first byte on. A connection between two requests may be silent for ever.
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
    // No other request is taken meanwhile: answers keep the order of requests (RFC 9112, 9.3.2).
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
  const bool too_long = c.head.content_length > most;
  const std::string too_long_words =
      absl::StrCat("a body of ", c.head.content_length, " bytes, at most ", most, " here");
  if (too_long && !upload) {
    Refuse(c, 413, "too_long", too_long_words);
    return false;
  }
  if (upload) {
    c.upload_left = c.head.content_length;
    if (too_long) {
      RefuseUpload(c, 413, "too_long", too_long_words);
      return true;
    }
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
  // curl waits for it before it sends a large body (RFC 9110, section 10.1.1).
  if (c.head.header("expect") == "100-continue") c.out += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

Status LinkListener::BeginUpload(Connection& c) {
  ASSIGN_OR_RETURN(std::shared_ptr<HeldState> room,
                   HeldState::Make(*options_.folder, c.head.content_length));
  // Before the first byte is taken: a full volume is an answer now, not a failure in the middle.
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
    // From memory to the socket: a gigabyte of state costs the agent no copy of its own.
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

// The words are of this file and hold nothing that JSON escapes.
bool LinkListener::Refuse(Connection& c, int code, const char* reason, const std::string& words) {
  refused_.at(reason)->Add();
  c.closing = true;
  c.in.clear();
  Queue(c, {code, "application/json", absl::StrCat("{\"error\":\"", words, "\"}"), {}, {}});
  return true;
}

}  // namespace crowdsurf::worker
