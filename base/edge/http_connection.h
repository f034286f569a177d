// HttpConnection: one client of an HttpServer, from its accept to its end.
//
// For the .cc files of the server alone: it includes Boost.Asio. Reads one request at a time,
// checks it against the server's limits, hands it to the server, writes the reply, and cuts who is
// late. All on the server's I/O thread. Shared by its own pending operations; the last one ends it.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/edge/connection_admission.h"
#include "base/edge/http_server.h"

namespace crowdsurf {

enum class HttpRefusal {
  kSlow,       // the request was not whole in time
  kFull,       // it made room for another connection, or found none
  kHeader,     // too long, or too many fields
  kBody,       // too long
  kMalformed,  // not HTTP
  kTls,        // the handshake failed
  kBusy,       // the pool had no room or no time
  kUnread,     // the client did not take its reply in time
  kFailed,     // a handler threw
  kAccept,     // no descriptor or no memory for a connection
};

struct HttpRoute {
  size_t max_body = 0;
  HttpServer::Runs runs = HttpServer::Runs::kAtOnce;
  HttpServer::Handler handler;
};

class HttpConnection;

// Unfinished: a request that is not whole. Held: one that is being handled.
using HttpPhase = ConnectionAdmission::Phase;

// What a connection asks of its server, which outlives it.
class HttpDesk {
 public:
  virtual const HttpLimits& limits() const = 0;
  virtual size_t max_body() const = 0;  // of all routes
  // Nullptr when there is none for the method; *status is then 404 or 405.
  virtual const HttpRoute* Find(const std::string& method, const std::string& path,
                                int* status) const = 0;
  // Calls Answer, now or later.
  virtual void Take(std::shared_ptr<HttpConnection> from, const HttpRoute& route,
                    HttpServer::Request request) = 0;
  virtual void Enter(uint64_t id, HttpPhase phase) = 0;
  virtual void Leave(uint64_t id) = 0;
  virtual void Count(HttpRefusal reason) = 0;

 protected:
  ~HttpDesk() = default;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  virtual ~HttpConnection() = default;
  virtual void Begin() = 0;
  virtual void Answer(HttpServer::Reply reply) = 0;  // to what Take was given; once
  virtual void Close() = 0;                          // idempotent
};

// tls: null for a plain one.
std::shared_ptr<HttpConnection> MakeHttpConnection(boost::asio::ip::tcp::socket socket,
                                                   boost::asio::ssl::context* tls, HttpDesk& desk,
                                                   uint64_t id);

}  // namespace crowdsurf
