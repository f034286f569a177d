#include "operator/edge/operator_pages.h"

#include <httplib.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <sstream>
#include <thread>

namespace crowdsurf::controller {
namespace {

constexpr int kThreads = 2;     // a scraper and a kubelet
constexpr int kPatience_s = 5;  // with a client that sends slowly
constexpr char kText[] = "text/plain; version=0.0.4";

prometheus::ClientMetric Convert(const MetricRegistry::Series& series) {
  prometheus::ClientMetric out;
  for (const auto& [name, value] : series.labels) out.label.push_back({name, value});
  if (series.counter) out.counter.value = series.counter->value();
  if (series.gauge) out.gauge.value = series.gauge->value();
  if (!series.histogram) return out;
  const Histogram& histogram = *series.histogram;
  uint64_t below = 0;
  for (size_t i = 0; i <= histogram.upper_bounds().size(); ++i) {
    below += histogram.bucket(i);
    const bool last = i == histogram.upper_bounds().size();
    out.histogram.bucket.push_back(
        {below, last ? std::numeric_limits<double>::infinity() : histogram.upper_bounds()[i]});
  }
  out.histogram.sample_count = below;
  out.histogram.sample_sum = histogram.sum();
  return out;
}

prometheus::MetricType TypeOf(MetricRegistry::Kind kind) {
  switch (kind) {
    case MetricRegistry::Kind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricRegistry::Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricRegistry::Kind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

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

}  // namespace

std::string RenderMetrics(const MetricRegistry& registry) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, family] : registry.families()) {
    prometheus::MetricFamily out;
    out.name = name;
    out.help = family.help;
    out.type = TypeOf(family.kind);
    for (const MetricRegistry::Series& series : family.series) {
      out.metric.push_back(Convert(series));
    }
    families.push_back(std::move(out));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

std::unique_ptr<LogSink> MakeLogSink() { return std::make_unique<StderrSink>(); }

LogLevel LogLevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

struct OperatorPages::Server {
  httplib::Server http;
  std::thread thread;

  Server() {
    http.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    http.set_read_timeout(kPatience_s);
    http.set_write_timeout(kPatience_s);
  }
  Status Listen(const std::string& address, int port) {
    if (!http.bind_to_port(address, port)) {
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ":", port));
    }
    thread = std::thread([this] { http.listen_after_bind(); });
    while (!http.is_running()) std::this_thread::yield();  // else an early stop would be lost
    return absl::OkStatus();
  }
  ~Server() {
    if (!thread.joinable()) return;
    http.stop();
    thread.join();
  }
};

OperatorPages::OperatorPages()
    : health_(std::make_unique<Server>()), metrics_(std::make_unique<Server>()) {}
OperatorPages::~OperatorPages() = default;

StatusOr<std::unique_ptr<OperatorPages>> OperatorPages::Start(const Options& options,
                                                              std::function<bool()> ready,
                                                              const MetricRegistry& metrics) {
  std::unique_ptr<OperatorPages> pages(new OperatorPages());
  pages->health_->http.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", kText);
  });
  pages->health_->http.Get(
      "/readyz", [ready](const httplib::Request&, httplib::Response& response) {
        const bool yes = ready();
        response.status = yes ? 200 : 503;
        response.set_content(yes ? "ok\n" : "the caches are not filled yet\n", kText);
      });
  pages->metrics_->http.Get("/metrics",
                            [&metrics](const httplib::Request&, httplib::Response& response) {
                              response.set_content(RenderMetrics(metrics), kText);
                            });
  RETURN_IF_ERROR(pages->health_->Listen(options.listen, options.health_port));
  RETURN_IF_ERROR(pages->metrics_->Listen(options.listen, options.metrics_port));
  return pages;
}

}  // namespace crowdsurf::controller
