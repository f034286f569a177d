#include "cli/screen/status_server.h"

#include <mutex>

#include "base/edge/http_host.h"
#include "base/edge/http_server.h"
#include "base/edge/metrics_page.h"

namespace crowdsurf::cli {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kMisdirected[] = "ask for it by an address\n";
constexpr char kHtml[] = "text/html; charset=utf-8";

}  // namespace

struct StatusServer::Impl {
  Impl(int port, MetricRegistry& registry)
      : metrics(registry, "crowdsurf"), server({"status", kLoopback, port}, registry) {}

  MetricsPage metrics;
  std::mutex mutex;
  std::string page;   // guarded by mutex
  HttpServer server;  // it ends first: its handlers use the rest
};

StatusServer::StatusServer(int port, MetricRegistry& metrics)
    : impl_(std::make_unique<Impl>(port, metrics)) {}

StatusServer::~StatusServer() = default;

StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(int port, MetricRegistry& metrics) {
  using Request = HttpServer::Request;
  using Reply = HttpServer::Reply;
  std::unique_ptr<StatusServer> made(new StatusServer(port, metrics));
  Impl* impl = made->impl_.get();
  // The page is ready text, so it may be given out on the thread that accepts.
  impl->server.Get("/", HttpServer::Runs::kAtOnce, [impl](const Request& request) {
    if (!NamesAnAddress(request.Header("host"))) return Reply{421, kMisdirected};
    const std::lock_guard lock(impl->mutex);
    return Reply{200, impl->page, kHtml, {{"Cache-Control", "no-store"}}};
  });
  impl->server.Get("/healthz", HttpServer::Runs::kAtOnce, [](const Request&) {
    return Reply{200, "ok\n"};
  });
  // Written anew at each scrape: on the pool, so that it holds up no other answer.
  impl->server.Get("/metrics", HttpServer::Runs::kOnPool, [impl](const Request& request) {
    if (!NamesAnAddress(request.Header("host"))) return Reply{421, kMisdirected};
    return Reply{200, impl->metrics.Render(), MetricsPage::kContentType};
  });
  if (const Status started = impl->server.Start(); !started.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--http-port: port ", port, " of ", kLoopback,
                     " cannot be had: taken, or not allowed; leave the flag out for any free one"));
  }
  return made;
}

void StatusServer::Show(std::string page) {
  const std::lock_guard lock(impl_->mutex);
  impl_->page = std::move(page);
}

int StatusServer::port() const { return impl_->server.port(); }

}  // namespace crowdsurf::cli
