#include "operator/edge/serve/operator_pages.h"

namespace crowdsurf::controller {
namespace {

HttpServer::Options HealthPort(const OperatorPages::Options& options) {
  return {"health", options.listen, options.health_port};
}

HttpServer::Options MetricsPort(const OperatorPages::Options& options) {
  HttpServer::Options port{"metrics", options.listen, options.metrics_port};
  if (options.identity != nullptr) {
    port.certificate = options.identity->certificate.get();
    port.key = options.identity->key.get();
  }
  return port;
}

}  // namespace

OperatorPages::OperatorPages(const Options& options, MetricRegistry& registry)
    : health_(HealthPort(options), registry), metrics_(MetricsPort(options), registry) {}

StatusOr<std::unique_ptr<OperatorPages>> OperatorPages::Start(const Options& options,
                                                              std::function<bool()> ready,
                                                              MetricsPage& metrics,
                                                              MetricRegistry& registry) {
  using Request = HttpServer::Request;
  using Reply = HttpServer::Reply;
  std::unique_ptr<OperatorPages> pages(new OperatorPages(options, registry));
  // Health is answered at once: scrapes may wait for the API server, probes must not.
  pages->health_.Get("/healthz", HttpServer::Runs::kAtOnce, [live = options.live](const Request&) {
    return live() ? Reply{200, "ok\n"} : Reply{503, "the deciding loop is stuck\n"};
  });
  pages->health_.Get(
      "/readyz", HttpServer::Runs::kAtOnce, [ready = std::move(ready)](const Request&) {
        return ready() ? Reply{200, "ok\n"} : Reply{503, "the caches are not filled yet\n"};
      });
  pages->metrics_.Get("/metrics", HttpServer::Runs::kOnPool,
                      [&metrics, admit = options.admit](const Request& request) {
                        const Status status =
                            admit ? admit(std::string(request.Header("authorization")))
                                  : absl::OkStatus();
                        if (status.ok())
                          return Reply{200, metrics.Render(), MetricsPage::kContentType};
                        const int code = absl::IsUnauthenticated(status)    ? 401
                                         : absl::IsPermissionDenied(status) ? 403
                                                                            : 503;
                        return Reply{code, absl::StrCat(status.message(), "\n")};
                      });
  RETURN_IF_ERROR(pages->health_.Start());
  RETURN_IF_ERROR(pages->metrics_.Start());
  return pages;
}

}  // namespace crowdsurf::controller
