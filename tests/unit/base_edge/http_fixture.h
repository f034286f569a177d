// HttpFixture: a server on the loopback with a probe and an echo, for tests that talk to it raw.
//
// The test sets limits_ and adds routes, then calls Start. Remake gives a server with limits_ as
// they are now. Owner: the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/edge/http_server.h"
#include "base/metrics.h"
#include "tests/support/raw_client.h"

namespace crowdsurf {

class HttpFixture : public ::testing::Test {
 protected:
  HttpFixture() { Remake(); }

  void Remake(X509* certificate = nullptr, EVP_PKEY* key = nullptr) {
    server_ = std::make_unique<HttpServer>(
        HttpServer::Options{"test", "127.0.0.1", 0, limits_, certificate, key}, metrics_);
    server_->Get("/healthz", HttpServer::Runs::kAtOnce, [](const HttpServer::Request&) {
      return HttpServer::Reply{200, "ok\n"};
    });
    server_->Post("/echo", 65'536, HttpServer::Runs::kAtOnce, [](const HttpServer::Request& r) {
      return HttpServer::Reply{200, r.method + " " + r.path + " " + r.query + " " +
                                        std::string(r.Header("x-word")) + " " + r.peer + " " +
                                        r.body};
    });
  }
  void Start() { ASSERT_TRUE(server_->Start().ok()); }
  int port() const { return server_->port(); }

  static std::string Echo(const std::string& body) {
    return "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }
  // One request on a connection of its own, and the reply; the connection is then closed.
  std::string Ask(const std::string& request) const {
    RawClient client(port());
    (void)client.Send(request);
    (void)::shutdown(client.fd(), SHUT_WR);
    return client.ReadToEnd();
  }
  double Refused(const std::string& reason) const {
    return metrics_.Value("crowdsurf_http_refused_total", {{"server", "test"}, {"reason", reason}});
  }

  HttpLimits limits_;
  MetricRegistry metrics_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace crowdsurf
