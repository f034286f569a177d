#include "base/edge/http_server.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/edge/any_address.h"
#include "base/edge/clock.h"
#include "base/edge/connection_gate.h"
#include "base/edge/descriptors.h"
#include "base/edge/fair_queue.h"
#include "base/edge/http_connection.h"

namespace crowdsurf {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr auto kAcceptPause = std::chrono::milliseconds(50);  // while no descriptor is free

Counter& Refused(MetricRegistry& metrics, const std::string& server, const char* reason) {
  return metrics.AddCounter("crowdsurf_http_refused_total",
                            "Connections and requests that an HTTP server refused or cut.",
                            {{"server", server}, {"reason", reason}});
}

// By HttpRefusal.
std::vector<Counter*> RefusalCounters(MetricRegistry& metrics, const std::string& server) {
  std::vector<Counter*> counters;
  for (const char* reason : {"slow", "full", "header", "body", "malformed", "tls", "busy", "unread",
                             "failed", "accept"}) {
    counters.push_back(&Refused(metrics, server, reason));
  }
  CHECK(counters.size() == static_cast<size_t>(HttpRefusal::kAccept) + 1);
  return counters;
}

HttpServer::Reply TooBusy() {
  return {503,
          "too many requests wait: ask again\n",
          HttpServer::Reply().content_type,
          {{"Retry-After", "1"}}};
}

bool NoRoomForASocket(error_code failed) {
  namespace errc = boost::system::errc;
  return failed == errc::too_many_files_open || failed == errc::too_many_files_open_in_system ||
         failed == errc::no_buffer_space || failed == errc::not_enough_memory;
}

std::string RemoteOf(tcp::socket& socket) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  // Where it has gone already, all such share one source.
  if (getpeername(socket.native_handle(), reinterpret_cast<sockaddr*>(&from), &size) != 0)
    return {};
  return ConnectionGate::RemoteOf(from);
}

// "[::1]" is how a URL writes it.
std::string WithoutBrackets(const std::string& host) {
  const bool has = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

class HttpServer::Impl final : public HttpDesk {
 public:
  Impl(Options options, MetricRegistry& metrics)
      : options_(std::move(options)),
        refused_(RefusalCounters(metrics, options_.name)),
        most_(PartOf(DescriptorLimit(), kHttpPart, options_.limits.connections)),
        admission_({.connections = most_,
                    .strangers = most_,
                    .strangers_of_address = std::max<size_t>(2, most_ / 2)}),
        acceptor_(io_),
        accept_pause_(io_),
        queue_(options_.limits.waiting, std::max<size_t>(1, options_.limits.pool_threads / 2)) {}

  void Add(const char* method, const std::string& path, HttpRoute route) {
    max_body_ = std::max(max_body_, route.max_body);
    has_pool_ = has_pool_ || route.runs == Runs::kOnPool;
    routes_[{method, path}] = std::move(route);
  }
  Status Start();
  void Stop();
  int port() const { return port_; }

  // HttpDesk, on the I/O thread.
  const HttpLimits& limits() const override { return options_.limits; }
  size_t max_body() const override { return max_body_; }
  const HttpRoute* Find(const std::string& method, const std::string& path,
                        int* status) const override;
  void Take(std::shared_ptr<HttpConnection> from, const HttpRoute& route, Request request) override;
  void Enter(uint64_t id, HttpPhase phase) override { admission_.Enter(id, phase); }
  void Leave(uint64_t id) override {
    admission_.Leave(id);
    open_.erase(id);
  }
  void Count(HttpRefusal reason) override { refused_[static_cast<size_t>(reason)]->Add(); }

 private:
  struct Waiting {
    std::shared_ptr<HttpConnection> from;
    const HttpRoute* route;
    Request request;
    Time since;
  };

  Status UseCertificate();
  Status Listen();
  error_code ListenAt(const tcp::endpoint& where);
  void Serve();
  void Accept();
  void OnAccepted(error_code failed, tcp::socket socket);
  void Admit(tcp::socket socket);
  void RunWaiting();
  Reply Handle(const HttpRoute& route, const Request& request);

  const Options options_;
  const std::vector<Counter*> refused_;
  std::map<std::pair<std::string, std::string>, HttpRoute> routes_;  // by method and path
  size_t max_body_ = 0;
  bool has_pool_ = false;
  int port_ = 0;

  const size_t most_;  // connections at once

  // ---- I/O thread ----
  ConnectionAdmission admission_;
  std::map<uint64_t, HttpConnection*> open_;
  uint64_t next_id_ = 0;
  size_t running_ = 0;

  // Connections are owned by what is pending in io_ or waits in queue_, and end with it: before all
  // above, and those in queue_ before io_, which has their timers.
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  FairQueue<std::shared_ptr<Waiting>> queue_;  // I/O thread
  std::optional<asio::thread_pool> pool_;
  std::thread thread_;
};

Status HttpServer::Impl::UseCertificate() {
  if (options_.certificate == nullptr || options_.key == nullptr) return absl::OkStatus();
  tls_.emplace(asio::ssl::context::tls_server);
  SSL_CTX* context = tls_->native_handle();
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // idle ones cost little
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_use_certificate(context, options_.certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context, options_.key) != 1) {
    return absl::InternalError("the server's certificate and key cannot be used");
  }
  return absl::OkStatus();
}

error_code HttpServer::Impl::ListenAt(const tcp::endpoint& where) {
  error_code failed;
  acceptor_.open(where.protocol(), failed);
  // Without SO_REUSEPORT, so that a taken port is an error and not a shared one.
  if (!failed) acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
  // "::" hears IPv4, too; any other IPv6 address hears IPv6 alone.
  if (!failed && where.address().is_v6()) {
    acceptor_.set_option(asio::ip::v6_only(!where.address().is_unspecified()), failed);
  }
  if (!failed) acceptor_.bind(where, failed);
  if (!failed) acceptor_.listen(asio::socket_base::max_listen_connections, failed);
  if (!failed) port_ = acceptor_.local_endpoint(failed).port();
  error_code ignored;
  if (failed) acceptor_.close(ignored);
  return failed;
}

Status HttpServer::Impl::Listen() {
  const std::string host = AnyAddress(WithoutBrackets(options_.listen));
  const auto port = static_cast<uint16_t>(options_.port);
  error_code failed;
  asio::ip::address address = asio::ip::make_address(host, failed);
  if (failed) {
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, failed);
    if (!failed && !found.empty()) address = found.begin()->endpoint().address();
  }
  if (!failed) failed = ListenAt({address, port});
  if (!failed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", options_.listen, ":",
                                                    options_.port, ": ", failed.message()));
}

Status HttpServer::Impl::Start() {
  RETURN_IF_ERROR(UseCertificate());
  RETURN_IF_ERROR(Listen());
  if (has_pool_) pool_.emplace(options_.limits.pool_threads);
  // Before the thread: io_context::run ends at once when nothing is pending.
  Accept();
  thread_ = std::thread([this] { Serve(); });
  return absl::OkStatus();
}

// What throws (memory, first of all) ends the connection that it was about, and no other.
void HttpServer::Impl::Serve() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception&) {
      Count(HttpRefusal::kFailed);
    }
  }
}

void HttpServer::Impl::Stop() {
  // First the I/O thread, then the handlers on the pool. The sockets close when neither can use
  // them.
  io_.stop();
  if (thread_.joinable()) thread_.join();
  if (pool_) {
    pool_->stop();
    pool_->join();
  }
  error_code ignored;
  acceptor_.close(ignored);
  while (!open_.empty()) open_.begin()->second->Close();
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept(
      [this](error_code failed, tcp::socket socket) { OnAccepted(failed, std::move(socket)); });
}

