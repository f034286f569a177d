// Link HTTP: the little of HTTP/1.1 that agent.sock needs: a message-head parser and a blocking
// client.
//
// Purpose: cpp-httplib 0.11 cannot listen on a Unix socket, and a thread a connection is more than
// the link needs. The parser is pure and bounded (16 KiB heads, 64 headers, Content-Length bodies
// only) and is shared by LinkListener and this client. HttpClient is used by the trainer's
// LinkClient and by `crowdsurf-worker leave`; one thread owns one. RFC 9112; left out: chunked
// bodies, trailers, pipelining.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::worker {

inline constexpr size_t kMaxHttpHead = size_t{16} * 1024;
inline constexpr size_t kMaxHttpHeaders = 64;

class HeldState;

struct HttpHead {
  // Request: method, target, version. Response: version, status code, reason.
  std::string first, second, third;
  std::map<std::string, std::string> headers;  // names in lower case
  uint64_t content_length = 0;
  size_t bytes = 0;  // of the head itself, blank line included

  const std::string& header(const std::string& lower_case_name) const;  // empty when absent
};

enum class HttpParse { kMore, kDone, kBad };
// Parses the head at the start of `in`. kBad: not HTTP/1.x, over a bound, a chunked body, or a
// Content-Length that is no number.
HttpParse ParseHttpHead(std::string_view in, HttpHead& out);

struct HttpReply {
  int code = 200;
  std::string type = "application/json";
  std::string body;
  std::shared_ptr<const HeldState> file;  // when set, the body is this instead
  std::map<std::string, std::string> headers;
};

class HttpClient {
 public:
  // Unavailable when nobody listens at `socket_path`.
  static StatusOr<HttpClient> Connect(const std::string& socket_path);
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&& other) noexcept;
  ~HttpClient();

  // One exchange on the kept connection. Bodies of answers are at most `most` bytes. Any HTTP
  // status is a reply; Unavailable: the connection ended; DeadlineExceeded; DataLoss: garbled.
  StatusOr<HttpReply> Do(std::string_view method, std::string_view target, std::string_view body,
                         Duration patience, uint64_t most = 64 << 20);
  // False once the other side has closed. Costs one system call.
  bool alive() const;

 private:
  explicit HttpClient(int fd) : fd_(fd) {}
  Status Wait(short events, int64_t deadline_ns) const;
  Status Send(std::string_view bytes, int64_t deadline_ns);
  // Appends what arrives to `in`, at least one byte.
  Status Receive(std::string& in, int64_t deadline_ns);

  int fd_ = -1;
};

}  // namespace crowdsurf::worker
