// HttpClient: requests to servers that may be slow, hostile or gone; the way out of every program.
//
// HTTP/1.1 on Boost.Beast, plain or over TLS 1.2 and 1.3. One thread owns all sockets and never
// waits, so one server that drips delays no other request. A request ends with its deadline, which
// is of all of it: name, connection, handshake and the last byte of the answer. Header and body
// have a most, also where they are endless; nothing is decompressed and no redirect is followed.
// Bound: kMaxRequests at once, a connection each. Thread-safe. Stop ends all of them at once; only
// a host's name that is being looked up may delay the end by the resolver's own time-out. Source:
// RFC 9110, 9112; of names in certificates RFC 9525 (no common names).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"

namespace crowdsurf {

// Whose certificates are believed.
class HttpTrust {
 public:
  // pem: certificates of CAs. Error: InvalidArgument, there is none in it.
  static StatusOr<std::shared_ptr<HttpTrust>> FromPem(const std::string& pem);
  ~HttpTrust();

 private:
  friend class HttpClient;
  struct Context;
  explicit HttpTrust(std::unique_ptr<Context> context);
  std::unique_ptr<Context> context_;
};

class HttpClient {
 public:
  // Twice the most that a poller and a prober have under way; each may hold max_header and
  // max_body.
  static constexpr size_t kMaxRequests = 64;

  struct Request {
    std::string address;  // as ParseEndpoint has it: "host:port", "[::1]:port"
    std::string method = "GET";
    std::string target = "/";
    std::map<std::string, std::string> headers = {};
    std::string body = {};
    Duration deadline = Seconds(5);
    size_t max_header = 16 << 10;  // bytes of the status line and all fields
    size_t max_body = 64 << 10;    // bytes, after chunks are put together
    // Given: TLS, to a server whose certificate is of these and names the host, or its address,
    // among its subject's alternative names.
    std::shared_ptr<HttpTrust> trust = nullptr;
  };
  struct Answer {
    int status = 0;
    std::string body;
  };
  // Errors: InvalidArgument, the address is none; DeadlineExceeded; ResourceExhausted, header or
  // body is too long, or kMaxRequests are under way; DataLoss, the answer is no HTTP or ends before
  // its end; Unauthenticated, its certificate is not believed; Unavailable, nobody is there;
  // Cancelled, stopped.
  using Receiver = std::function<void(StatusOr<Answer>)>;

  HttpClient();
  ~HttpClient();  // stops
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // receiver: called once, on the client's thread (after Stop on the caller's). It must not wait.
  void Ask(Request request, Receiver receiver);
  // The same, and waits. Not on the client's thread.
  StatusOr<Answer> Fetch(Request request);
  // Whatever is under way ends with Cancelled before this returns. Idempotent.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf
