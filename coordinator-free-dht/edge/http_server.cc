#include "coordinator-free-dht/edge/http_server.h"

#include <httplib.h>

#include <chrono>
#include <future>
#include <utility>

namespace crowdsurf::dht {
namespace {

constexpr size_t kThreads = 2;                // scrapers and probes are few
constexpr size_t kMaxRequestBody = 64 << 10;  // GETs have none
constexpr time_t kTimeoutSeconds = 5;         // of a slow client

}  // namespace

HttpServer::HttpServer(MetricRegistry& metrics, const std::string& program)
    : page_(metrics, program),
      server_(std::make_unique<httplib::Server>()),
      handlers_(std::make_shared<std::map<std::string, Handler>>()) {
  server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server_->set_payload_max_length(kMaxRequestBody);
  server_->set_read_timeout(kTimeoutSeconds);
  server_->set_write_timeout(kTimeoutSeconds);
  server_->set_keep_alive_max_count(100);
  // Without SO_REUSEPORT, so that a taken port is an error and not a shared one.
  server_->set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  Handle("/healthz", [] { return HttpReply{200, "ok\n"}; });
  Handle("/readyz", [] { return HttpReply{200, "ok\n"}; });
  Handle("/metrics", [this] { return HttpReply{200, page_.Render(), MetricsPage::kContentType}; });
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Handle(const std::string& path, Handler handler) {
  // httplib takes the first match: the newest handler of a path has to decide, so paths are looked
  // up in a map of ours.
  (*handlers_)[path] = std::move(handler);
}

Status HttpServer::Start(const std::string& host, int port) {
  server_->Get(".*", [handlers = handlers_](const httplib::Request& request,
                                            httplib::Response& response) {
    const auto it = handlers->find(request.path);
    const HttpReply reply = it == handlers->end() ? HttpReply{404, "no such page\n"} : it->second();
    response.status = reply.status;
    response.set_content(reply.body, reply.content_type);
  });
  if (port == 0) {
    port_ = server_->bind_to_any_port(host);
  } else {
    port_ = server_->bind_to_port(host, port) ? port : -1;
  }
  if (port_ <= 0) {
    return absl::UnavailableError(absl::StrCat("listen on ", host, ":", port, ": not possible"));
  }
  std::promise<void> ended;
  const std::future<void> has_ended = ended.get_future();
  thread_ = std::thread([this, ended = std::move(ended)]() mutable {
    server_->listen_after_bind();
    ended.set_value();
  });
  // httplib's stop does nothing before its loop runs, so do not come back before it does.
  while (!server_->is_running()) {
    if (has_ended.wait_for(std::chrono::microseconds(200)) == std::future_status::ready) {
      return absl::UnavailableError(absl::StrCat("serve on ", host, ":", port_, ": not possible"));
    }
  }
  return absl::OkStatus();
}

void HttpServer::Stop() {
  server_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace crowdsurf::dht
