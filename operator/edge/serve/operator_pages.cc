#include "operator/edge/serve/operator_pages.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace crowdsurf::controller {
namespace {

class StderrSink : public LogSink {
 public:
  StderrSink() : logger_("operator", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(spdlog::level::debug);  // a Logger has dropped what is below its own
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }
  void Write(LogLevel level, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    std::string line(module);
    line.append(": ").append(message);
    for (const LogField& field : fields) {
      line.append(" ").append(field.key).append("=\"").append(field.value).append("\"");
    }
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    logger_.log(kLevels[static_cast<size_t>(level)], "{}", line);
  }

 private:
  spdlog::logger logger_;
};

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

std::unique_ptr<LogSink> MakeLogSink() { return std::make_unique<StderrSink>(); }

LogLevel LogLevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

OperatorPages::OperatorPages(const Options& options, MetricRegistry& registry)
    : health_(HealthPort(options), registry), metrics_(MetricsPort(options), registry) {}

StatusOr<std::unique_ptr<OperatorPages>> OperatorPages::Start(const Options& options,
                                                              std::function<bool()> ready,
                                                              MetricsPage& metrics,
                                                              MetricRegistry& registry) {
  using Request = HttpServer::Request;
  using Reply = HttpServer::Reply;
  std::unique_ptr<OperatorPages> pages(new OperatorPages(options, registry));
  pages->health_.Get("/healthz", HttpServer::Runs::kAtOnce, [live = options.live](const Request&) {
    return live() ? Reply{200, "ok\n"} : Reply{503, "the deciding loop is stuck\n"};
  });
  pages->health_.Get("/readyz", HttpServer::Runs::kAtOnce, [ready](const Request&) {
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
