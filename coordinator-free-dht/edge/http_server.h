// HttpServer: the plain HTTP port of a process: /healthz, /readyz, /metrics and more GETs.
//
// Wraps cpp-httplib: a listening thread and a small pool. Handlers run on those threads and must be
// thread-safe (read atomics, or post to the host and wait briefly). Nothing secret is served; bind
// it where the operator and Prometheus can reach it. Any thread; Stop is idempotent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/edge/metrics_page.h"
#include "base/status.h"

namespace httplib {
class Server;
}

namespace crowdsurf::dht {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply()>;

  // /metrics renders `metrics`, which outlives the server. /healthz and /readyz say 200 "ok" until
  // replaced by Handle.
  explicit HttpServer(MetricRegistry& metrics, const std::string& program = "crowdsurf-worker");
  ~HttpServer();  // stops

  // GET `path`. Before Start.
  void Handle(const std::string& path, Handler handler);
  // Binds host:port (0: any free port) and serves. Error when the address cannot be had.
  Status Start(const std::string& host, int port);
  void Stop();
  int port() const { return port_; }  // after Start

 private:
  MetricsPage page_;
  std::unique_ptr<httplib::Server> server_;
  std::shared_ptr<std::map<std::string, Handler>> handlers_;
  std::thread thread_;
  int port_ = 0;
};

}  // namespace crowdsurf::dht