void HttpServer::Impl::OnAccepted(error_code failed, tcp::socket socket) {
  if (failed == asio::error::operation_aborted) return;
  if (NoRoomForASocket(failed)) {
    Count(HttpRefusal::kAccept);
    // A close gives a descriptor back. Without the pause the accept would fail again at once.
    if (const auto victim = admission_.Victim()) open_[*victim]->Close();
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](error_code) { Accept(); });
    return;
  }
  Accept();
  if (!failed) Admit(std::move(socket));  // else it went away before it was taken
}

void HttpServer::Impl::Admit(tcp::socket socket) {
  const Time now = SteadyNow();
  const std::string source = ConnectionGate::SourceOf(RemoteOf(socket));
  if (const auto room = admission_.MakeRoom(now, source); room.reached) {
    Count(HttpRefusal::kFull);
    if (!room.victim) return;  // all are being handled: the new one goes
    open_[*room.victim]->Close();
  }
  const uint64_t id = next_id_++;
  admission_.Add(now, id, source);
  const auto connection = MakeHttpConnection(std::move(socket), tls_ ? &*tls_ : nullptr, *this, id);
  open_[id] = connection.get();
  connection->Begin();
}

const HttpRoute* HttpServer::Impl::Find(const std::string& method, const std::string& path,
                                        int* status) const {
  const auto it = routes_.find({method, path});
  if (it != routes_.end()) return &it->second;
  const bool other = std::any_of(routes_.begin(), routes_.end(),
                                 [&](const auto& one) { return one.first.second == path; });
  *status = other ? 405 : 404;
  return nullptr;
}

HttpServer::Reply HttpServer::Impl::Handle(const HttpRoute& route, const Request& request) {
  try {
    return route.handler(request);
  } catch (const std::exception&) {
    Count(HttpRefusal::kFailed);
    return {500, "an error of this program\n"};
  }
}

void HttpServer::Impl::Take(std::shared_ptr<HttpConnection> from, const HttpRoute& route,
                            Request request) {
  if (route.runs == Runs::kAtOnce) {
    from->Answer(Handle(route, request));
    return;
  }
  const std::string source = request.peer;
  const auto dropped = queue_.Push(
      source,
      std::make_shared<Waiting>(Waiting{std::move(from), &route, std::move(request), SteadyNow()}));
  if (dropped) {
    Count(HttpRefusal::kBusy);
    (*dropped)->from->Answer(TooBusy());
  }
  RunWaiting();
}

void HttpServer::Impl::RunWaiting() {
  while (running_ < options_.limits.pool_threads) {
    auto turn = queue_.Next();
    if (!turn) return;
    if (SteadyNow() - turn->item->since > options_.limits.wait) {
      Count(HttpRefusal::kBusy);
      turn->item->from->Answer(TooBusy());
      queue_.Done(turn->source);
      continue;
    }
    ++running_;
    asio::post(*pool_, [this, turn = std::move(*turn)]() mutable {
      Reply reply = Handle(*turn.item->route, turn.item->request);
      // Moved, not copied: the last owner of a connection is always on the I/O thread.
      asio::post(io_, [this, turn = std::move(turn), reply = std::move(reply)]() mutable {
        --running_;
        queue_.Done(turn.source);
        turn.item->from->Answer(std::move(reply));
        RunWaiting();
      });
    });
  }
}

std::string_view HttpServer::Request::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

HttpServer::HttpServer(Options options, MetricRegistry& metrics)
    : impl_(std::make_unique<Impl>(std::move(options), metrics)) {}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Get(const std::string& path, Runs runs, Handler handler) {
  impl_->Add("GET", path, {0, runs, std::move(handler)});
}

void HttpServer::Post(const std::string& path, size_t max_body, Runs runs, Handler handler) {
  impl_->Add("POST", path, {max_body, runs, std::move(handler)});
}

Status HttpServer::Start() { return impl_->Start(); }
void HttpServer::Stop() { impl_->Stop(); }
int HttpServer::port() const { return impl_->port(); }

}  // namespace crowdsurf
