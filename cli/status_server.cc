#include "cli/status_server.h"

#include <httplib.h>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "base/edge/metrics_page.h"

namespace crowdsurf::cli {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr size_t kThreads = 2;             // a browser and a scraper
constexpr size_t kMostRequest = 64 << 10;  // GETs have no body
constexpr time_t kTimeout_s = 5;           // of a slow client
constexpr char kHtml[] = "text/html; charset=utf-8";

}  // namespace

struct StatusServer::Impl {
  explicit Impl(MetricRegistry& registry) : metrics(registry, "crowdsurf") {}

  MetricsPage metrics;
  httplib::Server server;
  std::thread thread;
  int port = 0;
  std::mutex mutex;
  std::string page;  // guarded by mutex
};

StatusServer::StatusServer(MetricRegistry& metrics) : impl_(std::make_unique<Impl>(metrics)) {}

StatusServer::~StatusServer() {
  impl_->server.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(int port, MetricRegistry& metrics) {
  std::unique_ptr<StatusServer> made(new StatusServer(metrics));
  Impl* impl = made->impl_.get();
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kMostRequest);
  server.set_read_timeout(kTimeout_s);
  server.set_write_timeout(kTimeout_s);
  // Without SO_REUSEPORT, so that a taken port is an error and not a shared one.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.Get("/", [impl](const httplib::Request&, httplib::Response& response) {
    const std::lock_guard lock(impl->mutex);
    response.set_header("Cache-Control", "no-store");
    response.set_content(impl->page, kHtml);
  });
  server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain; charset=utf-8");
  });
  server.Get("/metrics", [impl](const httplib::Request&, httplib::Response& response) {
    response.set_content(impl->metrics.Render(), MetricsPage::kContentType);
  });
  if (port == 0) {
    impl->port = server.bind_to_any_port(kLoopback);
  } else {
    impl->port = server.bind_to_port(kLoopback, port) ? port : -1;
  }
  if (impl->port <= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--http-port: port ", port, " of ", kLoopback,
                     " cannot be had: taken, or not allowed; leave the flag out for any free one"));
  }
  auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> has_ended = ended->get_future();
  impl->thread = std::thread([impl, ended] {
    impl->server.listen_after_bind();
    ended->set_value();
  });
  // httplib's stop does nothing before its loop runs, so do not come back before it does.
  while (!server.is_running()) {
    if (has_ended.wait_for(std::chrono::microseconds(200)) == std::future_status::ready) {
      return absl::FailedPreconditionError(
          absl::StrCat("--http-port: port ", impl->port, " cannot be served"));
    }
  }
  return made;
}

void StatusServer::Show(std::string page) {
  const std::lock_guard lock(impl_->mutex);
  impl_->page = std::move(page);
}

int StatusServer::port() const { return impl_->port; }

}  // namespace crowdsurf::cli
