// HttpServer: the one HTTP server of every program: probes, metrics, summaries, the signer.
//
// HTTP/1.1 on Boost.Beast, plain or over TLS 1.2 and 1.3. One I/O thread owns all sockets and never
// waits; handlers run there (Runs::kAtOnce) or on a small pool (Runs::kOnPool). So neither slow
// clients nor slow handlers delay a probe. HttpLimits bounds all that a stranger can fill; what is
// refused is counted by reason. Owner: one thread calls everything here. Handlers are thread-safe.
// Source: RFC 9110 and 9112.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"

typedef struct evp_pkey_st EVP_PKEY;
typedef struct x509_st X509;

namespace crowdsurf {

struct HttpLimits {
  // At once, but at most an eighth of the process's descriptors. A connection above it closes the
  // oldest unfinished request of the address that has most, else its longest idle one.
  size_t connections = 256;
  size_t header_bytes = 16 << 10;  // of the request line, and again of all fields; else 431
  size_t headers = 64;             // fields; else 431
  Duration request = Seconds(5);   // from the accept, or the first byte of a later request, to its
                                   // last byte; the TLS handshake is a part of it
  Duration reply = Seconds(10);    // from a reply's first byte to its last
  Duration idle = Seconds(60);     // between two requests of a connection
  Duration linger = Seconds(1);    // for a client to read the last reply and close
  size_t requests = 100;           // of a connection; then it is closed
  size_t pool_threads = 2;         // half of them, at least one, serve one address at a time
  size_t waiting = 64;             // requests that wait for the pool; else 503
  Duration wait = Seconds(5);      // for the pool; else 503
};

class HttpServer {
 public:
  enum class Runs {
    kAtOnce,  // on the I/O thread: it must not block, not even for a millisecond
    kOnPool,  // may block; requests of different addresses take turns
  };
  struct Request {
    std::string method, path, query, body;
    std::string peer;                            // its address, without a port
    std::map<std::string, std::string> headers;  // names in lower case
    // Empty when there is none. `name`: in lower case.
    std::string_view Header(const std::string& name) const;
  };
  struct Reply {
    int status = 200;
    std::string body = {};
    std::string content_type = "text/plain; charset=utf-8";
    std::map<std::string, std::string> headers = {};
  };
  using Handler = std::function<Reply(const Request&)>;

  struct Options {
    std::string name;                  // the label `server` of the counter of refusals
    std::string listen = "127.0.0.1";  // an address or a name; "::" takes IPv4, too
    int port = 0;                      // 0: any free one
    HttpLimits limits = {};
    X509* certificate = nullptr;  // with `key`: TLS. Start makes references of its own.
    EVP_PKEY* key = nullptr;
  };
  // metrics outlives this.
  HttpServer(Options options, MetricRegistry& metrics);
  ~HttpServer();  // stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Answers `path`, without its query. Before Start. A GET's handler answers HEAD, too, and no GET
  // has a body. max_body: bytes after decoding; else 413.
  void Get(const std::string& path, Runs runs, Handler handler);
  void Post(const std::string& path, size_t max_body, Runs runs, Handler handler);

  // Binds and serves. Errors: FailedPrecondition when the address cannot be had (names it);
  // Internal for a certificate that cannot be used.
  Status Start();
  // Closes the port and all connections, and waits for handlers that run. Idempotent.
  void Stop();
  int port() const;  // after Start

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf
